"""A secret in whatever simple disguise it leaves: what files hide, and what texts show.

Part of check.py (see `checker`): standard library only. Packed files are unpacked,
base64 and hex decoded, UTF-16 read, markup left out; case, blanks and signs between
the letters do not hide a text, nor does writing it backwards. What is really
enciphered, or told in other words, is not found.
"""

import base64
import io
import re

from data_gen.compose.checks.files import MAX_BYTES

MOST_MEMBERS = 1000  # of one archive
MOST_HIDDEN = 24 << 20  # bytes that are unpacked and decoded, of one file
DEEPEST = 4  # an archive in an archive, in base64
SHORT_RUN = 64
_LONG_SECRET = 10  # letters and digits of a text that no other comes near to


def shows(text: str, secrets: list) -> bool:
  """Whether one of the secrets stands in the text."""
  backwards = text[::-1]
  plain = re.sub(r"(?<=\d)[ ,'\u2019\u00a0](?=\d{3})", "", text)  # 45 231.50
  squeezed = _squeezed(text)
  for secret in secrets:
    if secret in text or secret in plain:
      return True
    if len(secret) >= 8 and secret in backwards:
      return True
    short = _squeezed(secret)
    if len(short) >= _LONG_SECRET and not short.isdigit():
      if short in squeezed or short[::-1] in squeezed:
        return True
    elif _spelled(secret, text):
      return True
  return False


def _squeezed(text: str) -> str:
  return re.sub(r"[\W_]+", "", text.casefold())


def _spelled(secret: str, text: str) -> bool:
  """Whether it stands there with one and the same sign after each character."""
  first, *rest = map(re.escape, secret)
  return bool(rest) and bool(
      re.search(first + r"([^\w\n]{1,3}|\n)" + r"(?:\1)".join(rest), text)
  )


def revealed(data: bytes) -> list:
  """The texts in it, and in what it hides."""
  left = [MOST_HIDDEN]
  found, waiting = [], [(data, 0)]
  while waiting:
    blob, depth = waiting.pop()
    found += _read(blob)
    for inner in _within(blob) if depth < DEEPEST else ():
      left[0] -= len(inner)
      if left[0] < 0:
        raise ValueError("too much is packed in it")
      waiting.append((inner, depth + 1))
  return found


def _read(data: bytes) -> list:
  texts = [data.decode("utf-8", "replace")]
  if b"\0" in data:  # as UTF-16 and UTF-32 have between letters
    texts.append(data.replace(b"\0", b"").decode("utf-8", "replace"))
  if "<" in texts[0]:
    texts.append(re.sub(r"<[^<>]*>", "", texts[0]))
  return texts


def _within(data: bytes) -> list:
  """What it holds in another form."""
  if data[:4] == b"PK\3\4":
    return _members(data)
  if data[:2] == b"\x1f\x8b":
    import gzip

    with gzip.open(io.BytesIO(data)) as stream:
      return [_all_of(stream)]
  if data[:3] == b"BZh":
    import bz2

    with bz2.open(io.BytesIO(data)) as stream:
      return [_all_of(stream)]
  if data[:6] == b"\xfd7zXZ\0":
    import lzma

    with lzma.open(io.BytesIO(data)) as stream:
      return [_all_of(stream)]
  if data[:4] == b"%PDF":
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL)
    return [inner for packed in streams for inner in _inflated(packed)]
  return _inflated(data) or _decoded_from(data)


def _members(data: bytes) -> list:
  import zipfile

  with zipfile.ZipFile(io.BytesIO(data)) as archive:
    infos = archive.infolist()
    if len(infos) > MOST_MEMBERS:
      raise ValueError("too many members")
    found = ["\n".join(i.filename for i in infos).encode(), archive.comment]
    for info in infos:
      with archive.open(info) as file:
        found.append(_all_of(file))
  return found


def _all_of(stream) -> bytes:
  data = stream.read(MAX_BYTES + 1)
  if len(data) > MAX_BYTES:
    raise ValueError("too much is packed in it")
  return data


def _inflated(data: bytes) -> list:
  """What deflate packed, as git and PDF do it; nothing where it did not."""
  import zlib

  if data[:1] != b"\x78":
    return []
  try:
    return [zlib.decompressobj().decompress(data, MAX_BYTES)]
  except zlib.error:
    return []


def _decoded_from(data: bytes) -> list:
  """What its runs of base64 and hex say, however their lines are broken."""
  if data.count(b"\0") * 4 > len(data):
    data = data.replace(b"\0", b"")
  unread = len(data.translate(None, bytes(range(32, 127)) + b"\r\n\t"))
  if unread * 5 > len(data) * 2:  # no text: of bytes by chance it is three in five
    return []
  found = []
  joined = b"".join(data.split()).translate(bytes.maketrans(b"-_", b"+/"))
  for run in re.findall(rb"[A-Za-z0-9+/]{10,}", joined):
    for start in range(4):
      part = run[start:]
      part = part[: len(part) - (len(part) % 4 == 1)]
      found.append(base64.b64decode(part + b"=" * (-len(part) % 4)))
  digits = re.sub(rb"0x|\\x|[\s:,;-]", b"", data)
  for run in re.findall(rb"[0-9A-Fa-f]{10,}", digits):
    for start in range(2):
      part = run[start:]
      found.append(bytes.fromhex(part[: len(part) // 2 * 2].decode()))
  # Short ones hold nothing packed, and may be many.
  short = b"\n".join(blob for blob in found if len(blob) <= SHORT_RUN)
  return [short, *(blob for blob in found if len(blob) > SHORT_RUN)]
