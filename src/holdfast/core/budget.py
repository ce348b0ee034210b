"""Caps on spending, and what was spent."""

from __future__ import annotations

from msgspec import Struct

from ..errors import BadInput


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Caps on what a session may spend. None means no cap."""

    usd: float | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            cap = getattr(self, name)
            if cap is not None and not (isinstance(cap, int | float) and 0 <= cap < float("inf")):
                raise BadInput(f"Budget({name}={cap!r}): a cap is a finite number, zero or more, or None")


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one model reply, or of many."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def is_negative(self) -> bool:
        """Whether a count is negative: recorded, it would reduce what was spent before."""
        return min(self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_write_tokens) < 0

    def without_negatives(self) -> Usage:
        """The same with zero in place of negative counts."""
        if not self.is_negative:
            return self
        return Usage(
            input_tokens=max(self.input_tokens, 0),
            output_tokens=max(self.output_tokens, 0),
            cache_read_tokens=max(self.cache_read_tokens, 0),
            cache_write_tokens=max(self.cache_write_tokens, 0),
        )

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cache_read_tokens=self.cache_read_tokens - other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens - other.cache_write_tokens,
        )


class Reservation(Struct, frozen=True, omit_defaults=True):
    """The most that a request may cost; it counts as spent until the outcome of the request is known."""

    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: Reservation) -> Reservation:
        return Reservation(self.usd + other.usd, self.tokens + other.tokens)


class BudgetState(Struct, frozen=True, kw_only=True):
    """The caps of a session, and what it has spent; `reserved` is for requests without an outcome."""

    caps: Budget
    usd: float
    tokens: int
    steps: int
    seconds: float
    reserved: Reservation

    def find_breach(self, wanted: Reservation) -> tuple[str, float, float, float] | None:
        """The first cap that `wanted` would exceed, as (cap, limit, spent, wanted), or None."""
        rows: list[tuple[str, float | None, float, float]] = [
            ("usd", self.caps.usd, self.usd + self.reserved.usd, wanted.usd),
            ("tokens", self.caps.tokens, self.tokens + self.reserved.tokens, wanted.tokens),
            ("steps", self.caps.steps, self.steps, 0),
            ("seconds", self.caps.seconds, self.seconds, 0),
        ]
        for cap, limit, spent, more in rows:
            if limit is not None and (spent >= limit or spent + more > limit):
                return cap, limit, spent, more
        return None
