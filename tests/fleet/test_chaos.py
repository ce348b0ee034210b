"""Five workers, many sessions, and everything that can happen: nothing is lost, and nothing happens twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.crash.warm import Warm

from .chaos import Chaos

SHORT: dict[str, Any] = {"workers": 4, "sessions": 24, "steps": 4, "pause_s": 0.1}
FULL: dict[str, Any] = {"workers": 5, "sessions": 300, "steps": 10, "pause_s": 0.2}


def test_a_fleet_in_trouble_loses_and_repeats_nothing(warm: Warm, quick_path: Path, seed: int) -> None:
    """Workers are killed and stopped while they work; what wakes up too late writes nothing."""
    url = f"sqlite:{quick_path}/store.db"
    print(Chaos(warm, url, quick_path, seed, troubles={}, **SHORT).run(6.0))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_fleet_in_trouble_for_minutes_loses_and_repeats_nothing(
    warm: Warm, quick_path: Path, seed: int
) -> None:
    """The same for longer, with more of everything."""
    url = f"sqlite:{quick_path}/store.db"
    print(Chaos(warm, url, quick_path, seed, troubles={}, **FULL).run(120.0))
