"""From bytes on the wire to seconds: latency below, bandwidth above, and a slow approach to it between.

`t = (L^p + (W/B (1 + (s0/S)^g))^p)^(1/p)`: L seconds of an empty message, W bytes that the wire carries, B its bytes/s
for endless messages, s0 the message at which half of it is reached, g how slowly. p joins the two ends.
"""

from __future__ import annotations

import numpy as np

JOIN = 3.0
"""p. Two straight ends join within an octave, as the measured curves do."""


def seconds(
    latency_s: np.ndarray, wire_bytes: np.ndarray, bytes_per_s: np.ndarray, size_bytes: np.ndarray,
    half_bytes: np.ndarray, slowness: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Seconds of messages of `size_bytes`, all arrays of one length."""
    moving = wire_bytes / bytes_per_s * (1.0 + (half_bytes / size_bytes) ** slowness)
    return (latency_s**JOIN + moving**JOIN) ** (1.0 / JOIN)
