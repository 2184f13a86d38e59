"""Shipped measurements: what foretrace learns from and looks up, packed, with whose they are and what for.

    from foretrace.datasets import shipped

    shipped.ops()                                     # rows to fit to: a pandas frame in the columns of `columns.OPS`
    shipped.ops(sources=["neusight"], parts=["score"], devices=["H100-SXM5-80GB"], columns=["op", "m", "n", "time_s"])
    shipped.collectives(), shipped.steps(), shipped.model_ops()
    shipped.provenance()                              # one entry a source: repository, commit, licence, rows, gates

Every row has a `part`: `fit` may be fitted to; `score` is held out (the source's own test rows, and 20 % of all shapes
on every device); `apart` is reported by itself; `suspect` was found wrong by the gate that `reason` names. Times are
seconds.
`foretrace datasets build` makes the tables from the raw folders; a hash of the content tells that they are the same.
"""

from .columns import APART, FIT, PARTS, SCORE, SUSPECT
from .load import collectives, model_ops, ops, provenance, steps

__all__ = ["APART", "FIT", "PARTS", "SCORE", "SUSPECT", "collectives", "model_ops", "ops", "provenance", "steps"]
