"""Facts of the process we run in that need no torch."""

from __future__ import annotations

import sys


def process_peak_bytes() -> int | None:
    """Highest resident size of this process since it started; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
