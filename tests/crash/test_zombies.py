"""A holder that sleeps through its lease wakes up without a right to write."""

import signal
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

import anyio.to_thread
import pytest

from holdfast import open_store
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import Fenced
from holdfast.ids import HolderId, SessionId
from holdfast.testing.conformance.author import read_all
from tests.internals import engine_of
from tests.stores import on_every_driver

from .fork_server import Child, Warm, poll
from .holders import SESSION, WRITING, find_life, hold, read_journal
from .writers import look

TERM_S = 1.0
STOPS = ("stop", "stop before a commit", "stop after a commit")


def _obey(holder: Child, order: str) -> str:
    holder.say(order)
    return str(holder.hear())


def _stop(holder: Child, order: str) -> None:
    """Stop it while it is idle, or in the committer's thread with lines in its hand or just written."""
    holder.say(order)
    if order != "stop":
        assert holder.hear() == "done"
        holder.say("write")
    holder.wait_stopped()


def _zombie_wakes_up(warm: Warm, url: str, acks: Path, order: str) -> None:
    with warm.child(hold, url, str(acks / "zombie"), lease_s=TERM_S) as zombie, ExitStack() as more:
        first = zombie.hear()["fence"]
        assert _obey(zombie, "write") == _obey(zombie, "checkpoint") == "done"
        stopped_s = time.monotonic()
        _stop(zombie, order)
        taker = more.enter_context(warm.child(hold, url, str(acks / "taker"), lease_s=TERM_S, wait_s=60))
        assert taker.hear()["fence"] > first
        assert time.monotonic() - stopped_s > TERM_S / 2, "taken before the term was over"
        assert _obey(taker, "write") == "done"
        before = warm.call(read_journal, url)

        zombie.kill(signal.SIGCONT)
        # A commit that was there before the lease was taken is there; one that was not is refused.
        assert zombie.hear() == ("Fenced" if order == "stop before a commit" else "done")
        assert [_obey(zombie, one) for one in WRITING] == ["Fenced"] * len(WRITING)
        assert warm.call(read_journal, url) == before, "a line of the zombie's was accepted"

        assert [_obey(taker, one) for one in WRITING] == ["done"] * len(WRITING)
        zombie.say("leave")
        assert zombie.result() >= 0
        taker.say("leave")
        taker.result()
    assert warm.call(look, url, str(acks / "zombie"), str(acks / "taker")) == []


@pytest.mark.parametrize("order", STOPS)
@on_every_driver
def test_not_a_line_of_a_zombie_is_accepted(warm: Warm, url: str, quick_path: Path, order: str) -> None:
    """It is stopped, somebody takes over after the term, it goes on: it is told `Fenced`, whatever it
    tries, and the journal is as it was."""
    _zombie_wakes_up(warm, url, quick_path, order)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_not_a_line_of_many_zombies_is_accepted(warm: Warm, scheme: str, quick_path: Path) -> None:
    """The same again and again, in one store."""
    for turn in range(5):
        for order in STOPS:
            folder = quick_path / f"{turn} {order}"
            folder.mkdir()
            _zombie_wakes_up(warm, f"{scheme}:{folder}/store", folder, order)


def test_a_lease_that_ran_out_and_that_nobody_took_goes_on(warm: Warm, url: str, quick_path: Path) -> None:
    """Being late is not a fault as long as nobody was waiting."""
    with warm.child(hold, url, str(quick_path / "acks"), lease_s=TERM_S) as holder:
        fence = holder.hear()["fence"]
        assert _obey(holder, "write") == "done"
        _stop(holder, "stop")
        poll(lambda: not warm.call(find_life, url)["alive"], "the lease to run out", pause_s=0.05)
        holder.kill(signal.SIGCONT)
        assert holder.hear() == "done"
        assert [_obey(holder, one) for one in WRITING] == ["done"] * len(WRITING)
        assert warm.call(find_life, url)["fence"] == fence
        poll(lambda: bool(warm.call(find_life, url)["alive"]), "the lease to be renewed", pause_s=0.05)
    assert warm.call(look, url, str(quick_path / "acks")) == []


# -- in memory ----------------------------------------------------------------------------------------


class FrozenDriver(MemoryDriver):
    """Loses the heartbeats of those who are frozen, as if they slept."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen: set[HolderId] = set()

    def beat(
        self, holder: HolderId, record: bytes, sessions: Collection[SessionId]
    ) -> Mapping[SessionId, int]:
        return {} if holder in self.frozen else super().beat(holder, record, sessions)


async def test_not_a_line_of_a_zombie_is_accepted_in_memory() -> None:
    """Two stores over one driver are two holders; the rule is the same."""
    driver = FrozenDriver()
    async with open_store(driver, lease_s=0.2) as asleep, open_store(driver, lease_s=0.2) as awake:
        zombie = await asleep.session(SESSION).__aenter__()
        await zombie.add("mine")
        await zombie.checkpoint()
        lease = zombie.state.facts.head.lease
        assert lease is not None
        driver.frozen.add(lease.holder)
        async with awake.session(SESSION, wait_s=60) as taker:
            assert taker.fence > zombie.fence
            await taker.add("now mine")
            await taker.flush()
            before = read_all(driver, zombie.id)
            driver.frozen.clear()
            await zombie.add("still mine?")
            with pytest.raises(Fenced):
                await zombie.flush()
            for _ in range(3):
                with pytest.raises(Fenced):
                    await zombie.checkpoint("again")
            assert read_all(driver, zombie.id) == before
            await zombie.__aexit__(None, None, None)
            assert read_all(driver, zombie.id) == before
            await taker.checkpoint("it goes on")


async def test_a_lease_that_ran_out_goes_on_in_memory() -> None:
    """Nobody took it, so it is simply renewed."""
    driver = FrozenDriver()
    async with open_store(driver, lease_s=0.2) as store, store.session(SESSION) as session:
        lease = session.state.facts.head.lease
        assert lease is not None
        holder = lease.holder
        driver.frozen.add(holder)
        async with open_store(driver) as other:
            judge = engine_of(other).heartbeat.judge
            await anyio.to_thread.run_sync(lambda: poll(lambda: not judge(holder).alive, "the term's end"))
            await session.add("late, but not too late")
            await session.checkpoint()
            driver.frozen.clear()
            await anyio.to_thread.run_sync(lambda: poll(lambda: judge(holder).alive, "a heartbeat"))
