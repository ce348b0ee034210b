"""A durable run is killed in its tools and requests, and made again by another process.

`test_crash_matrix.py` kills larger runs at every boundary; these are the places that matter most.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..crash.fork_server import Warm
from .killed_runs import pay_twice

PLACES = ["pay 1 began", "pay 2 ended", "asked 1", "before 4"]


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
def test_killed_in_the_middle_of_a_batch_a_run_ends_as_if_it_had_not_been(
    warm: Warm, quick_path: Path, streamed: bool
) -> None:
    """Each payment is made once, each recorded reply is asked for once, and the items are the same."""
    calm = quick_path / "calm"
    calm.mkdir()
    wanted = warm.call(pay_twice, str(calm), "sqlite", streamed=streamed)
    assert (len(wanted["paid"]), wanted["asked"]) == (2, ["0", "1", "2"])
    for place in PLACES:
        trial = quick_path / place
        trial.mkdir()
        with warm.child(pay_twice, str(trial), "sqlite", streamed=streamed, kill=place) as child:
            assert child.outcome() is None, f"it was not killed {place}"
        found = warm.call(pay_twice, str(trial), "sqlite", streamed=streamed)
        for name in ("output", "items", "inputs"):
            assert found[name] == wanted[name], (place, name)
        assert len(found["paid"]) == len(set(found["paid"])) == 2, place
        # Only a request that was under way, or whose reply was not durable yet, is made again.
        assert sorted(set(found["asked"])) == ["0", "1", "2"], place
        assert len(found["asked"]) <= 4, place
