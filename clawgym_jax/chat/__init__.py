"""From messages to token ids and back, without jax.

`tokenizer` wraps a vocabulary and names its chat format; `conversation` lays
messages out as ids, incrementally; `response` reads thought, text and tool
calls from what a model said, in the formats of `calls`; `vocabulary` trains a small tokenizer on a corpus.
"""
