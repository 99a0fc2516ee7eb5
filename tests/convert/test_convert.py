"""Conversions: bytes come back, bad input is named, a kill leaves nothing whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from clawgym_jax.checkpoints import folder, hf, safetensors, weights_writer
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from tests.checkpoints.conftest import logits, tokenizer  # noqa: F401
from tests.checkpoints.test_hf import FAMILIES, TOKENS


def convert(check: bool = True, **given) -> dict:
  """Runs the command; gives its summary, or its error text if it is to fail."""
  done = subprocess.run(command(**given), capture_output=True, text=True, timeout=120)
  assert (done.returncode == 0) == check, done.stderr
  return json.loads(done.stdout.splitlines()[-1]) if check else done.stderr


def command(**given) -> list[str]:
  names = {"source": "from", "target": "to"}
  options = [f"--{names.get(key, key)}={value}" for key, value in given.items()]
  return [sys.executable, "-m", "clawgym_jax.convert", "--json", *options]


def bytes_of(directory) -> dict[str, tuple]:
  return {
      name: (tensor.shape, tensor.dtype, tensor.read().tobytes())
      for name, tensor in hf.read(directory).tensors.items()
  }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_huggingface_orbax_huggingface_gives_the_same_bytes(
    family, dtype, tmp_path, tokenizer
):
  model = FAMILIES[family](tokenizer.vocab_size, seed=2)
  hf.save(tmp_path / "a", model, tokenizer, dtype=dtype, shard_bytes=60_000)
  hf.write(tmp_path / "b", hf.read(tmp_path / "a"), orbax=True)
  assert not list((tmp_path / "b").rglob("*.safetensors"))
  hf.write(tmp_path / "c", hf.read(tmp_path / "b"))
  assert (tmp_path / "c" / "model.safetensors").exists()
  assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b") == bytes_of(tmp_path / "c")
  for path in (tmp_path / "a").iterdir():
    if not path.name.startswith("model"):
      assert (tmp_path / "c" / path.name).read_bytes() == path.read_bytes()


def test_the_command_converts_there_and_back(tmp_path, tokenizer, logits):
  model = create.tiny_qwen3(tokenizer.vocab_size, seed=2)
  hf.save(tmp_path / "a", model, tokenizer)
  there = convert(source=tmp_path / "a", target=tmp_path / "b", format="orbax")
  assert there["family"] == "qwen3" and there["dtype"] == "float32"
  again, _ = hf.load(tmp_path / "b")  # a model folder like any other
  np.testing.assert_array_equal(logits(model, TOKENS), logits(again, TOKENS))
  back = convert(
      source=tmp_path / "b", target=tmp_path / "c", shard_gb=1e-4, dtype="bfloat16"
  )
  assert back["dtype"] == "bfloat16" and back["parameters"] == there["parameters"]
  assert (tmp_path / "c" / safetensors.INDEX).exists()
  half = {k: v.read().astype("bfloat16") for k, v in hf.read(tmp_path / "a").tensors.items()}
  for name, tensor in hf.read(tmp_path / "c").tensors.items():
    assert tensor.read().tobytes() == half[name].tobytes()
  assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_foreign_files_go_along_byte_for_byte(tmp_path, tokenizer):
  hf.save(tmp_path / "a", create.tiny_llama(tokenizer.vocab_size), tokenizer)
  template = "{{ messages }} \u00e9\r\n"
  foreign = {
      "chat_template.jinja": template,
      "generation_config.json": '{"temperature": 0.6,   "eos_token_id": [1, 2]}',
      "merges.txt": "#version\na b\n",
  }
  for name, text in foreign.items():
    (tmp_path / "a" / name).write_bytes(text.encode())
  config = json.loads((tmp_path / "a" / "config.json").read_text()) | {"own_key": [1]}
  (tmp_path / "a" / "config.json").write_text(json.dumps(config))
  more = "additional_chat_templates/tool_use.jinja"
  (tmp_path / "a" / more).parent.mkdir()
  (tmp_path / "a" / more).write_bytes(template.encode())
  hf.write(tmp_path / "b", hf.read(tmp_path / "a"))
  assert (tmp_path / "b" / more).read_bytes() == template.encode()
  for name, text in foreign.items():
    assert (tmp_path / "b" / name).read_bytes() == text.encode()
  assert json.loads((tmp_path / "b" / "config.json").read_text()) == config


def edit(path, **change) -> None:
  path.write_text(json.dumps(json.loads(path.read_text()) | change))


def shard(directory):
  (path,) = directory.glob("model-00002-of-*.safetensors")
  return path


FAULTS = {
    "missing shard": (
        lambda d: shard(d).unlink(),
        "model-00002-of-.*.safetensors is missing",
    ),
    "truncated": (
        lambda d: os.truncate(shard(d), shard(d).stat().st_size // 2),
        "model-00002-of-.*.safetensors is damaged",
    ),
    "unknown architecture": (
        lambda d: edit(d / "config.json", model_type="mamba"),
        "'mamba' is not supported",
    ),
    "wrong shape": (
        lambda d: edit(d / "config.json", intermediate_size=112),
        "has shape .* of different models",
    ),
    "tied": (
        lambda d: edit(d / "config.json", tie_word_embeddings=True),
        "tie_word_embeddings",
    ),
    "more layers": (
        lambda d: edit(d / "config.json", num_hidden_layers=4),
        "no tensor model.layers.3",
    ),
    "fewer layers": (
        lambda d: edit(d / "config.json", num_hidden_layers=2),
        "has a tensor model.layers.2",
    ),
    "no JSON number": (
        lambda d: edit(d / "config.json", own=float("nan")),
        "config.json is damaged",
    ),
    "another kind": (
        lambda d: edit(d / "config.json", rope_parameters=[1]),
        "config.json has a setting of another kind",
    ),
    "a billion layers": (
        lambda d: edit(d / "config.json", num_hidden_layers=10**9),
        "num_hidden_layers 1000000000: it must be 1000 at most",
    ),
    "no fractions": (
        lambda d: shard(d).write_bytes(shard(d).read_bytes().replace(b'"F32"', b'"I32"')),
        "holds int32, no fractions",
    ),
    "quantised": (
        lambda d: edit(d / "config.json", quantization_config={"quant_method": "fp8"}),
        "quantization_config",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("orbax", [False, True])
def test_bad_input_is_named_and_writes_nothing(fault, orbax, tmp_path, tokenizer):
  model = create.tiny_llama(tokenizer.vocab_size)
  hf.save(tmp_path / "a", model, tokenizer, shard_bytes=96_000)
  damage, expected = FAULTS[fault]
  damage(tmp_path / "a")
  with pytest.raises(UserError, match=expected):
    hf.write(tmp_path / "b", hf.read(tmp_path / "a"), orbax=orbax)
  assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_target_that_is_in_the_way_is_refused(tmp_path, tokenizer):
  hf.save(tmp_path / "a", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)
  before = bytes_of(tmp_path / "a")
  (tmp_path / "work").mkdir()
  (tmp_path / "work" / "notes.txt").write_text("mine")
  (tmp_path / "link").symlink_to(tmp_path / "a")
  for target, expected in {
      "work": "not a model",
      "work/notes.txt": "is a file",
      "a": "is what is read",
      "link": "is what is read",
  }.items():
    text = convert(False, source=tmp_path / "a", target=tmp_path / target)
    assert text.startswith("error: ") and expected in text
  assert bytes_of(tmp_path / "a") == before
  assert (tmp_path / "work" / "notes.txt").read_text() == "mine"


def test_a_flag_that_would_do_nothing_is_refused(tmp_path, tokenizer):
  """And a target is called replaced only where it is."""
  hf.save(tmp_path / "a", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)
  hf.save(tmp_path / "b", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)
  for flag in ("tokenizer", "corpus"):
    given = {flag: tmp_path / "c"}
    text = convert(False, source=tmp_path / "a", target=tmp_path / "b", **given)
    assert text.startswith(f"error: --{flag} is for ")


def test_names_that_no_folder_has_are_refused(tmp_path, tokenizer):
  hf.save(tmp_path / "a", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)
  text = convert(False, source=tmp_path / "a", target=tmp_path / ("b" * 245))
  assert "Traceback" not in text and "give a shorter path" in text
  text = convert(False, source="package:", target=tmp_path / "b")
  assert "Traceback" not in text and "is not installed" in text
  assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_to_a_folder_is_a_name_of_it(tmp_path, tokenizer):
  """What it points to is replaced, and the command says so."""
  hf.save(tmp_path / "a", create.tiny_qwen3(tokenizer.vocab_size, seed=1), tokenizer)
  hf.save(tmp_path / "b", create.tiny_qwen3(tokenizer.vocab_size, seed=2), tokenizer)
  (tmp_path / "link").symlink_to(tmp_path / "b")
  done = subprocess.run(
      command(source=tmp_path / "a", target=tmp_path / "link"),
      capture_output=True,
      text=True,
      timeout=120,
  )
  assert done.returncode == 0, done.stderr
  assert f"{tmp_path / 'link'} holds a model, which is replaced" in done.stderr
  size = sum(t.nbytes for t in hf.read(tmp_path / "a").tensors.values())
  count = len(hf.read(tmp_path / "a").tensors)
  assert f"wrote {tmp_path / 'link'}: {count} tensors, {size} bytes" in done.stderr
  assert (tmp_path / "link").is_symlink()
  assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
  assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "link"]


@pytest.mark.parametrize("orbax", [False, True])
def test_what_float16_cannot_hold_is_named_and_writes_nothing(orbax, tmp_path, tokenizer):
  model = create.tiny_qwen3(tokenizer.vocab_size)
  model.model.norm.weight[...] = model.model.norm.weight[...] + 1e5
  hf.save(tmp_path / "a", model, tokenizer)
  with pytest.raises(UserError, match="model.norm.weight has values that float16"):
    hf.write(tmp_path / "b", hf.read(tmp_path / "a"), orbax=orbax, dtype="float16")
  assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("form", ["huggingface", "orbax"])
def test_a_kill_leaves_nothing_as_if_whole(form, tmp_path, tokenizer):
  """The same command again succeeds, and what the killed one left is gone."""
  model = create.tiny_qwen3(tokenizer.vocab_size, seed=1)
  hf.save(tmp_path / "a", model, tokenizer)
  slow = f"""
