"""dlrm: a recommendation model; a dense MLP, embedding tables, pairwise interaction, a top MLP."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .layers import Chain
from .spec import Workload


class Lookup(nn.Module):
    """Dense features through the bottom MLP, sparse ids through one table each, side by side."""

    def __init__(self, dense: int, tables: int, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """(B, dense), (B, tables) int64 -> (B, tables + 1, D)."""
        looked_up = [table(ids[:, index]) for index, table in enumerate(self.tables)]
        return torch.stack([self.bottom(dense), *looked_up], dim=1)


class Interact(nn.Module):
    """Dot products of all pairs of vectors beside the dense one: (B, F, D) -> (B, D + F(F-1)/2)."""

    pair: torch.Tensor

    def __init__(self, fields: int) -> None:
        super().__init__()
        pairs = torch.triu_indices(fields, fields, offset=1)
        self.register_buffer("pair", pairs[0] * fields + pairs[1], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, F, D) -> (B, D + F(F-1)/2)."""
        products = torch.bmm(x, x.transpose(1, 2)).flatten(1)
        return torch.cat([x[:, 0], products.index_select(1, self.pair)], dim=1)


class Layer(nn.Module):
    """Linear and relu: (B, in) -> (B, out)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in) -> (B, out)."""
        return functional.relu(self.linear(x))


def dlrm(
    *,
    tables: int = 8,
    rows: int = 5000,
    width: int = 64,
    dense: int = 13,
    bottom: int = 256,
    top: int = 512,
    layers: int = 3,
    batch: int = 2048,
    lr: float = 0.05,
) -> Workload:
    """A DLRM-like model with `tables` tables of `rows` × `width` and `layers` top layers of `top`; plain SGD."""
    fields = tables + 1
    interacted = width + fields * (fields - 1) // 2

    def build() -> nn.Module:
        tower = [Layer(interacted if layer == 0 else top, top) for layer in range(layers)]
        lookup = Lookup(dense, tables, rows, width, bottom)
        return Chain(lookup, Interact(fields), *tower, nn.Linear(top if layers else interacted, 1))

    def make_batch(samples: int) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
        inputs = (torch.randn(samples, dense), torch.randint(0, rows, (samples, tables)))
        return inputs, torch.randint(0, 2, (samples, 1)).float()

    return Workload(
        name="dlrm",
        build=build,
        make_batch=make_batch,
        loss=functional.binary_cross_entropy_with_logits,
        make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        batch=batch,
    )
