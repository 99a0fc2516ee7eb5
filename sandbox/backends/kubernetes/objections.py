"""Whether the pod that a cluster made is the sandbox that was asked for.

A webhook, a warm pool's template or an old claim may have made another one: a
pod is used only where nothing that isolates or bounds it is gone.
"""

from __future__ import annotations

import re
from typing import Any

from sandbox.backends.kubernetes.manifests import MARK, Manifest

# Arguments of the server that are one sandbox's, not a pool's.
_OWN = ("--lifetime=", "--env=CLAWGYM_NOW=", "--label=")


def objections(made: Manifest, wanted: Manifest) -> list[str]:
  """What keeps the pod `made` from being the sandbox that `wanted` describes."""
  spec, found = made.get("spec", {}), []
  if made["metadata"].get("deletionTimestamp"):
    found.append("it is being deleted")
  status = made.get("status", {})
  if status.get("phase") != "Running":
    found.append(f"it is {status.get('phase', 'unknown')}, not running")
  if any(entry.get("restartCount") for entry in status.get("containerStatuses", ())):
    found.append("it has been restarted")
  if made["metadata"].get("labels", {}).get(MARK) != "true":
    found.append(f"its label {MARK} is gone, so no network policy holds it")
  for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
    if spec.get(name):
      found.append(f"{name} is on")
  for kind in ("initContainers", "ephemeralContainers"):
    if spec.get(kind):
      found.append(f"it has {kind}")
  if len(spec.get("containers", ())) != 1:
    return [*found, f"it has {len(spec.get('containers', ()))} containers"]
  there = _mounted(spec)
  for path, volume in _mounted(wanted["spec"]).items():
    if there.get(path) != volume:
      found.append(f"{path} is {there.get(path, 'not mounted')}, not {volume}")
  for path, volume in there.items():
    if not volume.startswith(("tmpfs", "files of clawgym-sandbox-")):
      found.append(f"{path} is {volume}")
  asked, given = (
      {a for a in s["containers"][0].get("command", ()) if not a.startswith(_OWN)}
      for s in (wanted["spec"], spec)
  )
  found += [f"its server lacks {argument}" for argument in sorted(asked - given)]
  return found + _differences(wanted["spec"], spec, "")


def _mounted(spec: Manifest) -> dict[str, str]:
  """Path -> what is mounted there, for comparing."""
  volumes = {}
  for volume in spec.get("volumes", ()):
    empty = volume.get("emptyDir")
    if empty is not None and empty.get("medium") == "Memory":
      said = f"tmpfs of {_quantity(empty.get('sizeLimit'))} bytes"
    elif "configMap" in volume:
      said = f"files of {volume['configMap']['name']}"
    else:
      said = f"a volume of kind {', '.join(volume.keys() - {'name'})}"
    volumes[volume["name"]] = said
  mounts = spec["containers"][0].get("volumeMounts", ())
  return {mount["mountPath"]: volumes.get(mount["name"], "nothing") for mount in mounts}


_HARMLESS = {
    ".securityContext": {
        "fsGroup", "fsGroupChangePolicy", "seLinuxOptions", "supplementalGroups",
        "supplementalGroupsPolicy",
    },
    ".containers[0]": {"env", "terminationMessagePath", "terminationMessagePolicy"},
    ".containers[0].securityContext": {"seLinuxOptions"},
    ".containers[0].securityContext.capabilities": set(),
}  # fmt: skip


def _differences(wanted: Any, made: Any, where: str) -> list[str]:
  """Where `made` lacks or changes what `wanted` says.

  A cluster adds much to a pod; to its container and security only `_HARMLESS`.
  """
  if where.endswith((".volumes", ".volumeMounts", ".command")):
    return []  # they are compared apart
  if where == ".containers[0].image":  # a mirror of the same image is fine
    return []
  if re.search(r"\.resources\.\w+\.", where):  # a cluster may round up
    return [] if _quantity(made) is not None else [f"{where.lstrip('.')} is missing"]
  if isinstance(wanted, dict) and isinstance(made, dict):
    added = made.keys() - wanted.keys() - _HARMLESS.get(where, made.keys())
    if made.get("procMount") == "Default":  # which some API servers write down
      added -= {"procMount"}
    return [f"{where.lstrip('.')}.{n} is {made[n]!r}" for n in sorted(added)] + [
        text
        for name, value in wanted.items()
        for text in _differences(value, made.get(name), f"{where}.{name}")
    ]
  if isinstance(wanted, list) and isinstance(made, list) and len(wanted) == len(made):
    return [
        text
        for number, (one, other) in enumerate(zip(wanted, made, strict=True))
        for text in _differences(one, other, f"{where}[{number}]")
    ]
  if wanted == made or _quantity(wanted) == _quantity(made) is not None:
    return []
  if wanted is False and made is None and where.endswith(".privileged"):
    return []  # false is the default, which may be left out
  return [f"{where.lstrip('.')} is {made!r}, not {wanted!r}"]


_UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20}
_UNITS |= {"Gi": 2**30, "Ti": 2**40, "T": 1e12}


def _quantity(text: Any) -> float | None:
  """The number of a Kubernetes quantity, which the API server may write anew."""
  parts = r"(\d+\.?\d*)([A-Za-z]*)"
  match = re.fullmatch(parts, text) if isinstance(text, str) else None
  if match is None or match[2] not in _UNITS:
    return None
  return float(match[1]) * _UNITS[match[2]]
