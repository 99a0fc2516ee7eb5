"""Makes the image of docker's sandboxes out of this machine: no registry needed.

  python -m sandbox.backends.docker_image [--packages=git,python3-openpyxl]

It holds the files of Debian's essential packages, of python3 and of those named,
with all that they depend on, as they are installed here. Of /etc it holds what
programs need to be found, and nothing that is told of this machine or its users.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import docker
from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from sandbox.backends.docker import DEFAULT_IMAGE, client

_PACKAGES = flags.DEFINE_list(
    "packages", [], "Further packages that are installed here, with what they need."
)
_IMAGE = flags.DEFINE_string("image", DEFAULT_IMAGE, "Name of the image, with a tag.")

_SEEDS = ("python3", "mawk", "procps")
_DPKG = Path("/var/lib/dpkg")
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "var")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
_LEFT_OUT = re.compile(
    r"/usr/share/(doc|man|info|locale|lintian|bug|i18n|bash-completion|dpkg)(/|$)"
    r"|/(var|run|boot|home|root|tmp)/|/etc/"
)
_ETC = ("alternatives", "ld.so.cache", "os-release", "debian_version", "mime.types")


def build(
    daemon: docker.APIClient, image: str = DEFAULT_IMAGE, packages: Iterable[str] = ()
) -> dict[str, Any]:
  """Imports the image into the daemon; gives its name, packages and bytes."""
  chosen = closure([*_SEEDS, *packages])
  repository, _, tag = image.rpartition(":")
  if not repository or "/" in tag:
    raise UserError(f"--image={image} has no tag; give one, as {image}:latest")
  with tempfile.NamedTemporaryFile(suffix=".tar") as file:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
      _fill(tar, files(chosen))
    file.flush()
    size = file.tell()
    answer = daemon.import_image_from_file(file.name, repository=repository, tag=tag)
  error = next((e for e in map(json.loads, answer.splitlines()) if "error" in e), None)
  if error:
    raise UserError(f"docker did not take the image: {error['error']}")
  return {"image": image, "packages": len(chosen), "bytes": size}


def closure(seeds: Iterable[str]) -> list[str]:
  """The installed packages that are essential or that `seeds` need, sorted."""
  installed = _installed()
  provided = {name: name for name in installed}
  for name, fields in installed.items():
    for virtual in _names(fields.get("Provides", "")):
      provided.setdefault(virtual[0], name)
  waiting = [name for name in installed if installed[name].get("Essential") == "yes"]
  for seed in seeds:
    if seed not in provided:
      raise UserError(f"the package {seed} isn't installed here; apt install {seed}")
    waiting.append(provided[seed])
  found: set[str] = set()
  while waiting:
    name = waiting.pop()
    if name in found:
      continue
    found.add(name)
    for field in ("Depends", "Pre-Depends"):
      for choices in _names(installed[name].get(field, "")):
        waiting += [provided[c] for c in choices if c in provided][:1]
  return sorted(found)


def files(packages: Iterable[str]) -> list[str]:
  """Paths of what the packages hold, and of what their installation made of it."""
  paths: set[str] = set()
  for package in packages:
    for listing in (_DPKG / "info").glob(f"{package}[.:]*"):
      if listing.suffix != ".list" or listing.stem.split(":")[0] != package:
        continue
      paths.update(filter(None, map(_real, listing.read_text().splitlines())))
  for path in [path for path in paths if path.endswith(".py")]:
    folder, name = os.path.split(path)
    compiled = Path(folder, "__pycache__").glob(f"{name[:-3]}.*.pyc")
    paths.update(map(str, compiled))
  for choice in Path("/etc/alternatives").iterdir():
    if os.path.realpath(choice) in paths:
      paths.add(str(choice))
  for link in Path("/usr/bin").iterdir():
    if link.is_symlink() and os.readlink(link) in paths:
      paths.add(str(link))
  for name in _ETC:
    if os.path.exists(path := f"/etc/{name}"):
      paths.add(path)
  return sorted(paths - {f"/{name}" for name in _FOLDERS})


def _fill(tar: tarfile.TarFile, paths: list[str]) -> None:
  for name in _FOLDERS:
    tar.addfile(_entry(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755))
  for name in _LINKS:
    if os.path.islink(f"/{name}"):
      link = _entry(name, tarfile.SYMTYPE, 0o777)
      link.linkname = os.readlink(f"/{name}")
      tar.addfile(link)
  group = b"root:x:0:\n"
  entry = _entry("etc/group", tarfile.REGTYPE, 0o644)
  entry.size = len(group)
  tar.addfile(entry, io.BytesIO(group))
  for path in paths:
    info = os.lstat(path)
    entry = _entry(path[1:], tarfile.REGTYPE, stat.S_IMODE(info.st_mode) & 0o755)
    entry.mtime = int(info.st_mtime)  # Python's compiled files name their source's
    if stat.S_ISLNK(info.st_mode):
      entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
      tar.addfile(entry)
    elif stat.S_ISDIR(info.st_mode):
      entry.type = tarfile.DIRTYPE
      tar.addfile(entry)
    elif stat.S_ISREG(info.st_mode) and os.access(path, os.R_OK):
      entry.size = info.st_size
      with open(path, "rb") as file:
        tar.addfile(entry, file)


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
  """Of root, without the right to become another user."""
  entry = tarfile.TarInfo(name)
  entry.type, entry.mode = kind, mode
  return entry


def _real(path: str) -> str:
  """Where a package's file lies here; empty where it isn't, or isn't wanted."""
  if _LEFT_OUT.search(path) or path in ("", "/", "/."):
    return ""
  folder, name = os.path.split(path)
  path = os.path.join(os.path.realpath(folder), name)
  if not os.path.lexists(path) or (path.count("/") == 1 and os.path.islink(path)):
    return ""
  return path


def _installed() -> dict[str, dict[str, str]]:
  """Name -> fields of every installed package."""
  try:
    text = (_DPKG / "status").read_text(errors="replace")
  except FileNotFoundError:
    raise UserError(
        "this machine has no Debian packages to make an image of; name another image"
        " with --docker_image, such as python:3.12-slim"
    ) from None
  found = {}
  for paragraph in text.split("\n\n"):
    fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
    if fields.get("Status", "").endswith(" installed"):
      found[fields["Package"]] = fields
  return found


def _names(field: str) -> list[list[str]]:
  """The packages of a dependency field: all of them, each as its choices."""
  return [
      [re.split(r"[\s:(\[]", choice.strip())[0] for choice in part.split("|")]
      for part in field.split(",")
      if part.strip()
  ]


def main() -> dict[str, Any]:
  made = build(client(), _IMAGE.value, _PACKAGES.value)
  print(
      f"made {made['image']} of {made['packages']} packages,"
      f" {made['bytes'] / 1e6:.0f} MB; it is what --backend=docker"
      + (" uses" if made["image"] == DEFAULT_IMAGE else
         f" --docker_image={made['image']} uses")
  )  # fmt: skip
  return made


if __name__ == "__main__":
  cli.run(main)
