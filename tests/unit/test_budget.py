"""Caps, and what breaks them."""

from typing import Any

import pytest

from holdfast import Budget
from holdfast.errors import BadInput
from holdfast.records import BudgetState, Reservation, Usage


def spent(caps: Budget, **fields: Any) -> BudgetState:
    """A session that spent this much."""
    nothing: dict[str, Any] = {"usd": 0.0, "tokens": 0, "steps": 0, "seconds": 0.0, "reserved": Reservation()}
    return BudgetState(caps=caps, **{**nothing, **fields})


@pytest.mark.parametrize(
    ("state", "wanted", "breach"),
    [
        (spent(Budget()), Reservation(1e9, 10**12), None),
        (spent(Budget(usd=1), usd=0.5), Reservation(0.5), None),
        (spent(Budget(usd=1), usd=0.5), Reservation(0.51), ("usd", 1, 0.5, 0.51)),
        (spent(Budget(usd=1), usd=1.0), Reservation(), ("usd", 1, 1.0, 0.0)),
        (spent(Budget(usd=1), usd=0.5, reserved=Reservation(0.4)), Reservation(0.2), ("usd", 1, 0.9, 0.2)),
        (spent(Budget(tokens=100), tokens=60), Reservation(0, 40), None),
        (spent(Budget(tokens=100), tokens=60), Reservation(0, 41), ("tokens", 100, 60, 41)),
        (
            spent(Budget(tokens=100), tokens=60, reserved=Reservation(0, 40)),
            Reservation(),
            ("tokens", 100, 100, 0),
        ),
        (spent(Budget(steps=3), steps=2), Reservation(), None),
        (spent(Budget(steps=3), steps=3), Reservation(), ("steps", 3, 3, 0)),
        (spent(Budget(seconds=60), seconds=59.9), Reservation(), None),
        (spent(Budget(seconds=60), seconds=60.0), Reservation(), ("seconds", 60, 60.0, 0)),
        (spent(Budget(usd=0)), Reservation(), ("usd", 0, 0.0, 0.0)),
    ],
)
def test_a_cap_is_broken_by_what_was_spent_reserved_and_wanted_together(
    state: BudgetState, wanted: Reservation, breach: tuple[str, float, float, float] | None
) -> None:
    """The breach names the cap, its limit, what is gone and what was wanted."""
    assert state.find_breach(wanted) == breach


@pytest.mark.parametrize("cap", [-1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["usd", "tokens", "steps", "seconds"])
def test_a_cap_is_a_finite_number_of_zero_or_more(name: str, cap: float) -> None:
    """Anything else would be no cap, or one that is broken from the start."""
    with pytest.raises(BadInput, match=rf"Budget\({name}="):
        Budget(**{name: cap})  # type: ignore[arg-type]


def test_usage_adds_up() -> None:
    """Tokens of many replies; the total counts input and output."""
    one = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4)
    two = Usage(input_tokens=10, output_tokens=20, cache_read_tokens=30, cache_write_tokens=40)
    assert one + two == Usage(input_tokens=11, output_tokens=22, cache_read_tokens=33, cache_write_tokens=44)
    assert (one + two).tokens == 33
