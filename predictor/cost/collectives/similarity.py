"""How much one measured curve tells of another: a sum of levels, each with what must be equal and what may drift.

The covariance of two log-residuals is `sum over levels of amplitude^2 x C(curve, curve') x R(octaves apart)`: C is 1
where all that the level names is `same`, times exp(-distance / scale) for each number that it lets `drift`; R is
Matern 3/2 (protocol steps are sharp) with the level's length. Every factor is positive definite, so the sum is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from .table import Curve

NAMES = ("kind", "device", "family", "version", "source", "width", "topology", "wires", "label")
NUMBERS = ("ranks", "nodes", "rate", "options")


class Level(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reason for two curves to differ from the closed forms alike."""

    why: str
    amplitude: float
    """In units of log time."""
    length: float
    """Octaves of message size over which it holds."""
    same: tuple[str, ...]
    drift: dict[str, float] = {}
    """Number -> octaves after which it is e times weaker."""


class Traits:
    """Curves as codes and numbers: what levels compare."""

    def __init__(self, curves: Sequence[Curve], codes: dict[tuple[str, str], int]) -> None:
        def code(name: str, value: Any) -> int:
            return codes.setdefault((name, str(value)), len(codes))

        self.names = {name: np.array([code(name, _name(curve, name)) for curve in curves], dtype=int) for name in NAMES}
        self.numbers = {
            "ranks": np.log2([[curve.ranks] for curve in curves]),
            "nodes": np.log2([[curve.nodes] for curve in curves]),
            "rate": np.log2([[curve.links.bytes_per_s] for curve in curves]),
            "options": np.array([_options(curve) for curve in curves]).reshape(len(curves), -1),
        }

    def take(self, index: np.ndarray) -> Traits:
        """Some of the curves."""
        chosen = object.__new__(Traits)
        chosen.names = {name: codes[index] for name, codes in self.names.items()}
        chosen.numbers = {name: values[index] for name, values in self.numbers.items()}
        return chosen


_OPTIONS = ("experts", "hidden", "sms", "topk")


def _options(curve: Curve) -> list[float]:
    found = dict(curve.options)
    return [float(np.log2(max(found.get(name, 1.0), 1.0))) for name in _OPTIONS]


def _name(curve: Curve, name: str) -> str:
    return curve.links.topology if name == "topology" else str(getattr(curve, name))


def weights(level: Level, one: Traits, other: Traits) -> np.ndarray:
    """C of a level between all curves of two sets."""
    result = np.full((len(one.names["kind"]), len(other.names["kind"])), level.amplitude**2)
    for name in level.same:
        result *= one.names[name][:, None] == other.names[name][None, :]
    for name, scale in level.drift.items():
        apart = np.abs(one.numbers[name][:, None, :] - other.numbers[name][None, :, :]).sum(axis=2)
        result *= np.exp(-apart / scale)
    return result


def closeness(length: float, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """R: Matern 3/2 over octaves."""
    scaled = np.sqrt(3.0) * np.abs(one[:, None] - other[None, :]) / length
    return (1.0 + scaled) * np.exp(-scaled)
