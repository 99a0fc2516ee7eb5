"""message, cron, web_search and web_fetch: the sandbox's own programs, called.

Nothing is done here: the arguments become a command line, and what the
program prints is the result. So a harness with a shell alone can do the same.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from clawgym_jax.contracts import json_text
from sandbox import services
from sandbox.tools.call import Call
from sandbox.tools.results import BadCall

SECONDS = 20.0
COMMAND_BYTES = 120_000  # what one argument of a program can hold
ATTACHED = f"{services.FOLDER}/state/attached"

_NOT_FOUND = 127


async def message(call: Call, args: dict[str, Any]) -> str:
  argv = command("message", args)
  if args.get("buffer"):
    argv.append(f"--attach={await _attached(call, args)}")
  return await _run(call, argv)


async def cron(call: Call, args: dict[str, Any]) -> str:
  return await _run(call, command("cron", args))


async def web_search(call: Call, args: dict[str, Any]) -> str:
  return await _run(call, command("web_search", args))


async def web_fetch(call: Call, args: dict[str, Any]) -> str:
  return await _run(call, command("web_fetch", args))


def command(name: str, args: dict[str, Any]) -> list[str]:
  """The program, and the arguments, that do what a call of tool `name` asks.

  All but a `buffer`, which must become a file first.
  """
  return _COMMANDS[name](args)


def _message(args: dict[str, Any]) -> list[str]:
  """`outbox send`, to one target or to several."""
  if args["action"] == "broadcast":
    field, targets = "targets (array)", args.get("targets")
  else:
    field, targets = "target (string)", [args["target"]] if args.get("target") else None
  if not targets:
    raise BadCall(f"message {args['action']} needs {field}")
  argv = ["outbox", "send", *(f"--to={target}" for target in targets)]
  texts = {
      "channel": "channel", "subject": "subject", "message": "body",
      "replyTo": "reply-to", "threadId": "thread", "media": "attach",
  }  # fmt: skip
  argv += [f"--{flag}={args[key]}" for key, flag in texts.items() if args.get(key)]
  flags = {"silent": "--silent", "dryRun": "--dry-run"}
  return argv + [flag for key, flag in flags.items() if args.get(key)]


def _cron(args: dict[str, Any]) -> list[str]:
  """The subcommand of `cron` that the action names."""
  return ["cron", args["action"], *_CRON[args["action"]](args)]


def _web_search(args: dict[str, Any]) -> list[str]:
  count = args.get("count")
  counted = [] if count is None else [f"--count={int(count)}"]
  return ["websearch", *counted, "--", args["query"]]


def _web_fetch(args: dict[str, Any]) -> list[str]:
  argv = ["webfetch"]
  if args.get("extractMode"):
    argv.append(f"--mode={args['extractMode']}")
  if args.get("maxChars") is not None:
    argv.append(f"--max-chars={int(args['maxChars'])}")
  return [*argv, "--", args["url"]]


async def _run(call: Call, argv: list[str]) -> str:
  line = shlex.join([f"{services.BIN}/{argv[0]}", *argv[1:]]).replace("\0", "")
  raw = line.encode(errors="replace")  # half of a surrogate pair is no argument
  if len(raw) > COMMAND_BYTES:
    raise BadCall(f"too long: {len(raw)} bytes, of at most {COMMAND_BYTES}")
  result = await call.sandbox.exec(raw.decode(), min(SECONDS, call.seconds))
  said = result.output.rstrip("\n")
  if result.exit_code == _NOT_FOUND:
    raise BadCall("this task has no such service")
  if result.timed_out:
    raise BadCall("the service did not answer in time")
  if result.exit_code != 0:
    raise BadCall(said or f"the service ended with code {result.exit_code}")
  return said or "(nothing)"


async def _attached(call: Call, args: dict[str, Any]) -> str:
  """Where the attachment stands that the call holds itself."""
  try:
    data = base64.b64decode(args["buffer"].rpartition("base64,")[2], validate=True)
  except (binascii.Error, ValueError):
    raise BadCall("buffer is not base64") from None
  name = PurePosixPath(args.get("filename") or "").name or "attachment"
  path = f"{ATTACHED}/{name}"
  await call.sandbox.write(path, data)
  return path


def _job(args: dict[str, Any]) -> str:
  if not args.get("jobId"):
    raise BadCall(f"cron {args['action']} needs jobId (string)")
  return args["jobId"]


def _object(args: dict[str, Any], key: str) -> str:
  if not args.get(key):
    raise BadCall(f"cron {args['action']} needs {key} (object)")
  return json_text.dump(args[key])


def _wake(args: dict[str, Any]) -> list[str]:
  if not args.get("text"):
    raise BadCall("cron wake needs text (string)")
  return [f"--mode={args.get('mode') or 'now'}", "--", args["text"]]


_CRON: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "status": lambda args: [],
    "list": lambda args: ["--all"] if args.get("includeDisabled") else [],
    "add": lambda args: [f"--job={_object(args, 'job')}"],
    "update": lambda args: [f"--patch={_object(args, 'patch')}", "--", _job(args)],
    "remove": lambda args: ["--", _job(args)],
    "run": lambda args: [f"--mode={args.get('runMode') or 'force'}", "--", _job(args)],
    "runs": lambda args: ["--", _job(args)],
    "wake": _wake,
}
_COMMANDS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "message": _message,
    "cron": _cron,
    "web_search": _web_search,
    "web_fetch": _web_fetch,
}
