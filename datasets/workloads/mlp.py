"""mlp: a deep residual multi-layer perceptron."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .layers import Chain, FeedForward
from .spec import Workload


class ResidualLayer(nn.Module):
    """x + feed-forward(norm(x)) over (B, D)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = FeedForward(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, D) -> (B, D)."""
        return x + self.mlp(self.norm(x))


def mlp(
    *,
    layers: int = 4,
    width: int = 512,
    hidden: int = 2048,
    features: int = 256,
    classes: int = 100,
    batch: int = 256,
    lr: float = 3e-4,
) -> Workload:
    """A residual MLP of `layers` blocks (width -> hidden -> width) on random features, trained with AdamW."""

    def build() -> nn.Module:
        blocks = [ResidualLayer(width, hidden) for _ in range(layers)]
        return Chain(nn.Linear(features, width), *blocks, nn.Linear(width, classes))

    def make_batch(samples: int) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        return (torch.randn(samples, features),), torch.randint(0, classes, (samples,))

    return Workload(
        name="mlp",
        build=build,
        make_batch=make_batch,
        loss=functional.cross_entropy,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        batch=batch,
        tp_styles={"*.mlp.up": "colwise", "*.mlp.down": "rowwise"},
        tp_divides={"hidden": hidden},
    )
