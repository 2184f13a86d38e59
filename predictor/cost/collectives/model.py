"""The shipped file of what was fitted: constants of the closed forms, levels of similarity, widths of intervals."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from ....datasets.errors import InputError
from .closed_form import Constants
from .similarity import Level

PATH = Path(__file__).with_name("model.json")
SCHEMA_VERSION = 1


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What `foretrace datasets fit` writes for collectives."""

    schema_version: int
    kind: str
    """collectives"""
    foretrace: str
    """Version that fitted it."""
    constants: dict[str, Constants]
    """family/topology/kind -> constants."""
    levels: tuple[Level, ...]
    noise: float
    """Standard deviation of log time of one timing, at least."""
    clock_s: float
    """Resolution of the coarsest clock among the sources: noise of short timings."""
    widths: dict[str, float]
    """How sure -> half width of the 80 % interval over the process's own deviation."""
    floors: dict[str, float]
    """How sure -> least half width in log time."""
    provenance: dict[str, str | int | float]
    """Rows, devices, content hash of the data, how it was chosen."""


@lru_cache(maxsize=2)
def load(path: Path = PATH) -> Model:
    """The shipped model, or another file of the same layout. Raises `InputError` when it is not one."""
    try:
        model = msgspec.json.decode(path.read_bytes(), type=Model)
    except OSError as error:
        raise InputError(f"{path}: cannot read the model of collectives: {error}; install foretrace again") from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is no model of collectives: {error}; fit it again") from error
    if model.schema_version != SCHEMA_VERSION or model.kind != "collectives":
        raise InputError(f"{path}: model of {model.kind} {model.schema_version}, this version reads {SCHEMA_VERSION}")
    return model


def save(model: Model, path: Path = PATH) -> None:
    """Write a model atomically, keys sorted. Raises `RunError` when it cannot be written."""
    from ....datasets.store.files import write_json

    write_json(path, msgspec.to_builtins(model))
