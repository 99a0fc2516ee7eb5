"""Statistics against closed forms and published values."""

import itertools
import math

import numpy as np
import pytest

from eval import stats


def _single(values):
  return {f"t{i}": [v] for i, v in enumerate(values)}


def test_every_task_weighs_the_same():
  scores = {"a": [1.0, 1.0, 1.0], "b": [0.0], "c": []}
  assert stats.mean(scores) == 0.5
  assert stats.mean({"c": []}) is None


def test_bootstrap_matches_the_normal_form():
  # the mean of n resampled task means has variance var / n
  values = np.random.default_rng(1).random(400)
  half = 1.959964 * values.std() / math.sqrt(len(values))
  interval = stats.bootstrap_interval(_single(values), resamples=20_000)
  assert interval.low == pytest.approx(values.mean() - half, abs=0.001)
  assert interval.high == pytest.approx(values.mean() + half, abs=0.001)


def test_bootstrap_is_exact_for_two_tasks():
  # means 0, 1/2 and 1 with probability 1/4, 1/2, 1/4
  assert stats.bootstrap_interval(_single([0.0, 1.0])) == stats.Interval(0.0, 1.0)


def test_repeating_attempts_adds_no_certainty():
  values = [0.0, 0.25, 1.0, 1.0, 0.5, 0.0]
  once = stats.bootstrap_interval(_single(values))
  often = stats.bootstrap_interval({k: v * 50 for k, v in _single(values).items()})
  assert often.low == pytest.approx(once.low)
  assert often.high == pytest.approx(once.high)


def test_one_task_has_no_interval():
  assert stats.bootstrap_interval({"a": [0.0, 1.0, 1.0]}) is None


def test_bootstrap_repeats_and_is_bounded_in_memory(monkeypatch):
  scores = _single([0.1, 0.5, 0.9, 0.3])
  assert stats.bootstrap_interval(scores) == stats.bootstrap_interval(scores)
  monkeypatch.setattr(stats, "_CHUNK", 40)
  chunked = stats.bootstrap_interval(scores)
  assert 0.1 <= chunked.low < chunked.high <= 0.9


@pytest.mark.parametrize("successes,total,low,high", [
    # Newcombe 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0, 0.1611),
    (1, 29, 0.0061, 0.1718),
])
def test_wilson_against_published_values(successes, total, low, high):
  interval = stats.wilson_interval(successes, total)
  assert interval.low == pytest.approx(low, abs=5e-5)
  assert interval.high == pytest.approx(high, abs=5e-5)


def test_wilson_ends():
  assert stats.wilson_interval(0, 0) is None
  assert stats.wilson_interval(7, 7).high == 1.0
  assert stats.wilson_interval(0, 7).low == 0.0
  with pytest.raises(ValueError):
    stats.wilson_interval(8, 7)


def test_wilson_solves_its_quadratic():
  # a bound p satisfies |p - rate| = z sqrt(p (1 - p) / n)
  interval = stats.wilson_interval(13.5, 40)
  for p in (interval.low, interval.high):
    assert abs(p - 13.5 / 40) == pytest.approx(1.959964 * math.sqrt(p * (1 - p) / 40))


def test_pairing_removes_the_difficulty_of_tasks():
  rng = np.random.default_rng(3)
  hard = rng.random(50) * 0.9
  before, after = _single(hard), _single(hard + 0.05)
  difference = stats.paired_difference(before, after)
  assert difference.mean == pytest.approx(0.05)
  assert difference.interval.low == pytest.approx(0.05)
  assert (difference.better, difference.worse, difference.same) == (50, 0, 0)
  alone = stats.bootstrap_interval(before)
  assert alone.high - alone.low > 0.1


def test_pairing_compares_common_tasks_only():
  difference = stats.paired_difference(
      {"a": [0.0], "b": [1.0], "c": [1.0], "lost": []},
      {"a": [1.0], "b": [0.5, 0.5], "c": [1.0], "new": [1.0]},
  )
  assert difference.mean == pytest.approx(1 / 6)
  assert (difference.tasks, difference.left_out) == (3, 1)
  assert (difference.better, difference.worse, difference.same) == (1, 1, 1)


def test_no_common_task():
  difference = stats.paired_difference({"a": [1.0]}, {"b": [1.0]})
  assert (difference.mean, difference.interval, difference.tasks) == (None, None, 0)


@pytest.mark.parametrize("n,c,k", [(5, 2, 1), (5, 2, 3), (6, 0, 2), (4, 4, 4), (5, 4, 2)])
def test_pass_at_k_equals_enumeration(n, c, k):
  draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
  expected = sum(any(d) for d in draws) / len(draws)
  assert stats.pass_at_k(n, c, k) == pytest.approx(expected)


def test_pass_at_k_needs_k_attempts():
  with pytest.raises(ValueError):
    stats.pass_at_k(3, 1, 4)
