"""What an upstream answers is recorded whole, or it is an error that says what is wrong."""

import asyncio
import json

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clawgym_jax.contracts.errors import UserError
from sandbox.gateway.upstream import connect
from tests.gateway import engine as fakes

U = [{"role": "user", "content": "hello"}]
HALF = "\ud800"  # half of a surrogate pair, as JSON can hold it


def chat_api(answer, asked):
  """A chat API whose every answer is `answer`: a message, or a whole body as text."""

  async def models(_):
    return JSONResponse({"data": [{"id": "m"}]})

  async def chat(request):
    asked.append(await request.body())
    body = answer
    if not isinstance(answer, str):
      body = json.dumps({"choices": [{"message": answer, "finish_reason": "stop"}]})
    return Response(body, media_type="application/json")

  return Starlette(
      routes=[
          Route("/v1/models", models),
          Route("/v1/chat/completions", chat, methods=["POST"]),
      ]
  )


def function(**fields):
  return {"role": "assistant", "tool_calls": [{"function": fields}]}


@pytest.mark.parametrize(
    "answer",
    [
        {"content": 5},
        {"content": {"a": 1}},
        {"content": [{"type": "text", "text": "a"}, 5]},
        {"content": [{"type": "text", "text": 5}]},
        function(name=None, arguments="{}"),
        function(name="read", arguments=7),
        {"tool_calls": [5]},
        {"tool_calls": 5},
        None,
        '{"choices": []}',
        '{"choices": null}',
        "{}",
    ],
)
def test_a_malformed_answer_is_an_error_and_leaves_no_step(run, pool, answer):
  asked = []

  async def scenario(harness):
    status, body = await harness.post(U)
    assert (status, body["error"]["code"]) == (502, "upstream_malformed"), body
    return pool.steps(harness.trajectory_id)

  assert run(scenario, upstream=chat_api(answer, asked)) == []
  assert len(asked) == 1


@pytest.mark.parametrize("answer", ["<html>", "[1]", '"x"', "[" * 200_000, '{"a": "\xff'])
def test_an_answer_that_is_no_object_is_given_up_on_soon(run, pool, answer, capfd):
  asked = []

  async def scenario(harness):
    status, body = await harness.post(U)
    assert status == 503 and "no JSON object" in body["error"]["message"]
    return pool.steps(harness.trajectory_id)

  assert run(scenario, upstream=chat_api(answer, asked)) == []
  assert len(asked) == 4
  assert "trying again for up to" in capfd.readouterr().err


@pytest.mark.parametrize(
    "answer, content",
    [
        ({"content": HALF}, HALF),
        ({"content": "a\u2028\x00b"}, "a\u2028\x00b"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ('{"choices": [{"message": {"content": "x"}}], "usage": "abc"}', "x"),
        ('{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": null}}', "x"),
        ({"content": None, **function(name="write", arguments={"content": HALF})}, None),
        ({"content": None, **function(name="write", arguments="[" * 200_000)}, None),
        ({"content": None, **function(name="write", arguments=None)}, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_can_be_read_is_recorded_and_goes_on(run, pool, answer, content, stream):
  async def scenario(harness):
    status, body = await harness.post(U, stream=stream)
    assert status == 200, body
    (step,) = pool.steps(harness.trajectory_id)
    assert step.response.get("content") == content
    follow = [*U, step.response]
    for call in step.response.get("tool_calls", []):
      follow.append({"role": "tool", "tool_call_id": call["id"], "content": HALF})
    status, body = await harness.post([*follow, *U])
    assert status == 200, body
    steps = pool.steps(harness.trajectory_id)
    assert [s.parent_id for s in steps] == [None, step.step_id]

  run(scenario, upstream=chat_api(answer, []))


@pytest.mark.parametrize(
    "change",
    [
        {"ids": None},
        {"ids": [-1, 2]},
        {"ids": ["a", "b"]},
        {"ids": [1.0, 2.0]},
        {"ids": [1, 10**9]},
        {"ids": [True, False]},
        {"logprobs": [-0.5]},
        {"logprobs": None},
        {"untempered_logprobs": [-0.5, "x"]},
        {"policy_versions": [1, 2, 3]},
        {"finish_reason": "tired"},
    ],
)
def test_a_malformed_answer_of_an_engine(run, pool, engine, change):
  whole = {
      "ids": [1, 2],
      "logprobs": [-0.5, -0.5],
      "untempered_logprobs": [-0.5, -0.5],
      "policy_versions": [3, 3],
      "finish_reason": "stop",
  }

  async def scenario(harness):
    engine.script = [(200, {**whole, **change}, {})]
    status, body = await harness.post(U)
    assert (status, body["error"]["code"]) == (502, "upstream_malformed"), body
    return pool.steps(harness.trajectory_id)

  assert run(scenario) == []


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>{"name": "write", "arguments": {"path": "a", "content": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "exec", "arguments": ' + "[" * 1500,
        '<tool_call>{"name": "exec", "arguments": {"a": ' + "[" * 700 + "]" * 700 + "}}</tool_call>",
        '<tool_call>{"name": "exec", "arguments": {"a": NaN}}</tool_call>',
    ],
)
def test_nothing_that_a_policy_says_is_a_failure_of_ours(run, pool, engine, said):
  async def scenario(harness):
    engine.script = [said, "done"]
    message = await harness.say(U)
    (step,) = pool.steps(harness.trajectory_id)
    assert step.response_ids
    await harness.say([*U, message, *U])

  run(scenario)


@pytest.mark.parametrize("body", ['"hello"', "[1]", '{"data": null}', '{"data": [5]}', "{", "[" * 200_000])
def test_a_list_of_models_that_is_none(body):
  async def answer(_):
    return Response(body, media_type="application/json")

  with fakes.serving(Starlette(routes=[Route("/v1/models", answer)])) as url:
    with pytest.raises(UserError, match="neither an engine nor|can't use the upstream"):
      asyncio.run(connect(url))


@pytest.mark.parametrize("body", ["<html>", "{}", "[1]", '{"tokenizer.json": "{"}'])
def test_an_engine_without_a_tokenizer(body):
  async def info(_):
    return JSONResponse({"kind": "tokens", "model": "m", "max_len": 9, "policy_version": 0})

  async def files(_):
    return Response(body)

  routes = [Route("/info", info), Route("/tokenizer", files)]
  with fakes.serving(Starlette(routes=routes)) as url:
    with pytest.raises(UserError):
      asyncio.run(connect(url))


def test_a_key_that_is_missing_is_named():
  async def refuse(_):
    return Response("no key", status_code=401)

  with fakes.serving(Starlette(routes=[Route("/v1/models", refuse)])) as url:
    with pytest.raises(UserError, match="UPSTREAM_API_KEY"):
      asyncio.run(connect(url))
