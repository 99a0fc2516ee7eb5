"""From messages to token ids and back, without jax.

`template` runs a model's chat template within bounds; `tokenizer` is a vocabulary
with its template, read from Hugging Face files or a sentencepiece model;
`conversation` lays messages out as ids, incrementally, and says which of them are
trained; `response` reads tool calls from what a model said; `vocabulary` trains
a small tokenizer on a corpus.
"""