import signal, sys, time
from absl import app, flags
from clawgym_jax import convert
from clawgym_jax.checkpoints import tensors
from clawgym_jax.checkpoints import safetensors, weights_writer
def hang(*_, **kw):
  print("hangs", flush=True)
  time.sleep(60)
{dict(huggingface="safetensors.append", orbax="weights_writer._Streamed._open_and_write")[form]} = hang
flags.FLAGS(sys.argv)
convert.main()
"""
  options = command(source=tmp_path / "a", target=tmp_path / "b", format=form)[3:]
  child = subprocess.Popen(
      [sys.executable, "-c", slow, *options], stdout=subprocess.PIPE, text=True
  )
  try:
    assert child.stdout.readline().strip() == "hangs"
  finally:
    child.send_signal(signal.SIGKILL)
    child.wait()
  left = [path for path in tmp_path.iterdir() if path.name != "a"]
  assert left and not (tmp_path / "b").exists()
  for path in left:
    with pytest.raises(UserError):
      hf.read(path)
  convert(source=tmp_path / "a", target=tmp_path / "b", format=form)
  assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
  assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


def test_a_full_disk_leaves_nothing(tmp_path, tokenizer, monkeypatch):
  hf.save(tmp_path / "a", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)

  def full(*_, **kw):
    raise OSError(28, "No space left on device")

  for module, name in ((safetensors, "write_folder"), (weights_writer, "write")):
    monkeypatch.setattr(module, name, full)
    with pytest.raises(UserError, match="no space left"):
      hf.write(tmp_path / "b", hf.read(tmp_path / "a"), orbax=module is weights_writer)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_config_is_written_last(tmp_path, tokenizer, monkeypatch):
  """A folder without one is a model to no reader, so a part is none."""
  order = []
  sync = folder.sync
  monkeypatch.setattr(folder, "sync", lambda path: (order.append(path), sync(path)))
  write = hf.write_json
  monkeypatch.setattr(
      hf, "write_json", lambda path, value: (order.append(path.name), write(path, value))
  )
  hf.save(tmp_path / "a", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)
  assert order[-2] == "config.json" and order[-1] == tmp_path
