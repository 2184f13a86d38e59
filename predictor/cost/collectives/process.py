"""The answer: closed form times what the nearest measured curves say.

A Gaussian process on log(measured / closed form).

Only the knots of the curves that tell most of the asked one take part (`MOST`), so an answer costs one small linear
system. Knots that their neighbours contradict get a larger noise, since timings have outliers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .similarity import Level, Traits, closeness, weights

MOST = 200
"""Knots that take part in one answer."""
_PASSES = 1
_OUTLIER = 2.5


@dataclass(frozen=True)
class Knots:
    """Measured sizes of curves: `curve` is an index into `traits`."""

    traits: Traits
    curve: np.ndarray
    octave: np.ndarray
    """log2 of the bytes."""
    residual: np.ndarray
    """log(measured / closed form)."""
    noise: np.ndarray
    """Standard deviation of the residual that repeats would show."""


def answer(
    levels: tuple[Level, ...], knots: Knots, asked: Traits, octaves: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(mean residual, its standard deviation) of one curve at some sizes."""
    prior = sum(level.amplitude**2 for level in levels)
    nothing = np.zeros_like(octaves), np.full_like(octaves, np.sqrt(prior))
    if not len(knots.curve):
        return nothing
    told = sum(weights(level, asked, knots.traits) for level in levels)[0]  # type: ignore[index]
    chosen = _nearest(told, knots, octaves)
    if not len(chosen):
        return nothing
    own, where = np.unique(knots.curve[chosen], return_inverse=True)
    traits, x, y = knots.traits.take(own), knots.octave[chosen], knots.residual[chosen]
    inside = np.zeros((len(x), len(x)))
    across = np.zeros((len(octaves), len(x)))
    for length in sorted({level.length for level in levels}):
        here = [level for level in levels if level.length == length]
        alike = np.sum([weights(level, traits, traits) for level in here], axis=0)
        inside += alike[np.ix_(where, where)] * closeness(length, x, x)
        alike = np.sum([weights(level, asked, traits) for level in here], axis=0)
        across += alike[0][where] * closeness(length, octaves, x)
    noise = knots.noise[chosen] ** 2
    inverse = np.linalg.inv(inside + np.diag(noise))
    for _ in range(_PASSES):
        # Leave-one-out residual over its own deviation (Rasmussen and Williams, 2006, eq. 5.12).
        left_out = (inverse @ y) / np.sqrt(np.diag(inverse))
        noise = knots.noise[chosen] ** 2 * np.maximum(1.0, np.abs(left_out) / _OUTLIER) ** 2
        inverse = np.linalg.inv(inside + np.diag(noise))
    explained = ((across @ inverse) * across).sum(axis=1)
    return across @ (inverse @ y), np.sqrt(np.maximum(prior - explained, 1e-6))


def _nearest(told: np.ndarray, knots: Knots, octaves: np.ndarray) -> np.ndarray:
    """Indices of the knots that count: whole curves, those that tell most first."""
    order = np.argsort(-told, kind="stable")
    order = order[told[order] > 1e-9]
    rank = np.full(len(told), len(told))
    rank[order] = np.arange(len(order))
    reach = (knots.octave >= octaves.min() - 6) & (knots.octave <= octaves.max() + 6)
    usable = np.flatnonzero(reach & (rank[knots.curve] < len(order)))
    if not len(usable):
        usable = np.flatnonzero(rank[knots.curve] < len(order))
    return usable[np.argsort(rank[knots.curve[usable]], kind="stable")][:MOST]
