"""What a call costs follows from what is new in it, not from the conversation."""

from clawgym_jax.chat.tokenizer import Tokenizer

U = {"role": "user", "content": "hello"}


def test_each_response_is_decoded_a_bounded_number_of_times(run, engine, monkeypatch):
  decoded = []
  decode = Tokenizer.decode

  def counted(self, ids):
    decoded.append(len(ids))
    return decode(self, ids)

  monkeypatch.setattr(Tokenizer, "decode", counted)

  async def scenario(harness):
    messages, work = [U], []
    for _ in range(9):
      engine.script = ["the quick brown fox " * 9]
      decoded.clear()
      messages += [await harness.say(messages), U]
      work.append(sum(decoded))
    return work

  work = run(scenario)
  assert work[0] > 20 and set(work[1:]) == {work[1]}
