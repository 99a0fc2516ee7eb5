"""How a persona asks: the request whole, in the words around it that a style has.

`said` stands in the instruction as it is, line for line (a list puts a dash
before each line that is a sentence), so that every deliverable and literal
keeps its form. What is added tells of the world and asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data_gen.compose.personas import Persona
from data_gen.compose.setting import Setting

_CONTEXT_CHANCE = 0.5  # of talk that has nothing to do with the request
_INTENT_CHANCE = 0.6
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()

# style -> what may come before and after the request
_BEFORE = {
    "terse": (
        "",
        "{project}.",
        "Short one.",
        "From {city}, on my phone.",
        "Next item.",
        "For {colleague}.",
        "One thing.",
        "{company}, {weekday}.",
    ),
    "chatty": (
        "Hi! Long day here in {city}, and {colleague} just called about {project}.",
        "Hey, {first} here, on the train to {city} and finally with a free minute.",
        "Morning! Everybody at {company} is waiting and my coffee is cold already.",
        "So, {colleague} has asked me about this twice and I keep forgetting.",
        "Hello again, it's {first}, your favourite {occupation}.",
        "Ugh, {project} is eating my whole {weekday}, so I could use a hand.",
        "Happy {weekday}! I was talking to {colleague}, and one thing led to another.",
        "Okay, here is something that I have put off since {colleague} went on leave.",
        "Guess who promised {colleague} too much again. Right, me.",
        "It's {first}. {project} is nearly there, and this is what is left of it.",
    ),
    "bulleted": (
        "For {project}:",
        "{first} at {company}, what I need:",
        "Asked for by {colleague}:",
        "To do for the {city} office:",
        "List for {weekday}:",
        "What is open:",
        "Work for today, in this order:",
        "{colleague} and I agreed on this:",
    ),
    "formal": (
        "Good day. My name is {name}, and I write as {occupation} at {company}.",
        "I am preparing the {project} file for {colleague} and need the following.",
        "As agreed with {colleague}, this is what {project} requires.",
        "On behalf of {company} I would ask you for the following.",
        "With regard to {project}, I should be grateful for the work set out below.",
        "We close the {project} file in {city} this week, which leaves one matter.",
        "For the records of {company}, the following is to be done.",
        "Further to my conversation with {colleague} this {weekday}:",
    ),
    "forwarded mail": (
        "This came from {colleague}, it's all in there. Please do as it says.",
        "See below, {colleague} put it better than I could. It is yours now.",
        "Forwarding this one to you, please take care of it for {colleague}.",
        "Can you do what {colleague} asks for here?",
        "Mail from {colleague} about {project}; please handle it.",
        "Below is what we need for {project}, please do it.",
    ),
    "voice memo": (
        "Okay, is this recording? Good. So, {first} here.",
        "Um, hi, I'm walking to a meeting in {city}, so I say it as it comes.",
        "Right, so, note to you, it's {weekday}, and it's about {project}.",
        "Hello hello. {colleague} is next to me, so, quickly.",
        "So, yeah, I'm in the car, hands on the wheel, here it goes.",
        "Hi, it's me, {first}, from {company}, sorry for the noise.",
    ),
}
_AFTER = {
    "terse": ("", "", "Thanks.", "That's all.", "{colleague} is waiting.", "Cheers."),
    "chatty": (
        "Thanks a lot, {colleague} owes us both a cake for this!",
        "No rush, I'm in a meeting until four anyway.",
        "You're a star, everybody at {company} says hi.",
        "Then I can finally go home to {city}.",
        "Everything else about {project} can wait until Monday.",
        "And sorry for the long message, that is just how I write.",
        "Right, back to the phone, {colleague} is calling again.",
        "I'd do it myself, but you know me.",
    ),
    "bulleted": (
        "",
        "Thanks, {first}",
        "{colleague} knows that you are on it.",
        "That is the whole list.",
        "Regards from {city}",
    ),
    "formal": (
        "Thank you for your help.\n{name}, {occupation}, {company}",
        "Kind regards\n{name}",
        "{colleague} will look at it this week.\n\nYours sincerely\n{name}\n{company}",
        "With thanks,\n{name}",
        "I remain at your disposal.\n{name}, {city}",
    ),
    "forwarded mail": (
        "Thanks\n{colleague}",
        "Best\n{colleague}\n{company}",
        "That would help a lot.\n\n{colleague}",
        "Greetings from {city}\n{colleague}",
        "Talk soon,\n{colleague}",
    ),
    "voice memo": (
        "Okay, that's it. Bye.",
        "And, um, yeah, that was all of it. Thanks.",
        "I think that's everything. Oh, my stop. Bye!",
        "Good. How do I stop this thing?",
        "Right, over and out.",
    ),
}
_CONTEXT = (
    "By the way, {talk}.",
    "Here {talk}, as if the week were not long enough.",
    "You should know that I am somebody who {habit}.",
    "I still use {tool} for most things, old habit.",
    "{other} is back from {city}, in good spirits.",
    "For what it's worth, your {occupation} here {context}.",
    "{other} is minding the phone while I write this.",
    "{project} has its birthday this {weekday}, two years already.",
)
# How the intent is told; a mail is a colleague's, and its intent theirs.
_INTENTS = {
    "terse": ("Needed {intent}.", "It's {intent}."),
    "chatty": (
        "I need this {intent}.",
        "It is all {intent}, really.",
        "Don't ask, but it's {intent}.",
        "You see, it's {intent}.",
    ),
    "bulleted": ("Why: {intent}.", "Background: needed {intent}."),
    "formal": ("It is needed {intent}.", "The work is needed {intent}."),
    "forwarded mail": ("We need it {intent}.", "It's {intent}."),
    "voice memo": ("It's, um, {intent}.", "So, the reason, it's {intent}."),
}
_LEADS = (
    "What I need, word for word:",
    "Now, here is what I need.",
    "So this is the thing:",
    "Let me read it out:",
)


@dataclass(frozen=True)
class _Speech:
  """What a style puts together."""

  before: str
  context: str
  intent: str
  said: str
  after: str
  lead: str
  head: str


def speak(setting: Setting, persona: Persona, said: str, turn: int = 0) -> str:
  """The instruction of a user turn: `said` in the style of `persona`."""
  draw = setting.beside(f"voice {turn}")
  colleague, other = draw.rng.sample(setting.colleagues, 2)
  facts = {
      "first": setting.first,
      "name": persona.name,
      "occupation": persona.occupation,
      "company": persona.company,
      "city": persona.city,
      "project": setting.project,
      "colleague": colleague,
      "other": other,
      "weekday": _WEEKDAYS[setting.today.weekday()],
      "talk": draw.word("small_talk"),
      "habit": draw.rng.choice(persona.habits),
      "tool": draw.rng.choice(persona.tools),
      "context": persona.context,
      "intent": persona.intent,
  }

  def line(options: tuple[str, ...]) -> str:
    return draw.rng.choice(options).format(**facts)

  speech = _Speech(
      before=line(_BEFORE[persona.style]),
      context=line(_CONTEXT) if draw.coin(_CONTEXT_CHANCE) else "",
      intent=line(_INTENTS[persona.style]) if draw.coin(_INTENT_CHANCE) else "",
      said=said,
      after=line(_AFTER[persona.style]),
      lead=line(_LEADS),
      head=_mail_head(setting, colleague),
  )
  return _FORMS[persona.style](speech).strip()


def _paragraphs(*parts: str) -> str:
  return "\n\n".join(part for part in parts if part)


def _terse(speech: _Speech) -> str:
  after = f"{speech.intent} {speech.after}".strip()
  return "\n".join(p for p in (speech.before, speech.said, after) if p)


def _chatty(speech: _Speech) -> str:
  told = (speech.before, speech.context, speech.intent)
  before = " ".join(part for part in told if part)
  return _paragraphs(before, speech.said, speech.after)


def _formal(speech: _Speech) -> str:
  why = f"{speech.intent} {speech.context}".strip()
  return _paragraphs(speech.before, speech.said, why, speech.after)


def _bulleted(speech: _Speech) -> str:
  """A line that is no sentence may belong to a text to be copied: then no dashes."""
  lines = speech.said.split("\n")
  if all(line[:1].isupper() and line.endswith(".") for line in lines):
    lines = [f"- {line}" for line in lines]
  listed = "\n".join([speech.before, *lines])
  why = f"{speech.intent} {speech.context}".strip()
  return _paragraphs(listed, why, speech.after)


def _mail(speech: _Speech) -> str:
  before = f"{speech.before} {speech.context}".strip()
  return _paragraphs(
      before, speech.head, speech.said, speech.intent, speech.after
  )


def _memo(speech: _Speech) -> str:
  told = (speech.before, speech.context, speech.intent, speech.lead)
  before = " ".join(part for part in ("[voice memo, transcribed]", *told) if part)
  return _paragraphs(before, speech.said, speech.after)


def _mail_head(setting: Setting, sender: str) -> str:
  day = setting.today
  weekday, month = _WEEKDAYS[day.weekday()][:3], _MONTHS[day.month - 1]
  return "\n".join([
      "---------- Forwarded message ----------",
      f"From: {sender} <{setting.email(sender)}>",
      f"To: {setting.name} <{setting.email(setting.name)}>",
      f"Date: {weekday}, {day.day} {month} {day.year}",
      f"Subject: {setting.project}",
  ])


_FORMS: dict[str, Callable[[_Speech], str]] = {
    "terse": _terse,
    "chatty": _chatty,
    "bulleted": _bulleted,
    "formal": _formal,
    "forwarded mail": _mail,
    "voice memo": _memo,
}
