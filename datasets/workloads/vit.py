"""vit: a vision transformer over non-overlapping patches, mean pooling, linear head."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ..errors import UsageError
from .layers import BLOCK_TP_STYLES, Block, Chain
from .spec import Workload


class Patches(nn.Module):
    """(B, 3, H, W) -> (B, patches, D) by a strided convolution, plus learned positions."""

    def __init__(self, image: int, patch: int, width: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.position = nn.Parameter(torch.zeros((image // patch) ** 2, width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) -> (B, patches, D)."""
        return self.project(images).flatten(2).transpose(1, 2) + self.position


class Classify(nn.Module):
    """Norm, mean over patches, linear: (B, patches, D) -> (B, classes)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, patches, D) -> (B, classes)."""
        return self.projection(self.norm(x).mean(dim=1))


def vit(
    *,
    layers: int = 6,
    width: int = 192,
    heads: int = 4,
    image: int = 32,
    patch: int = 4,
    classes: int = 100,
    batch: int = 16,
    lr: float = 3e-4,
) -> Workload:
    """A vision transformer of `layers` blocks on random `image` × `image` pictures, trained with AdamW."""
    if width % heads:
        raise UsageError(f"workload vit: width {width} does not divide by heads {heads}; remainder {width % heads}")
    if image % patch:
        raise UsageError(f"workload vit: image {image} does not divide by patch {patch}; remainder {image % patch}")

    def build() -> nn.Module:
        blocks = [Block(width, heads, 4 * width, causal=False) for _ in range(layers)]
        return Chain(Patches(image, patch, width), *blocks, Classify(width, classes))

    def make_batch(samples: int) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        return (torch.randn(samples, 3, image, image),), torch.randint(0, classes, (samples,))

    return Workload(
        name="vit",
        build=build,
        make_batch=make_batch,
        loss=functional.cross_entropy,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        batch=batch,
        tp_styles=BLOCK_TP_STYLES,
        tp_divides={"heads": heads, "feed-forward width": 4 * width},
    )
