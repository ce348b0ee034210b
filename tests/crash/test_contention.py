"""Many processes at one store: each waits for its turn, without an error."""

from pathlib import Path

import pytest

from tests.stores import open_driver

from .fork_server import Line, Warm
from .writers import look, write_and_reopen

PROCESSES = 8


def open_at_once(line: Line, url: str) -> str:
    """Open a store that does not exist yet, on a signal; its id."""
    line.say("ready")
    line.hear()
    driver = open_driver(url)
    try:
        return driver.store_id()
    finally:
        driver.close()


def _hammer(warm: Warm, scheme: str, folder: Path, times: int) -> None:
    url = f"{scheme}:{folder}/store"
    acks = [str(folder / f"acks-{slot}") for slot in range(PROCESSES)]
    writers = [warm.start(write_and_reopen, url, slot, path, times=times) for slot, path in enumerate(acks)]
    try:
        turns = sum(writer.result(240) for writer in writers)
    finally:
        for writer in writers:
            writer.end()
    assert turns >= PROCESSES * times
    assert warm.call(look, url, *acks) == []
    print(f"{turns} turns in {PROCESSES} processes")


def test_contention_is_never_an_error(warm: Warm, scheme: str, quick_path: Path) -> None:
    """Eight processes write, close and open again: "database is locked" reaches no caller."""
    _hammer(warm, scheme, quick_path, times=8)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_contention_is_never_an_error_for_long(warm: Warm, scheme: str, tmp_path: Path) -> None:
    """The same for longer, on a real disk."""
    _hammer(warm, scheme, tmp_path, times=40)


def _open_at_once(warm: Warm, scheme: str, folder: Path, rounds: int) -> None:
    for number in range(rounds):
        url = f"{scheme}:{folder}/{number}/deeper/store"
        openers = [warm.start(open_at_once, url) for _ in range(PROCESSES)]
        try:
            for opener in openers:
                assert opener.hear() == "ready"
            for opener in openers:
                opener.say("go")
            ids = {opener.result() for opener in openers}
        finally:
            for opener in openers:
                opener.end()
        assert len(ids) == 1, f"one store, several ids in round {number}"


def test_eight_processes_make_one_store(warm: Warm, scheme: str, quick_path: Path) -> None:
    """They open it for the first time at the same moment: it is created once, and all use it."""
    _open_at_once(warm, scheme, quick_path, rounds=20)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_eight_processes_make_one_store_many_times(warm: Warm, scheme: str, tmp_path: Path) -> None:
    """The same more often, on a real disk."""
    _open_at_once(warm, scheme, tmp_path, rounds=100)
