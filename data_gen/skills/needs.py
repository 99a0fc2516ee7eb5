"""What a skill needs, told from its words by rules.

A rule looks for what somebody has to have or do (a key, a site, a camera), in
the text and in what the front matter requires. It errs on the side of need: a
skill that only mentions a thing may be left out, one that needs it is not
let in. What can be used in a sandbox without network is `usable`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from data_gen.skills.skill import Skill

_AUTH = (
    r"api[ _-]?keys?\b",
    r"\b(?:access|bearer|auth|refresh|bot)[ _-]tokens?\b",
    r"\boauth2?\b",
    r"\b[A-Z0-9]+_(?:API_)?(?:KEY|TOKEN|SECRET|PASSWORD)\b",
    r"\bcredentials?\.json\b",
    r"\b(?:log|sign) in (?:to|with|at) your\b",
    r"\bAuthorization:\s*\w+",
)
_NETWORK = (
    r"\bcurl\b",
    r"\bwget\b",
    r"https?://(?![\w.-]*\.example\b)",
    r"\b(?:pip3?|npm|brew|go|cargo|uvx?) install\b",
    r"\bnpx\b",
    r"\bgit (?:clone|push|pull|fetch)\b",
    r"\bweb_(?:fetch|search)\b",
    r"\brequests\.(?:get|post)\b",
    r"\bssh\b",
    r"\bREST API\b",
    r"\bwebhooks?\b",
    r"\bdocker\b",
)
_RISK = {
    "removes without asking": (
        r"\brm -[a-z]*r[a-z]*f|\brm -[a-z]*f[a-z]*r|\bshred\b|\bmkfs\b|\bdd if="
    ),
    "acts as root": r"\bsudo\b|\bchmod (?:-R )?777\b",
    "runs what it fetched": (
        r"\|\s*(?:ba|z)?sh\b|\bbase64 (?:-d|--decode)\b.*\||\beval\b\s*[\"$(`]"
    ),
    "overrides instructions": (
        r"\bignore (?:all |any )?(?:previous|prior|other|the user)"
        r"|\bdo not tell the user\b|\bwithout (?:telling|asking) the user\b"
    ),
    "reads secrets": (
        r"~/\.(?:ssh|aws|gnupg|netrc)|/etc/shadow|\.env\b.*\b(?:send|post|upload)"
    ),
    "spends money": (
        r"\b(?:place|execute)s? (?:a )?(?:trades?|orders? on)\b|\bprivate keys?\b"
        r"|\bwallets?\b"
    ),
}
_OTHER_MEDIA = {
    "images": (
        r"\b(?:screenshots?|photographs?|image (?:generation|recognition|model)|ocr"
        r"|vision model|text-to-image)\b"
    ),
    "sound": (
        r"\b(?:audio|speech|transcribe|microphone|tts|text-to-speech|whisper)\b"
    ),
    "video": r"\b(?:videos?|ffmpeg|youtube)\b",
    "a screen": (
        r"\b(?:playwright|puppeteer|selenium|browser automation|click on the"
        r"|headless browser)\b"
    ),
}
# The name of a form -> words for it.
_FORMS = {
    "csv": "CSV",
    "tsv": "TSV|tab-separated",
    "json": "JSON",
    "jsonl": "JSONL|JSON Lines",
    "yaml": "YAML",
    "toml": "TOML",
    "ini": "INI",
    "xml": "XML",
    "html": "HTML",
    "markdown": "Markdown",
    "sqlite": "SQLite",
    "sql": "SQL",
    "xlsx": "XLSX|Excel|workbooks?",
    "docx": "DOCX|Word (?:file|document)s?",
    "pdf": "PDF",
    "ics": "ICS|iCalendar|calendar",
    "vcard": "vCards?|contacts",
    "mail": "e-?mails?|EML|mbox|mailbox",
    "log": "log (?:file|line)s?|logs",
    "archive": "ZIP|tar|archives?",
    "git": "git|commits?",
    "text": "text files?",
}
_TAKES = r"(?:read|load|parse|open|from|input|given|take)"
_GIVES = r"(?:write|save|produce|output|export|create|render|hand|into|result)"
_COMMON = set(
    "the a an and or of to in is are it that for with on as be by this from not if you"
    " when use file files each one".split()
)
_FENCED = re.compile(r"^```(?:sh|bash|shell|console)[ \t]*\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Needs:
  """What a skill needs.

  Attributes:
    language: `English` or `other`.
    auth, network, risk, media: what was found that asks for them, in order;
      empty where nothing does.
    inputs, outputs: forms of files that it names for reading and writing.
    programs: what its shell blocks and its front matter call.
  """

  language: str
  auth: tuple[str, ...]
  network: tuple[str, ...]
  risk: tuple[str, ...]
  media: tuple[str, ...]
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  programs: tuple[str, ...]

  @property
  def text_only(self) -> bool:
    return not self.media

  def hindrances(self) -> tuple[str, ...]:
    """Why it can't be used in a sandbox of text and files; empty where it can."""
    return tuple(
        name
        for name, there in (
            ("language", self.language != "English"),
            ("auth", self.auth),
            ("network", self.network),
            ("risk", self.risk),
            ("media", self.media),
        )
        if there
    )

  @property
  def usable(self) -> bool:
    return not self.hindrances()


