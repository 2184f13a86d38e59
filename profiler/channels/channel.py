"""Channel: one thing that can be recorded while steps run, or the reason why it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class StepWindow:
    """One step inside the active window, in seconds of the session's clock."""

    step: int
    start_s: float
    end_s: float
    described: bool = False
    """True when the execution trace ran in it, which makes every op several times slower."""

    @property
    def time_s(self) -> float:
        """Wall seconds."""
        return self.end_s - self.start_s


Rows = dict[str, list[dict[str, Any]]]
"""Table -> rows, as `RunWriter.write` takes them."""


class Channel(Protocol):
    """What a session asks of a channel: `available`, then for every active window `start`, `stop`, `rows`."""

    name: str

    def available(self) -> str | None:
        """None when it can record here, else the reason why not. Asked once, before the first window."""

    def start(self) -> None:
        """The active window begins."""

    def stop(self) -> None:
        """The active window ends; called again without a start it does nothing."""

    def rows(self, steps: Sequence[StepWindow]) -> Rows:
        """What the last window recorded. `steps` are those of its steps that were finished; what lies outside of them
        belongs to none."""

    def last_rows(self) -> Rows:
        """What can only be told at the end of the run; called once, after the last window."""

    def facts(self) -> dict[str, Any]:
        """For the channel's entry in the manifest, beside `status` and `reason`; `reason` here means that nothing
        could be recorded after all."""
