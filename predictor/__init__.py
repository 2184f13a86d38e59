"""What a training step will cost: workload x cluster x plan -> Prediction.

    from foretrace.predictor import predict
    print(predict("gpt", "dp=2", "this"))

Nothing heavy is imported until it is used; torch only where a module is traced.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import calibrate, predict
    from .hardware.cluster import Cluster
    from .prediction import Prediction

_HOMES = {"Cluster": ".hardware.cluster", "Prediction": ".prediction", "calibrate": ".api", "predict": ".api"}

__all__ = ["Cluster", "Prediction", "calibrate", "predict"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
