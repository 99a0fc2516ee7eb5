"""How a persona asks: the same request, terse, chatty, formal or as a list.

The request's words carry every literal; the voice adds context that changes
nothing, and keeps the instruction between 25 and 60 words.
"""

from __future__ import annotations

from data_gen.world import World

STYLES = ("terse", "chatty", "formal", "bulleted")
MIN_WORDS, MAX_WORDS = 25, 60

_OPENERS = {
    "terse": (
        "{project} again.",
        "Short one.",
        "Before lunch please.",
        "From {city}, on my phone.",
        "For {colleague}.",
        "Next item.",
    ),
    "chatty": (
        "Hi! Long day here in {city}, and {colleague} just called about {project}.",
        "Hey, {first} here, still stuck on the train to {city}.",
        "Morning! The {company} crew is waiting and my coffee is cold already.",
        "So, {colleague} asked me about this twice and I keep forgetting.",
        "Hello again, it's {first}, your favourite {role}.",
        "Ugh, {project} is eating my week, so I need a hand.",
    ),
    "formal": (
        "Good day. This is {name}, {role} at {company}.",
        "I am preparing the {project} file for {colleague}.",
        "As agreed with {colleague}, the following is needed for {project}.",
        "On behalf of {company}, one request.",
        "We close the {project} books in {city} this week.",
        "For the records of {company}, one small task.",
    ),
    "bulleted": (
        "For {project}:",
        "{first} at {company}, one task:",
        "Asked by {colleague}:",
        "To do for the {city} office:",
        "Task from your {role}:",
        "Please handle this for {colleague}:",
    ),
}
_CLOSERS = {
    "terse": (
        "{colleague} is waiting for it.",
        "That's all, I'm off to {city}.",
        "Needed for {project} today.",
        "No need to explain anything.",
        "I'll look at it tonight.",
        "Then we're done for today.",
    ),
    "chatty": (
        "Thanks a lot, {colleague} owes us both a cake for this!",
        "No rush, I'm in a meeting until four anyway.",
        "You're a star, the whole {company} team says hi.",
        "I promised {colleague} it would be there after lunch.",
        "Then I can finally book my trip to {city}.",
        "Everything else about {project} can wait until Monday.",
    ),
    "formal": (
        "Thank you; {colleague} will review it this afternoon.",
        "Please leave everything else as it is.",
        "A short confirmation is enough.",
        "The {city} office expects it today.",
        "Kind regards, {name}.",
        "This concerns {project} only.",
    ),
    "bulleted": (
        "{colleague} needs it for {project} today, a short confirmation is enough.",
        "Leave the rest as it is, {colleague} still works there.",
        "Thanks, I'm back from {city} on Friday to look at it.",
        "It is the last open point for {project}, so thank you.",
        "Regards from {name}, {role} at {company}.",
        "When it's done just say so, {colleague} is waiting for it.",
    ),
}


def speak(world: World, style: str, request: str) -> str:
  """Wraps `request`: openers and closers until it is long enough, never too long."""
  facts = {
      "first": world.first,
      "name": world.name,
      "role": world.role,
      "company": world.company,
      "city": world.city,
      "project": world.project,
  }

  def draw(pool: dict[str, tuple[str, ...]]) -> list[str]:
    lines = [
        line.format(colleague=world.rng.choice(world.colleagues), **facts)
        for line in pool[style]
    ]
    world.rng.shuffle(lines)
    return lines

  openers, closers = draw(_OPENERS), draw(_CLOSERS)
  newline = "\n" if style == "bulleted" else " "
  before = [openers.pop()] if style != "terse" or world.coin() else []
  after = [closers.pop()] if style == "chatty" else []
  while _words([*before, request, *after]) < MIN_WORDS:
    if not after:
      after.append(closers.pop())
    elif not before:
      before.append(openers.pop())
    else:
      after.append(closers.pop())
  if _words([*before, request, *after]) > MAX_WORDS:
    after = []
  if _words([*before, request]) > MAX_WORDS:
    before = []
  return newline.join([*before, request, " ".join(after)]).strip()


def _words(parts: list[str]) -> int:
  return len(" ".join(parts).split())
