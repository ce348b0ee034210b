"""Cadence: at which checkpoints a session waits for the disk, beyond the waits that safety needs."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..errors import BadInput


class Every(Struct, frozen=True, kw_only=True):
    """Wait at every N-th checkpoint, or at the first one after T seconds, whichever comes first."""

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise BadInput("Every() needs steps=… or seconds=…")
        if (self.steps is not None and self.steps < 1) or (self.seconds is not None and self.seconds <= 0):
            raise BadInput(f"{self} would never wait or always: give positive numbers")


Cadence: TypeAlias = Literal["step", "call"] | Every


class Pace:
    """Decides at each checkpoint whether to wait."""

    def __init__(self, cadence: Cadence, now_s: float) -> None:
        if not isinstance(cadence, Every) and cadence not in ("step", "call"):
            raise BadInput(f"cadence is 'step', 'call' or Every(…), not {cadence!r}")
        self.cadence = cadence
        self._steps, self._since_s = 0, now_s

    def is_due(self, now_s: float) -> bool:
        """Whether this checkpoint is one to wait for."""
        if not isinstance(self.cadence, Every):
            return True
        self._steps += 1
        steps, seconds = self.cadence.steps, self.cadence.seconds
        due = (steps is not None and self._steps >= steps) or (
            seconds is not None and now_s - self._since_s >= seconds
        )
        if due:
            self._steps, self._since_s = 0, now_s
        return due
