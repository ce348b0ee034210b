"""A durable run is killed at each of its boundaries, and made again by another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..crash.fork_server import Warm
from .killed_runs import pay_twice

PLACES = ["pay 1 began", "pay 1 ended", "pay 2 began", "pay 2 ended", "asked 0", "asked 1", "asked 2"]


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
def test_killed_at_any_boundary_a_run_ends_as_if_it_had_not_been(
    warm: Warm, quick_path: Path, scheme: str, streamed: bool
) -> None:
    """Each payment is made once, each recorded reply is asked for once, and the items are the same."""
    calm = quick_path / "calm"
    calm.mkdir()
    wanted = warm.call(pay_twice, str(calm), scheme, streamed=streamed)
    assert (len(wanted["paid"]), wanted["asked"]) == (2, ["0", "1", "2"])
    around = [f"{when} {number}" for number in range(wanted["commits"]) for when in ("before", "after")]
    for place in [*around, *PLACES]:
        trial = quick_path / place
        trial.mkdir()
        with warm.child(pay_twice, str(trial), scheme, streamed=streamed, kill=place) as child:
            assert child.outcome() is None, f"it was not killed {place}"
        found = warm.call(pay_twice, str(trial), scheme, streamed=streamed)
        assert {**found, "commits": 0, "asked": [], "paid": []} == {
            **wanted, "commits": 0, "asked": [], "paid": [],
        }, place  # fmt: skip
        assert len(found["paid"]) == len(set(found["paid"])) == 2, place
        assert sorted(set(found["asked"])) == ["0", "1", "2"], place
        # Only a request that was under way, or whose reply was not durable yet, is made again.
        assert len(found["asked"]) <= 4, place
