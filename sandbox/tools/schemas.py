"""The tools' schemas: OpenClaw's contract, in two lengths.

`FULL` describes the tools as OpenClaw does; `COMPACT` offers them with few
words and only the arguments a small model needs: the system prompt is paid for
in every attempt. Arguments that the compact form leaves out are still
understood. The bytes of the compact read, write, edit and exec are what models
were trained on.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}


def _tool(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> Schema:
  return {
      "type": "function",
      "function": {
          "name": name,
          "description": description,
          "parameters": {
              "type": "object",
              "properties": properties,
              "required": required,
          },
      },
  }


def _said(kind: Schema, description: str, **bounds: Any) -> Schema:
  return {**kind, "description": description, **bounds}


def _choice(*values: str, description: str = "") -> Schema:
  choice: Schema = {"type": "string", "enum": list(values)}
  return {**choice, "description": description} if description else choice


_PATH = _said(_TEXT, "File, relative to the workspace.")
_EDITS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"oldText": _TEXT, "newText": _TEXT},
        "required": ["oldText", "newText"],
    },
}
_ACTIONS = (
    "list", "poll", "log", "write", "send-keys", "submit", "paste", "kill", "clear",
    "remove",
)  # fmt: skip
_CRON = ("status", "list", "add", "update", "remove", "run", "runs", "wake")
_IGNORED = "Has no effect in a sandbox."
_JOB = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "schedule": _said(
            {"type": "object"},
            'One of {"kind":"at","at":ISO}, {"kind":"every","everyMs":N,"anchorMs":N},'
            ' {"kind":"cron","expr":"0 9 * * *","tz":"Europe/Berlin"}.',
        ),
        "payload": _said(
            {"type": "object"},
            'One of {"kind":"systemEvent","text":T} (for the session main alone),'
            ' {"kind":"agentTurn","message":T,"model":M,"timeoutSeconds":N}.',
        ),
        "sessionTarget": _said(_TEXT, "main, isolated, current or session:ID."),
        "delivery": _said(
            {"type": "object"},
            '{"mode":"none|announce|webhook","channel":C,"to":T,"bestEffort":B}.',
        ),
        "enabled": _FLAG,
    },
}

FULL: dict[str, Schema] = {
    tool["function"]["name"]: tool
    for tool in (
        _tool(
            "read",
            "Read a text file. Long files are cut; use offset and limit to page.",
            {
                "path": _PATH,
                "offset": _said(_WHOLE, "First line to read, counted from 1."),
                "limit": _said(_WHOLE, "Lines to read at most."),
            },
            ["path"],
        ),
        _tool(
            "write",
            "Write a file, replacing what is there; parent folders are created.",
            {"path": _PATH, "content": _said(_TEXT, "The whole new content.")},
            ["path", "content"],
        ),
        _tool(
            "edit",
            "Replace exact pieces of text in one file. Each oldText must occur"
            " exactly once in the original, and they must not overlap.",
            {"path": _PATH, "edits": _EDITS},
            ["path", "edits"],
        ),
        _tool(
            "apply_patch",
            "Change several files by one patch: *** Begin Patch, then for each file"
            " *** Add File: PATH with + lines, *** Delete File: PATH, or *** Update"
            " File: PATH (renamed by *** Move to: PATH) with hunks of @@, then lines"
            " that start with a space, - or +, and at the end *** End Patch.",
            {"input": _said(_TEXT, "The whole patch.")},
            ["input"],
        ),
        _tool(
            "exec",
            "Run a shell command in the workspace; stdout and stderr are merged.",
            {
                "command": _said(_TEXT, "The command line."),
                "workdir": _said(_TEXT, "Folder to run it in; default the workspace."),
                "env": _said(
                    {"type": "object", "additionalProperties": _TEXT},
                    "Variables to set; not PATH, LD_* or DYLD_*.",
                ),
                "yieldMs": _said(
                    _NUMBER,
                    "Milliseconds to wait before it goes on in the background"
                    " (default 10000), where the tool process is offered.",
                    minimum=0,
                ),
                "background": _said(_FLAG, "Leave it in the background at once."),
                "timeout": _said(_NUMBER, "Seconds, default 30."),
                "pty": _said(_FLAG, "Run it on a terminal."),
                "elevated": _said(_FLAG, _IGNORED),
                "host": _choice(
                    "auto", "sandbox", "gateway", "node", description=_IGNORED
                ),
                "security": _choice("deny", "allowlist", "full", description=_IGNORED),
                "ask": _choice("off", "on-miss", "always", description=_IGNORED),
                "node": _said(_TEXT, _IGNORED),
            },
            ["command"],
        ),
        _tool(
            "process",
            "Look after commands that exec left in the background: list them, poll"
            " new output, page the log, write or send keys, kill, clear, remove.",
            {
                "action": _choice(*_ACTIONS),
                "sessionId": _said(_TEXT, "The session, for all but list."),
                "data": _said(_TEXT, "What write or submit sends."),
                "eof": _said(_FLAG, "Close its input after write."),
                "keys": _said(_TEXTS, "Keys to send: Enter, Tab, Up, C-c, M-x, a."),
                "hex": _said(_TEXTS, "Bytes to send, in hexadecimal."),
                "literal": _said(_TEXT, "Text to send as it is."),
                "text": _said(_TEXT, "What paste sends."),
                "bracketed": _said(_FLAG, "Mark the paste as one; default on a pty."),
                "offset": _said(_WHOLE, "Lines of the log to skip.", minimum=0),
                "limit": _said(_WHOLE, "Lines of the log at most.", minimum=0),
                "timeout": _said(
                    _NUMBER, "Milliseconds that poll waits for its end.", minimum=0
                ),
            },
            ["action"],
        ),
        _tool(
            "memory_search",
            "Search the notes MEMORY.md and memory/*.md; gives snippets with lines.",
            {
                "query": _said(_TEXT, "Words to look for."),
                "maxResults": _said(_WHOLE, "Default 6.", minimum=1, maximum=50),
                "minScore": _said(_NUMBER, "From 0 to 1.", minimum=0, maximum=1),
            },
            ["query"],
        ),
        _tool(
            "memory_get",
            "Read lines of a note: MEMORY.md or memory/*.md.",
            {
                "path": _said(_TEXT, "The note."),
                "from": _said(_WHOLE, "First line, counted from 1.", minimum=1),
                "lines": _said(_WHOLE, "How many.", minimum=1),
            },
            ["path"],
        ),
        _tool(
            "web_search",
            "Search the web; gives titles, URLs and snippets.",
            {
                "query": _said(_TEXT, "Words to look for."),
                "count": _said(_WHOLE, "Results, default 5.", minimum=1, maximum=10),
                "region": _said(_TEXT, _IGNORED),
                "safeSearch": _said(_TEXT, _IGNORED),
            },
            ["query"],
        ),
        _tool(
            "web_fetch",
            "Read a web page as Markdown or text.",
            {
                "url": _said(_TEXT, "Its address."),
                "extractMode": _choice("markdown", "text"),
                "maxChars": _said(_WHOLE, "Characters at most.", minimum=100),
            },
            ["url"],
        ),
        _tool(
            "message",
            "Send a message through a channel, to one target or to several.",
            {
                "action": _choice("send", "broadcast"),
                "channel": _said(_TEXT, "email (default), slack, telegram and such."),
                "target": _said(_TEXT, "Recipient of send: an address or a name."),
                "targets": _said(_TEXTS, "Recipients of broadcast."),
                "subject": _said(_TEXT, "Of an email."),
                "message": _said(_TEXT, "The text."),
                "media": _said(_TEXT, "Path of a file to attach."),
                "buffer": _said(_TEXT, "A file to attach, in base64."),
                "filename": _said(_TEXT, "Its name."),
                "replyTo": _said(_TEXT, "Id of the message that this answers."),
                "threadId": _said(_TEXT, "Id of the thread."),
                "silent": _said(_FLAG, "Without a notification."),
                "dryRun": _said(_FLAG, "Check it, but send nothing."),
            },
            ["action"],
        ),
        _tool(
            "cron",
            "Keep scheduled jobs: list, add, update, remove and run them, or wake the"
            " agent.",
            {
                "action": _choice(*_CRON),
                "job": _said(_JOB, "The job to add."),
                "jobId": _said(_TEXT, "For update, remove, run and runs."),
                "patch": _said({"type": "object"}, "What of the job to change."),
                "includeDisabled": _said(_FLAG, "List those that are off, too."),
                "text": _said(_TEXT, "What wake says."),
                "mode": _choice("now", "next-heartbeat", description="Of wake."),
                "runMode": _choice("due", "force", description="Of run."),
                "contextMessages": _said(_WHOLE, _IGNORED, minimum=0, maximum=10),
            },
            ["action"],
        ),
    )
}

COMPACT: dict[str, Schema] = {
    tool["function"]["name"]: tool
    for tool in (
        _tool("read", "Read a file", {"path": _TEXT}, ["path"]),
        _tool(
            "write",
            "Write a file",
            {"path": _TEXT, "content": _TEXT},
            ["path", "content"],
        ),
        _tool(
            "edit", "Replace text", {"path": _TEXT, "edits": _EDITS}, ["path", "edits"]
        ),
        _tool("apply_patch", "Change files by a patch", {"input": _TEXT}, ["input"]),
        _tool("exec", "Run a shell command", {"command": _TEXT}, ["command"]),
        _tool(
            "process",
            "Look after commands that exec left running (background: true)",
            {
                "action": _choice(*_ACTIONS),
                "sessionId": _TEXT,
                "data": _TEXT,
                "keys": _TEXTS,
                "timeout": _NUMBER,
            },
            ["action"],
        ),
        _tool("memory_search", "Search the notes", {"query": _TEXT}, ["query"]),
        _tool(
            "memory_get",
            "Read lines of a note",
            {"path": _TEXT, "from": _WHOLE, "lines": _WHOLE},
            ["path"],
        ),
        _tool("web_search", "Search the web", {"query": _TEXT}, ["query"]),
        _tool("web_fetch", "Read a web page", {"url": _TEXT}, ["url"]),
        _tool(
            "message",
            "Send a message",
            {
                "action": _choice("send", "broadcast"),
                "channel": _TEXT,
                "target": _TEXT,
                "targets": _TEXTS,
                "subject": _TEXT,
                "message": _TEXT,
                "media": _TEXT,
            },
            ["action"],
        ),
        _tool(
            "cron",
            "Keep scheduled jobs",
            {
                "action": _choice(*_CRON),
                "job": _JOB,
                "jobId": _TEXT,
                "patch": {"type": "object"},
            },
            ["action"],
        ),
    )
}
