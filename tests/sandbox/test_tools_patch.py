"""apply_patch: what it does to files, and that a bad patch changes nothing."""

from __future__ import annotations

import json

import pytest

from sandbox.tools.patch import parse, updated
from sandbox.tools.results import BadCall
from tests.sandbox.test_tools import results

OFFERED = ("apply_patch", "read", "exec")


def patch(*lines):
  return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def changed(text, *lines):
  (change,) = parse(patch("*** Update File: a", *lines))
  return updated(change, text)


def test_several_files_at_once():
  files = {"a.txt": b"one\ntwo\nthree\n", "old.py": b"x = 1\n", "gone/b": b"b\n"}
  said, listing, *contents = results(
      [
          ("apply_patch", {"input": patch(
              "*** Add File: new/é.md", "+# Neu", "+", "*** Update File: a.txt",
              "@@ one", "-two", "+2", " three", "*** Update File: old.py",
              "*** Move to: lib/new.py", "-x = 1", "+x = 2",
              "*** Delete File: gone/b")}),
          ("exec", {"command": "find . -type f | sort"}),
          *(("exec", {"command": f"cat {path}"})
            for path in ("a.txt", "lib/new.py", "new/é.md")),
      ],
      files,
      offered=OFFERED,
  )  # fmt: skip
  assert said == (
      "Applied the patch:\nA new/é.md\nM a.txt\nM old.py -> lib/new.py\nD gone/b"
  )
  assert listing == "./a.txt\n./lib/new.py\n./new/é.md"
  assert contents == ["one\n2\nthree", "x = 2", "# Neu"]


def test_a_file_is_one_by_whatever_name():
  said, listing, *contents = results(
      [
          ("exec", {"command": "chmod +x run.sh go"}),
          ("apply_patch", {"input": patch(
              "*** Update File: a", "*** Move to: ./a", "-one", "+two",
              "*** Update File: /workspace/a", "-two", "+three",
              "*** Delete File: b", "*** Add File: c/../b", "+new",
              "*** Update File: run.sh", "*** Move to: bin/run.sh", "-echo", "+pwd",
              "*** Update File: go", "*** Move to: -r", "-echo", "+pwd")}),
          ("exec", {"command": "ls; test -x bin/run.sh -a -x ./-r && echo x"}),
          ("exec", {"command": "cat a b"}),
      ],
      {"a": b"one\n", "b": b"old\n", "run.sh": b"echo\n", "go": b"echo\n"},
      offered=OFFERED,
  )[1:]  # fmt: skip
  assert said.startswith("Applied the patch:\nM a -> ./a\nM /workspace/a\nD b\nA c/../b")
  assert listing == "-r\na\nb\nbin\nx"
  assert contents == ["three\nnew"]


def test_it_is_all_or_nothing():
  bad = patch("*** Add File: new", "+x", "*** Update File: a", "-nowhere", "+y")
  said, listing, content = results(
      [
          ("apply_patch", {"input": bad}),
          ("exec", {"command": "ls"}),
          ("read", {"path": "a"}),
      ],
      {"a": b"one\n"},
      offered=OFFERED,
  )
  error = json.loads(said)
  assert error == {
      "status": "error",
      "tool": "apply_patch",
      "error": "not in a:\nnowhere",
  }
  assert (listing, content) == ("a", "one\n")


def test_hunks():
  text = "a\n\n  b\nc\nb\nd"
  assert changed(text, "-b", "+B") == "a\n\n  b\nc\nB\nd\n"  # as it stands first
  assert changed("a\n  b\nc\n", "-b", "+B") == "a\nB\nc\n"
  assert changed("a  \nb\n", " a", "-b", "+B") == "a  \nB\n"  # its own blanks stay
  assert changed(text, "@@ c", "-b", "+B") == "a\n\n  b\nc\nB\nd\n"
  assert changed(text, " d", "+e", "*** End of File") == text + "\ne\n"
  assert changed(text, "+e") == text + "\ne\n"
  assert changed(text, "@@ a", "+e") == "a\ne\n\n  b\nc\nb\nd\n"
  assert changed("x\n" * 3, "@@", " x", "-x", "@@", "-x", "+y") == "x\ny\n"
  assert changed("a\r\nb\r\n", "-a", "+A") == "A\r\nb\r\n"
  assert changed("", "+a") == "a\n" and changed("a\n", "-a") == ""
  assert changed("class A:\n  f\nclass B:\n  f\n", "@@ class B:", "-  f", "+  g") == (
      "class A:\n  f\nclass B:\n  g\n"
  )
  assert changed("a\nb\n", " a", "-b", "+c", "", "") == "a\nc\n"


@pytest.mark.parametrize(
    "lines, said",
    [
        (["-z", "+y"], "not in a:\nz"),
        (["@@ z", "-b"], "not in a:\nz"),
        (["-a", "@@", "-a"], "not in a:\na"),
        (["-b", "@@", "-a"], "not below line 1 of a:\na"),
        (["-a", "*** End of File"], "not at the end of a:\na"),
    ],
)
def test_what_is_not_there(lines, said):
  with pytest.raises(BadCall) as error:
    changed("a\nb\nc\n", *lines)
  assert str(error.value) == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*** Begin Patch",
        "*** Begin Patch\n*** End Patch",
        "*** Add File: a\n+x",
        patch("+x"),
        patch("*** Add File: a", "x"),
        patch("*** Add File: "),
        patch("*** Delete File: a", "-x"),
        patch("*** Update File: a"),
        patch("*** Update File: a", "x"),
        patch("*** Update File: a", "*** End of File"),
        patch("*** Update File: a", "-x", "*** End of File", "+y"),
        patch("*** Update File: a", "-x", "*** Move to: b"),
        patch("*** Rename File: a"),
    ],
)
def test_no_patch(text):
  with pytest.raises(BadCall):
    parse(text)


def test_files_that_can_not_be_patched():
  add_then = ["*** Add File: n", "+1", "*** Update File: n", "-1", "+2"]
  cases = [
      (patch("*** Delete File: nowhere"), "nowhere"),
      (patch("*** Delete File: d"), "d: not a regular file"),
      (patch("*** Update File: big", "-x", "+y"), "larger than 1 MiB"),
      (patch("*** Delete File: a", "*** Update File: a", "-x", "+y"), "was deleted"),
      (patch("*** Add File: /usr/x", "+y"), "/usr/x: "),
      (patch(*add_then), "M n"),
      (patch("*** Update File: bytes", "-x", "+y"), "M bytes"),
  ]  # fmt: skip
  files = {"a": b"x\n", "d/f": b"", "big": b"x\n" * (1 << 20), "bytes": b"\xff\nx\n"}
  calls = [("apply_patch", {"input": text}) for text, _ in cases]
  look = ("exec", {"command": "cat n; od -An -tx1 bytes; stat -c %s big"})
  *said, shown = results([*calls, look], files, offered=OFFERED)
  for (_, part), text in zip(cases, said, strict=True):
    assert part.casefold() in text.casefold(), text
  assert shown == "2\n ff 0a 79 0a\n2097152"
