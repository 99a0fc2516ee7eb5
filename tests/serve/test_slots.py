"""Who gets which row, what is copied, and who waits for whom."""

from concurrent.futures import Future

from clawgym_jax.serve.requests import Request, Sampling
from clawgym_jax.serve.slots import Copy, Slots

SHAPES = ((1, 8), (1, 32), (2, 8), (2, 32))


def request(ids, max_tokens=4):
  return Request.check(list(ids), Sampling(max_tokens=max_tokens), 128, 1000)


def run(slots, ids):
  """A request from arrival to its end; the slot it had and the copy made."""
  slot, copy = slots.place(request(ids))
  while call := slots.next_prefill(SHAPES):
    slots.prefilled(call)
  slots.extend(slot, [7, 8])
  slots.release(slot)
  return slot, copy


def test_a_conversation_goes_on_in_its_slot():
  slots = Slots(3, 128)
  first, copy = run(slots, range(100, 140))
  assert copy is None
  other, _ = run(slots, range(300, 340))
  assert other != first
  longer = [*range(100, 140), 7, 8, 1, 2, 3]
  slot, copy = slots.place(request(longer))
  assert (slot, copy) == (first, None)
  assert slots.filled[slot] == 41  # 8 was sampled but never read


def test_a_shared_prefix_is_copied_and_its_slot_spared():
  slots = Slots(3, 128)
  first, _ = run(slots, range(100, 140))
  slot, copy = slots.place(request([*range(100, 130), 1, 2, 3]))
  assert slot != first
  assert copy == Copy(first, slot, 30)


def test_the_least_recently_used_slot_is_overwritten():
  slots = Slots(2, 128)
  first, _ = run(slots, range(100, 140))
  second, _ = run(slots, range(200, 240))
  run(slots, [*range(100, 140), 7, 8])
  slot, copy = slots.place(request(range(300, 340)))
  assert (slot, copy) == (second, None)
  assert slots.place(request(range(400, 440)))[0] == first
  assert slots.place(request(range(500, 540))) is None


def test_samples_of_one_prompt_wait_for_the_first_and_copy():
  slots = Slots(4, 128)
  ids = list(range(100, 160))
  placed = [slots.place(request(ids)) for _ in range(3)]
  assert all(copy is None for _, copy in placed)
  for width in (32, 27):
    slots.share()
    call = slots.next_prefill(SHAPES)
    assert call.counts == (width,)  # the others wait
    slots.prefilled(call)
  assert {c.length for c in slots.share()} == {59}
  assert len(slots.decodable()) == 3 and not slots.pending()


def test_different_prompts_share_a_prefill_call():
  slots = Slots(4, 128)
  for start, length in ((100, 21), (200, 31), (300, 9)):
    slots.place(request(range(start, start + length)))
  call = slots.next_prefill(SHAPES)
  assert call.tokens.shape == (2, 32) and call.counts == (20, 30)
  assert (call.positions[0, 20:] == 127).all()
  slots.prefilled(call)
  call = slots.next_prefill(SHAPES)
  assert call.tokens.shape == (1, 8) and call.counts == (8,)
  assert call.positions[0].tolist() == list(range(8))


def test_padding_rows_are_rows_of_their_own():
  slots = Slots(4, 128)
  for start in (100, 200, 300):
    slots.place(request(range(start, start + 12)))
  call = slots.next_prefill([(4, 32)])
  assert sorted(call.slots.tolist()) == [0, 1, 2, 3] and len(call.counts) == 3
  assert (call.positions[3] == 127).all()


def test_after_new_weights_the_running_are_filled_again():
  slots = Slots(2, 128)
  slot, _ = slots.place(request(range(100, 112)))
  slots.prefilled(slots.next_prefill(SHAPES))
  slots.extend(slot, [5, 6, 7])
  slots.invalidate()
  assert slots.pending() == [slot] and not slots.decodable()
  filled = []
  while call := slots.next_prefill(SHAPES):
    filled += call.tokens[0, : call.counts[0]].tolist()
    slots.prefilled(call)
  assert filled == [*range(100, 112), 5, 6]
  assert slots.decodable() == [slot]


def test_requests_are_compared_by_identity():
  assert request([1, 2]) != request([1, 2])
  assert isinstance(request([1]).future, Future)
