"""Mesh axes and sharding; the same code runs on 1 CPU device and on a pod."""

from clawgym_jax.parallel.mesh import (
    AXES,
    BATCH,
    HIDDEN,
    axis_size,
    fitting,
    laid_out,
    make_mesh,
    on_mesh,
    param,
    platform,
)

__all__ = [
    "AXES",
    "BATCH",
    "HIDDEN",
    "axis_size",
    "fitting",
    "laid_out",
    "make_mesh",
    "on_mesh",
    "param",
    "platform",
]
