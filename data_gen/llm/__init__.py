"""Tasks that a language model writes, admitted by the same audit as any other.

Everything comes from an OpenAI-compatible endpoint: the idea, the files, the
checks, the reference solution (by an agent that works in a real sandbox) and the
rubric. What a model says is never trusted: replies are parsed strictly, its
programs run in sandboxes only, and a task appears under its name once `data_gen.audit`
finds it sound. `run` fills a folder; see there for what is kept in it.
"""

GENERATOR = "llm-1"
