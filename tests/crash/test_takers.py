"""Who may take over from a holder, when, and how many."""

import fcntl
import os
import sys
import time
from pathlib import Path

import anyio
import pytest

from holdfast import open_store
from tests.stores import on_every_driver, open_driver

from . import faults
from .fork_server import Child, Line, Warm, poll
from .holders import SESSION, find_life, hold, read_journal, take
from .writers import look

TAKERS = 8
LONG_TERM_S = 60.0
"""So long that nobody waits for it: who takes over sooner had proof."""
SHORT_TERM_S = 1.0
TERM_S = 5.0
"""So long that a live holder beats within it, and a child begins within it, however busy the machine is."""
AT_ONCE_S = LONG_TERM_S / 2


def _race(warm: Warm, url: str, acks: Path, rounds: int) -> None:
    """In each round the holder is killed and eight try to take the session; the winner is the next holder."""
    holder = warm.start(hold, url, str(acks), lease_s=LONG_TERM_S)
    fences = [holder.hear()["fence"]]
    takers: list[Child] = []
    try:
        for _ in range(rounds):
            takers = [warm.start(take, url, LONG_TERM_S) for _ in range(TAKERS)]
            for taker in takers:
                assert taker.hear() == "ready"
            holder.end()
            for taker in takers:
                taker.say("go")
            answers = [taker.hear() for taker in takers]
            winners = [taker for taker, answer in zip(takers, answers, strict=True) if "fence" in answer]
            assert len(winners) == 1, answers
            (won,) = [answer for answer in answers if "fence" in answer]
            assert won["fence"] > fences[-1]
            assert won["took_s"] < AT_ONCE_S, "it waited for the term, or nearly"
            fences.append(won["fence"])
            holder = winners[0]
            for taker in takers:
                if taker is not holder:
                    taker.say("go home")
                    taker.result()
                    taker.end()
    finally:
        for child in (holder, *takers):
            child.end()
    lines = warm.call(read_journal, url)
    taken = sum(line.count('"kind":"lease.taken"') for line in lines)
    assert taken == len(fences), "somebody took the lease without being told"
    assert warm.call(look, url, str(acks)) == []


@on_every_driver
def test_one_of_eight_takers_wins_at_once(warm: Warm, url: str, quick_path: Path) -> None:
    """They race for a dead holder's session: one has it at once, without waiting for the term, and seven
    are told that it is held."""
    _race(warm, url, quick_path / "acks", rounds=3)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_of_eight_takers_wins_at_once_many_times(warm: Warm, url: str, quick_path: Path) -> None:
    """The same more often."""
    _race(warm, url, quick_path / "acks", rounds=40)


@on_every_driver
def test_a_killed_holder_is_recognised_at_once(warm: Warm, url: str, quick_path: Path) -> None:
    """The kernel lets go of its lock: that is proof. While it lives, it is not even suspected."""
    with warm.child(hold, url, str(quick_path / "acks"), lease_s=LONG_TERM_S) as holder:
        fence = holder.hear()["fence"]
        life = warm.call(find_life, url)
        assert life["alive"]
        assert life["left_s"] > 0
    with warm.child(hold, url, str(quick_path / "acks")) as taker:
        assert taker.hear()["fence"] > fence
        taker.say("leave")
        assert taker.result() < AT_ONCE_S


def test_who_looks_at_a_lock_is_not_taken_for_its_holder(warm: Warm, url: str, quick_path: Path) -> None:
    """Several look at a dead holder's lock at the same moment: all of them have proof."""
    temporary = quick_path / "temporary"
    options = {"lease_s": LONG_TERM_S, "temporary": str(temporary)}
    with warm.child(hold, url, str(quick_path / "acks"), **options) as holder:
        holder.hear()
    (lock,) = (temporary / f"holdfast-{os.getuid()}").iterdir()
    with open(lock) as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not warm.call(find_life, url)["alive"]


