"""Opening a session comes to an end, whatever is missing in the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from holdfast import LeaseHeld, open_store
from holdfast.core.entries import LeaseReleased, LeaseTaken
from holdfast.drivers.contract import Append, Conflict, Outcome
from holdfast.drivers.memory import MemoryDriver
from holdfast.engine.committer import make_append
from holdfast.engine.journal import Journal
from holdfast.errors import Corrupt, Fenced
from holdfast.ids import SessionId
from tests.internals import engine_of
from tests.session.example_sessions import StoreUrl, step


def _delete_last_line(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM chunks WHERE seq = (SELECT max(seq) FROM chunks)")
    connection.commit()
    connection.close()


def _delete_all_lines(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM chunks")
    connection.commit()
    connection.close()


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the last line": ("sqlite", _delete_last_line),
    "all lines": ("sqlite", _delete_all_lines),
    "the lock": ("dir", lambda path: (path / "sessions" / "s" / "lock").unlink()),
    "the journal": ("dir", lambda path: (path / "sessions" / "s" / "journal.jsonl").unlink()),
    "the last commit": ("dir", lambda path: _cut_last(path / "sessions" / "s" / "journal.jsonl")),
}


def _cut_last(journal: Path) -> None:
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize("missing", DAMAGES)
@pytest.mark.parametrize("wait_s", [0, 1])
async def test_a_session_that_lacks_something_is_corrupt_and_not_waited_for(
    tmp_path: Path, missing: str, wait_s: float
) -> None:
    """The error says what is missing; not every refusal is another process that was quicker."""
    scheme, damage = DAMAGES[missing]
    url = f"{scheme}:{tmp_path / 'store'}"
    async with open_store(url) as store:
        async with store.session("s") as session:
            await step(session, "hello")
    damage(tmp_path / "store")
    async with open_store(url) as store:
        with pytest.raises(Corrupt, match=r"session 's'|sessions/s/"), anyio.fail_after(60):
            await store.session("s", wait_s=wait_s).__aenter__()


async def test_a_driver_that_refuses_what_it_says_itself_is_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer would have moved the end of the journal; nothing has."""
    driver = MemoryDriver()
    async with open_store(driver) as store:
        async with store.session("s") as session:
            await step(session, "hello")

        def refuse(batch: list[Append], *, wait: bool = True) -> list[Outcome]:
            return [Conflict("another sum") for _ in batch]

        with monkeypatch.context() as patch:
            patch.setattr(driver, "commit", refuse)
            with pytest.raises(Corrupt, match="another sum"), anyio.fail_after(60):
                await store.session("s").__aenter__()
        async with store.session("s") as session:
            await step(session, "more")


async def test_a_session_that_does_not_know_yet_that_it_is_out_does_not_keep_others_waiting(
    store_url: StoreUrl,
) -> None:
    """Another process took its lease and gave it back; here, it is still open."""
    async with open_store(store_url) as store, store.session("s") as session:
        await session.flush()
        state = Journal(engine_of(store).driver, SessionId("s")).fold()
        after = state.facts.head.sum
        bodies = (LeaseTaken(holder="another", name="n"), LeaseReleased())
        sealed = [state.append(body, engine_of(store).now()) for body in bodies]
        item = make_append(sealed, after=after, head=state.facts.head)
        await engine_of(store).call(engine_of(store).committer.commit_now, item)
        with pytest.raises(LeaseHeld, match="this process"), anyio.fail_after(60):
            await store.session("s").__aenter__()
        with pytest.raises(Fenced):
            await step(session, "too late")
