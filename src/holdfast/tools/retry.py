"""When to try again, and after which pause: for tools, requests to models and runs of workers."""

from __future__ import annotations

from msgspec import Struct

from ..errors import BadInput


class Retry(Struct, frozen=True, kw_only=True):
    """Try again after a definite failure, or (idempotent tools) after any: `attempts` in all."""

    attempts: int = 3
    backoff_s: float = 0.5
    factor: float = 2.0
    backoff_max_s: float = 30.0
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.backoff_s < 0 or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise BadInput(
                f"{self}: attempts is at least 1, backoff_s at least 0, factor at least 1, jitter from 0 to 1"
            )

    def pause_s(self, attempt: int, chance: float) -> float:
        """The pause after this attempt; `chance` is a random number from 0 to 1."""
        pause = min(self.backoff_s * self.factor ** (attempt - 1), self.backoff_max_s)
        return pause * (1 - self.jitter + 2 * self.jitter * chance)