def test_a_forked_child_does_not_keep_its_dead_parent_alive(warm: Warm, url: str, quick_path: Path) -> None:
    """A holder forks, as programs do, and is killed; its child stays."""
    with warm.child(hold, url, str(quick_path / "acks"), lease_s=LONG_TERM_S) as holder:
        holder.hear()
        holder.say("fork")
        orphan = holder.hear()
        holder.say("write")
        assert holder.hear() == "done"
        assert holder.hear() == "done"
        holder.kill()
        holder.wait()
        with warm.child(hold, url, str(quick_path / "acks")) as taker:
            taker.hear()
            taker.say("leave")
            assert taker.result() < AT_ONCE_S
        assert os.path.exists(f"/proc/{orphan}"), "the child should have stayed"
    poll(lambda: not os.path.exists(f"/proc/{orphan}"), "the orphan to end")


def die_in_a_commit_and_leave_a_child(line: Line, url: str) -> None:
    """Another thread of the program forks while a commit is under way; then the program is killed."""
    disk = faults.install()

    def fork_and_die(event: faults.Event) -> faults.Kill | None:
        synced = event.kind == "sync" and event.path.endswith(("journal.jsonl", "-wal"))
        if not synced and event.path != "the server":
            return None
        if os.fork() == 0:
            line.wait_for_the_end()
        return faults.Kill("before")

    async def write() -> None:
        async with open_store(open_driver(url)) as store, store.session(SESSION) as session:
            await session.add("before")
            await session.flush()
            line.say("about to")
            disk.rule = fork_and_die
            await session.add("during")
            await session.flush()

    anyio.run(write)


def test_a_child_forked_in_the_middle_of_a_commit_blocks_nobody(
    warm: Warm, url: str, quick_path: Path
) -> None:
    """It has a copy of every open file, and must not keep what its dead parent had locked."""
    with warm.child(die_in_a_commit_and_leave_a_child, url) as holder:
        assert holder.hear() == "about to"
        holder.wait()
        with warm.child(hold, url, str(quick_path / "acks")) as taker:
            taker.hear(AT_ONCE_S)
            taker.say("write")
            assert taker.hear(AT_ONCE_S) == "done"
            taker.say("leave")
            taker.result()


# -- what proves nothing ------------------------------------------------------------------------------


def _wait_for_the_term(warm: Warm, url: str, acks: Path, watched: bool) -> None:
    """Nobody takes the session at once; somebody who waits gets it when the term is over."""
    with warm.child(hold, url, str(acks)) as hasty:
        assert hasty.failure().kind == "LeaseHeld"
    with warm.child(hold, url, str(acks), wait_s=60) as patient:
        patient.hear()
        patient.say("leave")
        took_s = patient.result()
    if watched:
        assert took_s >= SHORT_TERM_S, "taken before it was watched for a whole term"


def test_another_boot_proves_nothing(warm: Warm, url: str, quick_path: Path) -> None:
    """A dead holder of another boot is alive until it was watched, silent, for a whole term."""
    acks = quick_path / "acks"
    # A server's clock is everybody's: the term is not watched, and runs from the last heartbeat on.
    by_server = url.startswith("postgresql")
    term_s = 2 * TERM_S if by_server else SHORT_TERM_S
    with warm.child(hold, url, str(acks), lease_s=term_s, boot="another machine") as holder:
        holder.hear()
        life = warm.call(find_life, url)
        assert life["alive"]
        assert (life["left_s"] is None) != by_server
    _wait_for_the_term(warm, url, acks, watched=not by_server)


def test_a_live_holder_of_another_boot_is_never_taken_for_dead(
    warm: Warm, url: str, quick_path: Path
) -> None:
    """Watching it for more than a term shows that it beats."""
    acks = quick_path / "acks"
    with warm.child(hold, url, str(acks), lease_s=TERM_S, boot="another machine") as holder:
        holder.hear()
        with warm.child(hold, url, str(acks), wait_s=1.5 * TERM_S) as taker:
            assert taker.failure().kind == "LeaseHeld"
        holder.say("write")
        assert holder.hear() == "done"


