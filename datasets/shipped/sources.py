"""Sources: whose measurements foretrace ships, under which licence, and how they were taken (`sources.json`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

LICENCES = ("MIT", "Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0")
"""What may be shipped. Rows of a source under another licence, or none, are left out."""

SHARE_ALIKE = ("CC-BY-SA-4.0",)
"""What may be shipped in files of its own only."""

HERE = Path(__file__).parent


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One public table of measurements."""

    name: str
    table: str
    """ops | collectives | steps | model_ops: which of `columns.TABLES` its rows become."""
    raw: str
    """Its file below the raw folder."""
    repository: str
    """`owner/name` on GitHub."""
    commit: str
    licence: str | None = None
    """SPDX identifier; None when the source states none."""
    copyright: str = ""
    method: str = ""
    """How the times were taken: what is in them besides the kernel."""
    kept: str = ""
    caveats: tuple[str, ...] = ()

    @property
    def share_alike(self) -> bool:
        """True when its rows must stay in a file of their own."""
        return self.licence in SHARE_ALIKE

    @property
    def file(self) -> str:
        """Its packed file below the shipped folder; a share-alike one carries its licence in the name."""
        suffix = f"_{self.licence}" if self.share_alike else ""
        return f"{self.table}/{self.name}{suffix}.parquet"


@lru_cache(maxsize=1)
def sources() -> tuple[Source, ...]:
    """All sources, in the order of `sources.json`."""
    document = msgspec.json.decode((HERE / "sources.json").read_bytes())
    return tuple(msgspec.convert(row, Source) for row in document["sources"])
