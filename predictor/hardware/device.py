"""Device: what one kind of processor can do at best, as the analytic prices need it.

Rates are measured or dense datasheet peaks, never sparse ones. A rate that is not known is None, and a price that needs
it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Device:
    """One processor as a rank sees it: `threads` of a CPU, or a whole accelerator."""

    name: str
    kind: str
    """`cpu` or `gpu`."""
    flops_per_s: dict[str, float]
    """Peak rate by dtype at this thread count."""
    bytes_per_s: float
    """Out-of-cache bandwidth, read plus written, at this thread count."""
    cache_bytes_per_s: float
    """In-cache bandwidth at this thread count."""
    cache_bytes: float
    """Largest working set that still runs at cache speed."""
    launch_s: float
    """Time of an op that has nothing to do."""
    threads: int = 1
    facts: dict[str, object] = field(default_factory=dict)

    def peak_flops_per_s(self, dtype: str) -> float:
        """Peak rate for `dtype`; a dtype without a figure of its own runs at the fp32 rate."""
        return self.flops_per_s.get(dtype) or self.flops_per_s["fp32"]

    def bandwidth_bytes_per_s(self, footprint_bytes: float) -> float:
        """Bandwidth for a working set of this size: cache speed below `cache_bytes`, memory speed from four times it.

        Between the two the traffic is split in proportion (log-linear), so that prices have no jump.
        """
        if footprint_bytes <= self.cache_bytes:
            return self.cache_bytes_per_s
        if footprint_bytes >= 4 * self.cache_bytes:
            return self.bytes_per_s
        share = (footprint_bytes / self.cache_bytes - 1.0) / 3.0
        return 1.0 / ((1.0 - share) / self.cache_bytes_per_s + share / self.bytes_per_s)
