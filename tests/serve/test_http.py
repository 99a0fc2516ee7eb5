"""The server as its clients meet it: a real process, a real socket."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import aiohttp
import pytest
from flax import nnx

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import hf
from clawgym_jax.models.create import tiny_llama
from clawgym_jax.models.fingerprint import fingerprint
from tests.serve.conftest import prompt, training_logprobs

START = 120  # seconds; compiles on a busy machine
WAIT = 60
FLAGS = ["--port=0", "--slots=2", "--max_len=64", "--compute_dtype=float32"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
  tokenizer = vocabulary.train(["sum a column of numbers, then stop"] * 20, 280)
  directory = tmp_path_factory.mktemp("model") / "tiny"
  hf.save(directory, tiny_llama(310), tokenizer)
  return directory


def start(checkpoint, ready, *extra, code="", flags=FLAGS):
  script = code + (
      "\nimport runpy; runpy.run_module('clawgym_jax.serve', run_name='__main__')"
  )
  return subprocess.Popen(
      [sys.executable, "-c", script, f"--checkpoint={checkpoint}",
       f"--ready_file={ready}", *flags, *extra],
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
  )


def wait_ready(process, ready):
  deadline = time.monotonic() + START
  while not ready.exists():
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < deadline
    time.sleep(0.05)
  return json.loads(ready.read_text())


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
  ready = tmp_path_factory.mktemp("run") / "ready.json"
  process = start(checkpoint, ready, "--json", "--policy_version=5")
  try:
    told = wait_ready(process, ready)
    assert told["pid"] == process.pid
    yield told["url"]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["recompiles"] == 0
    assert not ready.exists()
  finally:
    process.kill()


def get(url):
  with urllib.request.urlopen(url, timeout=WAIT) as reply:
    return json.load(reply)


def post(url, body):
  data = body if isinstance(body, bytes) else json.dumps(body).encode()
  request = urllib.request.Request(url + "/generate", data)
  try:
    with urllib.request.urlopen(request, timeout=WAIT) as reply:
      return reply.status, json.load(reply)
  except urllib.error.HTTPError as error:
    return error.code, json.load(error)


def test_info_and_tokenizer(server, checkpoint):
  model = hf.load(checkpoint)[0]
  assert get(server + "/info") == {
      "kind": "tokens",
      "model": "tiny",
      "max_len": 64,
      "policy_version": 5,
      "weights": fingerprint(nnx.state(model, nnx.Param)),
      "compute_dtype": "float32",
  }
  sent = Tokenizer.from_files(get(server + "/tokenizer"))
  text = "sum 12 numbers <|im_end|>"
  assert sent.encode(text) == Tokenizer.load(checkpoint).encode(text)


def test_generate(server, checkpoint):
  ids = prompt(0, 20)
  body = {"prompt_ids": ids, "max_tokens": 8, "temperature": 1.0, "top_p": 1.0,
          "seed": 3, "stop_ids": [309]}
  status, done = post(server, body)
  assert status == 200 and done["finish_reason"] in ("length", "stop")
  assert len(done["ids"]) == len(done["logprobs"]) == len(done["policy_versions"])
  assert set(done["policy_versions"]) == {5}
  model, _ = hf.load(checkpoint)
  wanted = training_logprobs(model, ids, done["ids"])
  assert done["untempered_logprobs"] == pytest.approx(wanted.tolist(), abs=1e-5)
  assert post(server, body)[1]["ids"] == done["ids"]


@pytest.mark.parametrize(
    "body, cause",
    [
        ({"prompt_ids": list(range(70))}, "70 tokens; with max_len 64 at most 63"),
        ({"prompt_ids": [1], "max_tokens": 0}, "max_tokens"),
        ({"prompt_ids": [1], "temprature": 1}, "temprature"),
        ({"prompt_ids": "abc"}, "prompt_ids"),
        ({"prompt_ids": [1], "stop_ids": 3}, "stop_ids"),
        ([], "prompt_ids"),
        (b"{", "not JSON"),
    ],
)
def test_a_hopeless_request_is_answered_400_with_the_cause(server, body, cause):
  status, answer = post(server, body)
  assert status == 400 and cause in answer["error"]


def test_a_client_that_hangs_up_frees_its_slot(server):
  """Six callers of two slots go away; the next is served, none runs on."""
  before = get(server + "/stats")

  async def hang_up():
    async with aiohttp.ClientSession() as session:
      calls = [
          asyncio.ensure_future(session.post(
              server + "/generate", json={"prompt_ids": prompt(i, 4)}
          ))
          for i in range(300)
      ]
      await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
      for call in calls:
        call.cancel()

  asyncio.run(hang_up())
  assert post(server, {"prompt_ids": [1, 2], "max_tokens": 2})[0] == 200
  after = get(server + "/stats")
  assert after["running"] == after["waiting"] == 0
  assert after["sampled_tokens"] - before["sampled_tokens"] < 300 * 60


def test_a_thousand_requests_in_flight(server):
  async def all_at_once():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
      async def call(i):
        body = {"prompt_ids": [i % 300, 1], "max_tokens": 2}
        async with session.post(server + "/generate", json=body) as reply:
          return reply.status, len((await reply.json())["ids"])
      return await asyncio.gather(*(call(i) for i in range(1000)))

  assert asyncio.run(all_at_once()) == [(200, 2)] * 1000


def test_a_port_in_use_is_a_clear_error(checkpoint, tmp_path):
  with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    process = start(checkpoint, tmp_path / "ready", flags=[f"--port={port}"])
    out, err = process.communicate(timeout=START)
  assert process.returncode == 1
  assert f"error: can't listen on port {port} of 127.0.0.1: it is in use" in err
  assert "Traceback" not in err and not (tmp_path / "ready").exists()


def test_a_dead_engine_answers_and_ends_the_process(checkpoint, tmp_path):
  code = (
      "from clawgym_jax.serve.programs import Programs\n"
      "warm_up = Programs.warm_up\n"
      "def break_later(self, params):\n"
      "  warm_up(self, params)\n"
      "  self.decode = lambda *a, **k: 1 / 0\n"
      "Programs.warm_up = break_later\n"
  )
  ready = tmp_path / "ready.json"
  process = start(checkpoint, ready, code=code)
  try:
    url = wait_ready(process, ready)["url"]
    status, answer = post(url, {"prompt_ids": [1]})
    assert status == 500 and "ZeroDivisionError" in answer["error"]
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "ZeroDivisionError" in err
    assert not ready.exists()
  finally:
    process.kill()


def test_a_missing_checkpoint_is_a_clear_error(tmp_path):
  process = start(tmp_path / "none", tmp_path / "ready")
  _, err = process.communicate(timeout=START)
  assert process.returncode == 1 and "does not exist" in err
  assert os.listdir(tmp_path) == []
