"""Whatever a file is called and a model says can be written, and read again."""

import json

import pytest

from clawgym_jax.contracts import json_text

STRANGE = {"a\udcffb": ["\ud800", "é", "😀", "\x00\n"], "deep": {"n": 1.5}}


def test_what_is_written_is_read_again():
  text = json_text.dump(STRANGE)
  assert "\n" not in text and json_text.parse(text.encode()) == STRANGE
  assert json_text.parse(json_text.dump(STRANGE, indent=1)) == STRANGE
  assert json_text.dump({"é": "😀"}) == '{"é":"😀"}'  # readable where it can be


def test_nan_is_refused():
  with pytest.raises(ValueError):
    json_text.dump({"a": float("nan")})


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "", "{", "nul", "\xff"])
def test_no_text_does_more_than_fail(text):
  with pytest.raises(ValueError):
    json_text.parse(text)


def test_numbers_beyond_pythons_limit_are_refused():
  with pytest.raises(ValueError):
    json_text.parse("1" * 10_000)
  assert json.loads("1" * 100)


def test_what_can_be_recorded():
  deep = lambda depth: json_text.parse("[" * depth + "]" * depth)
  fine = ["x", None, {}, {"a": [1, {"b": 2.5}]}, STRANGE, [[]] * 10_000, deep(100)]
  assert all(json_text.recordable(value) for value in fine)
  bad = [{"a": [json_text.parse("NaN")]}, [1e999], deep(101), {"a": deep(900)}]
  assert not any(json_text.recordable(value) for value in bad)
