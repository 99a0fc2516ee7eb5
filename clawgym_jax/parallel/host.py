"""The host's memory, as XLA on a CPU needs it.

A training step allocates and frees gigabytes. glibc gives each large block
back to the kernel, and the next step pays for a page fault every 4 KiB: on a
2-core machine that was more than half of a step's time.
"""

from __future__ import annotations

import ctypes
import os
import sys

_MALLOPT_ARENA_MAX = -8
_MALLOPT_MMAP_MAX = -4
_MALLOPT_TRIM_THRESHOLD = -1
_MADV_HUGEPAGE = 14
_HUGE_PAGE = 2 << 20


def keep_memory(share: float = 0.6) -> bool:
  """Makes this process keep freed memory, in huge pages; True if it could.

  Reserves the addresses (not the memory) of `share` of the machine's memory in
  one heap. Call it once, at the start of a program, before the first array;
  a no-op where the C library isn't glibc. Memory that was used once is given
  back by `release_memory` alone.
  """
  if not sys.platform.startswith("linux"):
    return False
  libc = ctypes.CDLL(None)
  if not hasattr(libc, "gnu_get_libc_version"):
    return False
  libc.malloc.restype = ctypes.c_void_p
  libc.malloc.argtypes = [ctypes.c_size_t]
  libc.free.argtypes = [ctypes.c_void_p]
  libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
  libc.mallopt(_MALLOPT_ARENA_MAX, 1)
  libc.mallopt(_MALLOPT_MMAP_MAX, 0)
  libc.mallopt(_MALLOPT_TRIM_THRESHOLD, -1)
  memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  size = int(memory * share)
  block = libc.malloc(size)
  if not block:
    return False
  start = -(-block // _HUGE_PAGE) * _HUGE_PAGE
  length = (block + size - start) // _HUGE_PAGE * _HUGE_PAGE
  advised = libc.madvise(start, length, _MADV_HUGEPAGE) == 0
  libc.free(block)
  return advised


def release_memory() -> None:
  """Gives memory that is free now back to the kernel.

  For the moments after which it won't be needed soon: a compilation and a save
  take gigabytes that the steps between them do not. A no-op without glibc.
  """
  libc = ctypes.CDLL(None)
  if hasattr(libc, "malloc_trim"):
    libc.malloc_trim(0)
