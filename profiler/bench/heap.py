"""The C heap of a measuring process: in one known state, so that no row depends on luck.

glibc maps large blocks afresh and gives the top of its heap back when that grows, by thresholds that move with what a
process happened to free before. Fresh pages cost a fault each, which can triple the time of an operator with a large
output; the same training script pays them in one run and not in the next. A sweep measures operators on memory that
the process already holds, and the price of a page apart.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from statistics import median

# Constants of malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
LARGEST_MMAP_THRESHOLD_BYTES = 32 << 20
"""glibc's limit on 64 bits: blocks above it are mapped afresh at each allocation, in training as here."""
_NEVER = 2**31 - 1


def hold_memory() -> bool:
    """Keep freed blocks of up to 32 MiB in this process; False where the C library is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, _NEVER))


def page_fault_s(pages: int = 4096, repetitions: int = 5) -> float:
    """Seconds that the first write to one page of fresh memory costs beyond the write itself."""
    found = []
    for _ in range(repetitions):
        with mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh:
            block = (ctypes.c_char * len(fresh)).from_buffer(fresh)
            try:
                first_s, second_s = _fill_s(block), _fill_s(block)
            finally:
                del block
        found.append((first_s - second_s) / pages)
    return max(0.0, median(found))


def _fill_s(block: ctypes.Array[ctypes.c_char]) -> float:
    before = time.perf_counter()
    ctypes.memset(block, 1, ctypes.sizeof(block))
    return time.perf_counter() - before
