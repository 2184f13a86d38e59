"""gpt: a decoder-only language model, pre-norm, separate q/k/v, causal attention, untied head."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ..errors import UsageError
from .layers import BLOCK_TP_STYLES, Block, Chain
from .spec import Workload


class Embed(nn.Module):
    """Token and learned position embedding: (B, S) int64 -> (B, S, D)."""

    def __init__(self, vocab: int, seq: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.position = nn.Parameter(torch.zeros(seq, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, S) -> (B, S, D); S may be shorter than the table."""
        return self.token(tokens) + self.position[: tokens.shape[1]]


class Head(nn.Module):
    """Final norm and untied projection: (B, S, D) -> (B, S, vocab)."""

    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, vocab, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, vocab)."""
        return self.projection(self.norm(x))


def gpt(
    *,
    layers: int = 4,
    width: int = 256,
    heads: int = 4,
    seq: int = 128,
    vocab: int = 4096,
    batch: int = 8,
    lr: float = 3e-4,
) -> Workload:
    """A GPT-like language model of `layers` blocks, trained on random tokens with AdamW."""
    if width % heads:
        raise UsageError(f"workload gpt: width {width} does not divide by heads {heads}; remainder {width % heads}")

    def build() -> nn.Module:
        blocks = [Block(width, heads, 4 * width, causal=True) for _ in range(layers)]
        return Chain(Embed(vocab, seq, width), *blocks, Head(width, vocab))

    def make_batch(samples: int) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        return (torch.randint(0, vocab, (samples, seq)),), torch.randint(0, vocab, (samples, seq))

    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    return Workload(
        name="gpt",
        build=build,
        make_batch=make_batch,
        loss=loss,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        batch=batch,
        tp_styles=BLOCK_TP_STYLES,
        tp_divides={"heads": heads, "feed-forward width": 4 * width},
    )
