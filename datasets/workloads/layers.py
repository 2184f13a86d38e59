"""Chain and the attention block that several built-in workloads share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Chain(nn.Sequential):
    """An `nn.Sequential` whose children may take and return several tensors (a tuple is spread over arguments)."""

    def forward(self, *inputs: Any) -> Any:
        """Pass `inputs` through all children in order."""
        for child in self:
            output = child(*inputs)
            inputs = output if isinstance(output, tuple) else (output,)
        return output


class Attention(nn.Module):
    """Self-attention over (B, S, D). The number of local heads follows from the width that q, k, v return, so that
    the same code runs on a tensor-parallel rank, where they return D / tp."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.head_dim = width // heads
        self.causal = causal
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        batch, length, _ = x.shape
        q, k, v = (part(x).view(batch, length, -1, self.head_dim).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """D -> hidden -> D with gelu."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    """Pre-norm transformer block: attention and feed-forward, each added to its input."""

    def __init__(self, width: int, heads: int, hidden: int, *, causal: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = FeedForward(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


BLOCK_TP_STYLES = {
    "*.attention": "shared",
    "*.attention.q": "colwise",
    "*.attention.k": "colwise",
    "*.attention.v": "colwise",
    "*.attention.out": "rowwise",
    "*.mlp.up": "colwise",
    "*.mlp.down": "rowwise",
}
"""How `Block` is split over tensor-parallel ranks; norms, embeddings and the head stay whole on every rank."""