def test_a_missing_lock_proves_nothing(warm: Warm, url: str, quick_path: Path) -> None:
    """Somebody cleaned up the temporary files: neither a live nor a dead holder can be told by its lock."""
    acks, temporary = quick_path / "acks", quick_path / "temporary"
    with warm.child(hold, url, str(acks), lease_s=TERM_S, temporary=str(temporary)) as holder:
        holder.hear()
        (lock,) = (temporary / f"holdfast-{os.getuid()}").iterdir()
        lock.unlink()
        assert warm.call(find_life, url)["alive"]
        holder.say("write")
        assert holder.hear() == "done"
        holder.kill()
        holder.wait()
        _wait_for_the_term(warm, url, acks, watched=False)


def test_a_lock_of_somebody_else_proves_nothing(warm: Warm, url: str, quick_path: Path) -> None:
    """A free lock counts only if it says whose it was, under which boot."""
    acks, temporary = quick_path / "acks", quick_path / "temporary"
    with warm.child(hold, url, str(acks), lease_s=TERM_S, temporary=str(temporary)) as holder:
        holder.hear()
        (lock,) = (temporary / f"holdfast-{os.getuid()}").iterdir()
        said = lock.read_text()
        lock.unlink()
        lock.write_text("another boot\n" + said.partition("\n")[2])
        assert warm.call(find_life, url)["alive"]
        assert lock.exists()


def test_a_record_without_a_lock_proves_nothing(warm: Warm, url: str, quick_path: Path) -> None:
    """Where no lock can be had, the term decides."""
    acks = quick_path / "acks"
    with warm.child(hold, url, str(acks), lease_s=TERM_S, lock=False) as holder:
        holder.hear()
        assert warm.call(find_life, url)["alive"]
    _wait_for_the_term(warm, url, acks, watched=False)


# -- containers ---------------------------------------------------------------------------------------

needs_namespaces = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="a new pid namespace needs root on Linux"
)


@needs_namespaces
@pytest.mark.parametrize("own_temporary_files", [False, True])
def test_two_pid_namespaces_never_prove_each_other_dead(
    warm: Warm, url: str, quick_path: Path, own_temporary_files: bool
) -> None:
    """Both are process 1 of the same host: each sees that the other lives, whether they share their
    temporary files or not."""
    acks = str(quick_path / "acks")
    places = [str(quick_path / name) for name in ("a", "b" if own_temporary_files else "a")]
    with warm.child(hold, url, acks, lease_s=TERM_S, namespace=True, temporary=places[0]) as holder:
        name = holder.hear()["name"]
        assert name.endswith(":1")
        began_s = time.monotonic()
        while time.monotonic() < began_s + 1.2 * TERM_S:
            with warm.child(hold, url, acks, namespace=True, temporary=places[1]) as taker:
                failure = taker.failure()
                assert failure.kind == "LeaseHeld"
                assert SESSION in failure.text
                assert name in failure.text
            holder.say("write")
            assert holder.hear() == "done"


@needs_namespaces
def test_a_holder_killed_in_another_pid_namespace_is_recognised_at_once(
    warm: Warm, url: str, quick_path: Path
) -> None:
    """The lock is the kernel's, not the namespace's."""
    acks, place = str(quick_path / "acks"), str(quick_path / "shared")
    with warm.child(hold, url, acks, lease_s=LONG_TERM_S, namespace=True, temporary=place) as holder:
        holder.hear()
    with warm.child(hold, url, acks, wait_s=AT_ONCE_S, namespace=True, temporary=place) as taker:
        taker.hear()
        taker.say("leave")
        assert taker.result() < AT_ONCE_S
