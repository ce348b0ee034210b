"""Eight processes write to one store, and are killed at random moments."""

import random
import time
from pathlib import Path

import pytest

from tests.stores import on_every_driver

from .acknowledged import read_acks
from .fork_server import Child, Warm, poll
from .writers import SHARED, look, write

WRITERS = 8


def _run(warm: Warm, scheme: str, folder: Path, seed: int, kills: int) -> None:
    choose = random.Random(seed)
    url, stop = f"{scheme}:{folder}/store", folder / "stop"
    acks = [folder / f"acks-{slot}" for slot in range(WRITERS)]

    def start(slot: int) -> Child:
        return warm.start(write, url, slot, str(acks[slot]), stop=str(stop))

    writers = [start(slot) for slot in range(WRITERS)]
    try:
        for _ in range(kills):
            # The moment is what is random here: nothing is being waited for.
            time.sleep(choose.uniform(0, 0.15))
            slot = choose.randrange(WRITERS)
            writers[slot].kill()
            assert writers[slot].outcome() is None, "it ended before it was killed"
            writers[slot].end()
            writers[slot] = start(slot)
        poll(lambda: all(path.exists() and path.stat().st_size for path in acks), "everybody to write")
        stop.touch()
        turns = sum(writer.result() for writer in writers)
    finally:
        for writer in writers:
            writer.end()
    assert warm.call(look, url, *map(str, acks)) == []
    # All of them are free at once, however the last holder ended.
    after = folder / "acks-after"
    assert warm.call(write, url, 0, str(after), turns=30) >= 30
    assert warm.call(look, url, *map(str, acks), str(after)) == []
    promises = list(read_acks(*acks))
    assert {ack["session"] for ack in promises if "session" in ack} >= set(SHARED)
    print(f"{kills} kills, {turns} turns by those who survived, {len(promises)} promises kept")


@on_every_driver
def test_kills_at_random_times_lose_nothing(warm: Warm, scheme: str, quick_path: Path, seed: int) -> None:
    """Everything that any of them acknowledged is there, every chain holds, and work goes on."""
    _run(warm, scheme, quick_path, seed, kills=30)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_many_kills_at_random_times_lose_nothing(
    warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """The same for longer."""
    _run(warm, scheme, quick_path, seed, kills=400)
