"""One writer a folder, one run a folder."""

import json
import subprocess
import sys
import threading

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.runs import only_writer, same_run


def test_a_folder_has_one_writer_at_a_time(tmp_path):
  folder = tmp_path / "run"
  hold = (
      "import sys, time\n"
      "from pathlib import Path\n"
      "from clawgym_jax.contracts.runs import only_writer\n"
      "with only_writer(Path(sys.argv[1]), 'run'):\n"
      "  print('held', flush=True)\n"
      "  time.sleep(60)\n"
  )
  other = subprocess.Popen(
      [sys.executable, "-c", hold, folder], stdout=subprocess.PIPE, text=True
  )
  try:
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="another run is writing to"):
      with only_writer(folder, "run"):
        pass
    threading.Timer(0.5, other.kill).start()
    with only_writer(folder, "run", patience=30.0):  # a lock ends with its holder
      assert other.wait(1) == -9
  finally:
    other.kill()
    other.communicate()


def test_another_run_is_refused_by_what_changed(tmp_path):
  path = tmp_path / "run.json"
  same_run(path, {"seed": 1, "pins": (1, 2), "model": None})
  same_run(path, {"seed": 1, "pins": (1, 2), "model": None})
  with pytest.raises(UserError) as refused:
    same_run(path, {"seed": 2, "pins": (1, 2), "top_p": 0.5})
  assert "seed (was 1, is 2); top_p (was null, is 0.5). Give" in str(refused.value)
  assert json.loads(path.read_text())["seed"] == 1
