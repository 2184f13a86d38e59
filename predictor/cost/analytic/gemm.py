"""GEMM families: roofline with the loss of small dims.

A blocked GEMM reaches its peak once every dim is several register tiles long; dims shorter than a tile still cost one.
Tile 8 × 16 outputs is that of an AVX2 or AVX-512 fp32 micro-kernel (GotoBLAS, Goto and van de Geijn 2008).
"""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family

_TILE_M, _TILE_N, _RAMP_K = 8, 16, 32


@family("matmul", "linear", "bmm")
def gemm(op: Op, device: Device) -> float:
    padded_m = -(-op.m // _TILE_M) * _TILE_M
    padded_n = -(-op.n // _TILE_N) * _TILE_N
    # Loading and storing the tile of outputs is amortised over k.
    padded_k = op.k + _RAMP_K
    flops = 2.0 * max(1, op.b) * padded_m * padded_n * padded_k
    compute_s = flops / device.peak_flops_per_s(op.dtype)
    return max(compute_s, op.bytes / device.bandwidth_bytes_per_s(op.bytes))
