"""Five workers, many sessions, and everything that can happen: nothing is lost, and nothing happens twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.crash.fork_server import Warm

from .chaos import Chaos
from .server import troubled_server

SHORT: dict[str, Any] = {"workers": 4, "sessions": 24, "steps": 4, "pause_s": 0.1}
FULL: dict[str, Any] = {"workers": 5, "sessions": 300, "steps": 10, "pause_s": 0.2}


def test_a_fleet_in_trouble_loses_and_repeats_nothing(warm: Warm, quick_path: Path, seed: int) -> None:
    """Workers are killed and stopped while they work; what wakes up too late writes nothing."""
    url = f"sqlite:{quick_path}/store.db"
    print(Chaos(warm, url, quick_path, seed, troubles={}, **SHORT).run(6.0))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_fleet_in_trouble_for_minutes_loses_and_repeats_nothing(
    warm: Warm, quick_path: Path, seed: int
) -> None:
    """The same for longer, with more of everything."""
    url = f"sqlite:{quick_path}/store.db"
    print(Chaos(warm, url, quick_path, seed, troubles={}, **FULL).run(120.0))


def _trouble_on_postgres(warm: Warm, folder: Path, seed: int, seconds: float, **size: Any) -> None:
    with troubled_server() as server:
        chaos = Chaos(warm, server.url, folder, seed, troubles=server.troubles, **size)
        print(chaos.run(seconds, calm_down=server.calm_down), f"{server.lost} answers lost")


@pytest.mark.usefixtures("postgres")
def test_a_fleet_on_postgres_loses_and_repeats_nothing(warm: Warm, quick_path: Path, seed: int) -> None:
    """The server is restarted as well, connections are cut, and answers are lost after the commit."""
    _trouble_on_postgres(warm, quick_path, seed, 6.0, **SHORT)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.usefixtures("postgres")
def test_a_fleet_on_postgres_in_trouble_for_minutes_loses_and_repeats_nothing(
    warm: Warm, quick_path: Path, seed: int
) -> None:
    """The same for longer, with more of everything."""
    _trouble_on_postgres(warm, quick_path, seed, 120.0, **FULL)
