"""lstm: a recurrent language model; embedding, LSTM layers, head."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .layers import Chain
from .spec import Workload


class Recurrent(nn.Module):
    """One LSTM layer over (B, S, D), its final state dropped."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        return self.lstm(x)[0]


def lstm(
    *,
    layers: int = 2,
    width: int = 256,
    seq: int = 64,
    vocab: int = 4096,
    batch: int = 16,
    lr: float = 1e-3,
) -> Workload:
    """An LSTM language model of `layers` layers on random tokens, trained with Adam."""

    def build() -> nn.Module:
        recurrent = [Recurrent(width) for _ in range(layers)]
        return Chain(nn.Embedding(vocab, width), *recurrent, nn.Linear(width, vocab))

    def make_batch(samples: int) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        return (torch.randint(0, vocab, (samples, seq)),), torch.randint(0, vocab, (samples, seq))

    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    return Workload(
        name="lstm",
        build=build,
        make_batch=make_batch,
        loss=loss,
        make_optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        batch=batch,
    )
