"""Host time: what Python, autograd and the parallel wrappers add to each op, as measured on tiny tensors.

An op's measured price already holds its launch from a plain loop. A training loop costs more per op (module calls,
graph recording, the autograd engine, the optimizer's Python); that difference is the host time of its phase.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd


@dataclass(frozen=True)
class HostCosts:
    """Seconds per op and phase beyond the op's own price, and seconds of wrapper work by kind.

    A kind that was not measured is absent from `wrapper_s`, and what needs it names it as missing.
    """

    per_op_s: dict[str, float]
    wrapper_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, host: pd.DataFrame, *, floor_s: float) -> HostCosts:
        """Read the HOST table of a device file: medians over its tiny workloads.

        `floor_s` is what the price of an op that has nothing to do already holds (its launch).
        """
        host = host[host.time_s.notna()]
        training = host[host.kind == "training"].groupby("phase").time_s.median()
        per_op = {str(phase): max(0.0, float(value) - floor_s) for phase, value in training.items()}
        wrappers = host[~host.kind.isin(["training", "isolated"])].groupby("kind").time_s.median()
        return cls(per_op, {str(kind): max(0.0, float(value)) for kind, value in wrappers.items()})

    def op_s(self, phase: str, *, dtensor: bool = False) -> float:
        """Host seconds that one op of this phase adds."""
        extra = self.per_op_s.get(phase, self.per_op_s.get("forward", 0.0))
        return extra + (self.wrapper_s.get("dtensor_op", 0.0) if dtensor else 0.0)

    def wrapper(self, kind: str) -> float:
        """Host seconds of one unit of wrapper work, 0 where the kind was not measured (see `missing`)."""
        return self.wrapper_s.get(kind, 0.0)

    def missing(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `kinds` that the device file does not hold."""
        return tuple(kind for kind in kinds if kind not in self.wrapper_s)
