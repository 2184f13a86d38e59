"""Convolution as an implicit GEMM; a depthwise or narrow one is bound by traffic."""

from ....datasets.ops import Op
from ...hardware.device import Device
from . import family, roofline_s

# Direct convolution in oneDNN reaches about two thirds of the GEMM peak on the 3 × 3 layers of a ResNet
# (own sweep on an AVX2 part); the measured table corrects the rest.
_EFFICIENCY = 0.65


@family("conv1d", "conv2d", "conv3d")
def convolution(op: Op, device: Device) -> float:
    return roofline_s(op, device, efficiency=_EFFICIENCY)
