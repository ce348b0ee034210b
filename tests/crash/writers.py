"""Processes that write to one store at the same time, each noting what was acknowledged."""

from __future__ import annotations

import os
import random
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from holdfast import LeaseHeld, Session, Store, open_store
from holdfast.errors import NotFound
from tests.internals import take_keyframes_after
from tests.stores import open_driver

from .acknowledged import Acks, read_acks
from .check import find_damage, find_problems
from .fork_server import Line
from .workload import KEYFRAME_ENTRIES

SHARED = ("shared-0", "shared-1", "shared-2")


class Writer:
    """Drives sessions of its own, and some that others want as well; two at a time."""

    def __init__(self, slot: int, acks: Acks) -> None:
        self._slot, self._acks = slot, acks
        self._names = [f"own-{slot}-0", f"own-{slot}-1", *SHARED]
        self._spare = f"spare-{slot}-{os.getpid()}"
        self.turns = 0

    async def write(self, store: Store, turns: int, stop: Path | None) -> None:
        """Until it has had so many turns, or until the file is there."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._take_turns, store, turns, stop)
            tasks.start_soon(self._take_turns, store, turns, stop)

    async def _take_turns(self, store: Store, turns: int, stop: Path | None) -> None:
        while self.turns < turns and not (stop and _exists(stop)):
            self.turns += 1
            try:
                async with store.session(random.choice(self._names)) as session:
                    self._acks.lines(session)
                    for _ in range(random.randint(1, 4)):
                        await self._take_turn(store, session)
                        self._acks.lines(session)
            except LeaseHeld:
                # Also by the other task: both want the same session.
                await anyio.lowlevel.checkpoint()

    async def _take_turn(self, store: Store, session: Session) -> None:
        match random.randrange(8):
            case 0:
                await session.add(f"a word from {self._slot}")
                await session.set("last", self._slot)
                await session.checkpoint()
            case 1:
                async with session.run(agent="a") as run, run.request(reserve_usd=0.01) as request:
                    await request.reply("yes?", cost_usd=0.01)
            case 2:
                await self._submit(store, session)
            case 3 if session.checkpoints:
                await session.rewind(version=random.choice(session.checkpoints).version)
            case 4:
                async with session.run(run_id=f"{session.id}-{os.urandom(4).hex()}") as run:
                    head = session.state.facts.head
                    self._acks.note("ran", run=run.id, session=session.id, uid=head.uid)
            case 5 if session.checkpoints:
                await self._fork_and_delete(store, session)
            case _:
                for number in range(KEYFRAME_ENTRIES // 2):
                    await session.set(f"n{number}", number)
        await session.flush()

    async def _submit(self, store: Store, session: Session) -> None:
        name = random.choice(self._names)
        try:
            uid = (await store.load(name)).facts.head.uid
            number = await store.submit(name, "for you")
        except NotFound:
            return
        self._acks.note("posted", session=name, uid=uid, number=number)

    async def _fork_and_delete(self, store: Store, session: Session) -> None:
        name = f"{self._spare}-{os.urandom(4).hex()}"
        await store.fork(session.id, into=name)
        head = (await store.load(name)).facts.head
        self._acks.note("lines", session=name, uid=head.uid, seq=head.seq, sum=head.sum)
        self._acks.note("deleting", uid=head.uid)
        await store.delete(name)
        self._acks.note("deleted", session=name, uid=head.uid)


def _exists(path: Path) -> bool:
    return path.exists()


# -- in children --------------------------------------------------------------------------------------


def write(line: Line, url: str, slot: int, acks: str, turns: int = 10**9, stop: str = "") -> int:
    """Open the store and take turns; how many."""
    return anyio.run(_write, url, Writer(slot, Acks(Path(acks))), turns, Path(stop) if stop else None)


async def _write(url: str, writer: Writer, turns: int, stop: Path | None) -> int:
    take_keyframes_after(KEYFRAME_ENTRIES)
    driver = await anyio.to_thread.run_sync(open_driver, url)
    async with open_store(driver, linger_s=0.005) as store:
        await writer.write(store, turns, stop)
    return writer.turns


def write_and_reopen(line: Line, url: str, slot: int, acks: str, times: int) -> int:
    """The same, but closing and opening the store again every few turns."""
    return sum(write(line, url, slot, acks, turns=6) for _ in range(times))


def look(line: Line, url: str, *acks: str) -> list[str]:
    """What is wrong with the store."""
    driver = open_driver(url)
    try:
        problems = find_problems(driver, read_acks(*map(Path, acks)))
    finally:
        driver.close()
    return problems + find_damage(url)
