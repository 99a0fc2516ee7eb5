"""One compilation, in a process of its own: `python -m clawgym_jax.compile.child`.

libtpu is loaded once a process, reads its environment then, and ends the process
where it fails a check of its own. The request is JSON on standard input; the
answer is one JSON line, {"result": …} or {"error": …}, last on standard output.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
  os.environ["JAX_PLATFORMS"] = "cpu"  # nothing runs here
  request = json.load(sys.stdin)
  from clawgym_jax.compile.measure import measured
  from clawgym_jax.configs import base
  from clawgym_jax.contracts.errors import UserError
  from clawgym_jax.parallel import topologies

  kind = {"SftConfig": base.SftConfig, "RlConfig": base.RlConfig}[request["kind"]]
  answer: dict[str, Any]
  try:
    items = [f"{key}={value}" for key, value in request["keys"].items()]
    topology = topologies.parse(request["topology"])
    devices = topologies.describe(topology)
    result = measured(
        request["step"],
        base.override(kind(), items),
        topology,
        devices,
        layers=request["layers"],
    )
    answer = {"result": result}
  except UserError as error:
    answer = {"error": str(error)}
  print(json.dumps(answer), flush=True)


if __name__ == "__main__":
  main()
