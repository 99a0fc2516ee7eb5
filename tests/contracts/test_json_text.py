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
