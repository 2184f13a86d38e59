"""FamilyModel: what is kept of a fit, in one npz file without pickle: trees, group offsets, ranges, widths, card.

A price is base x exp(blind correction), plus the known part where rows of the same group were fitted on. It is never
below the roofline by more than 999 of 1000 measured rows of the family were.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....datasets.errors import InputError
from ....datasets.store.files import encode, reason, replacing
from ....datasets.version import __version__
from .trees import Trees

SCHEMA_VERSION = 1
SITUATIONS = ("known", "sibling", "blind")
"""How much of a row's group was fitted on: the group itself; its device in another group; neither."""
SIZES_S = (1e-5, 5e-5, 1e-3)
"""Bounds of base time between which interval widths are kept apart."""


@dataclass(frozen=True, eq=False)
class FamilyModel:
    """Learned price of one family."""

    family: str
    shape_features: tuple[str, ...]
    device_features: tuple[str, ...]
    flags: tuple[str, ...]
    blind: Trees
    known: Trees
    groups: tuple[str, ...]
    """`device|source|framework`, sorted; the known trees read the number of a row's group as a feature."""
    offsets: np.ndarray
    """float64 (groups,): median log(measured / blind) of each group."""
    low: np.ndarray
    high: np.ndarray
    """float32 (groups, shape features): range of the rows fitted on."""
    widths: np.ndarray
    """float64 (situations, sizes + 1): half width of the 80 % interval, log units."""
    least_over_roofline: float
    card: dict[str, Any]
    """rows, devices, sources, licences, settings, and how it scored on devices left out."""

    def blind_log(self, shape: np.ndarray, device: np.ndarray, flags: np.ndarray) -> np.ndarray:
        """Log correction of the base for a device without rows."""
        return self.blind.predict(np.hstack([shape, device, flags]))

    def known_log(self, shape: np.ndarray, device: np.ndarray, flags: np.ndarray, group: np.ndarray) -> np.ndarray:
        """What to add to it for rows of fitted groups; `group` (rows,) indexes `groups`."""
        code = group.astype(np.float32)[:, None]
        offset = self.offsets[group]
        return offset + self.known.predict(np.hstack([shape, device, flags, code, offset[:, None].astype(np.float32)]))

    def save(self, path: Path) -> None:
        """Write one file atomically; the same content gives the same bytes."""
        arrays = {
            **self.blind.arrays("blind_"), **self.known.arrays("known_"), "offsets": self.offsets, "low": self.low,
            "high": self.high, "widths": self.widths,
        }  # fmt: skip
        meta = {
            "schema_version": SCHEMA_VERSION, "kind": "op model", "foretrace": __version__, "family": self.family,
            "shape_features": self.shape_features, "device_features": self.device_features, "flags": self.flags,
            "groups": self.groups, "least_over_roofline": self.least_over_roofline, "card": self.card,
        }  # fmt: skip
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            members = {"meta.json": encode(meta).encode()}
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
                members[f"{name}.npy"] = buffer.getvalue()
            for name in sorted(members):
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), members[name], zipfile.ZIP_DEFLATED)

    @classmethod
    def load(cls, path: Path) -> FamilyModel:
        """Read one file. Raises `InputError` when it is absent, damaged, of another kind or of a later version."""
        try:
            with zipfile.ZipFile(path) as archive:
                meta = json.loads(archive.read("meta.json"))
                arrays = {
                    name.removesuffix(".npy"): np.lib.format.read_array(
                        io.BytesIO(archive.read(name)), allow_pickle=False
                    )
                    for name in archive.namelist()
                    if name.endswith(".npy")
                }
        except OSError as error:
            raise InputError(f"{path}: cannot read the model: {reason(error)}") from error
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: is no model of op prices or is damaged ({error}); train it again") from error
        if not isinstance(meta, dict) or meta.get("kind") != "op model":
            raise InputError(f"{path}: is no model of op prices; train one with foretrace datasets fit")
        if meta.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"{path}: has schema_version {meta.get('schema_version')!r}, this foretrace reads {SCHEMA_VERSION}; "
                "train it again with foretrace datasets fit"
            )
        try:
            shape, device, flags, groups = (
                tuple(meta[name]) for name in ("shape_features", "device_features", "flags", "groups")
            )
            width = len(shape) + len(device) + len(flags)
            where = str(path)
            return cls(
                meta["family"], shape, device, flags,
                Trees.of_arrays(arrays, "blind_", features=width, where=where),
                Trees.of_arrays(arrays, "known_", features=width + 2, where=where), groups, arrays["offsets"],
                arrays["low"], arrays["high"], arrays["widths"], float(meta["least_over_roofline"]), meta["card"],
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is damaged ({error}); train it again with foretrace datasets fit") from error