def needs(skill: Skill) -> Needs:
  """What `skill` needs."""
  text = skill.text
  required = _required(skill.meta)
  return Needs(
      language=_language(skill.description + "\n" + skill.body),
      auth=(*_found(_AUTH, text), *required["env"]),
      network=_found(_NETWORK, text),
      risk=_named(_RISK, text),
      media=_named(_OTHER_MEDIA, text),
      inputs=_forms(_TAKES, text),
      outputs=_forms(_GIVES, text),
      programs=tuple(sorted({*required["bins"], *_programs(skill.body)})),
  )


def _found(patterns: tuple[str, ...], text: str) -> tuple[str, ...]:
  matches = (re.search(p, text, 0 if "[A-Z" in p else re.I) for p in patterns)
  return tuple(m[0].strip() for m in matches if m)


def _named(patterns: dict[str, str], text: str) -> tuple[str, ...]:
  return tuple(n for n, pattern in patterns.items() if re.search(pattern, text, re.I))


def _language(text: str) -> str:
  words = re.findall(r"[^\W\d_]+", text.lower())
  latin = sum(w.isascii() for w in words)
  common = sum(w in _COMMON for w in words)
  english = words and latin >= 0.9 * len(words) and common >= 0.1 * len(words)
  return "English" if english else "other"


def _forms(verb: str, text: str) -> tuple[str, ...]:
  """Forms that stand behind such a verb, in the same sentence."""
  return tuple(
      name
      for name, words in _FORMS.items()
      if re.search(rf"\b{verb}\w*\b[^.\n]{{0,60}}\b(?:{words})\b", text, re.I)
  )


def _programs(body: str) -> set[str]:
  lines = "\n".join(_FENCED.findall(body)).splitlines()
  firsts = (re.match(r"(?:\$ )?([a-z][a-z0-9_.-]*)(?= |$)", line) for line in lines)
  return {m[1] for m in firsts if m and m[1] not in ("for", "do", "done", "if", "fi")}


def _required(meta: dict[str, Any]) -> dict[str, list[str]]:
  """What `metadata.openclaw.requires` lists, where it has the form it should."""
  found: Any = meta
  for key in ("metadata", "openclaw", "requires"):
    found = found.get(key, {}) if isinstance(found, dict) else {}
  lists = {}
  for key in ("bins", "env"):
    value = found.get(key, ()) if isinstance(found, dict) else ()
    lists[key] = [str(v) for v in value] if isinstance(value, (list, tuple)) else []
  return lists
