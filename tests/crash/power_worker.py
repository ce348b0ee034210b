"""The program whose plug is pulled: it says what is durable, and later looks at what is left.

    python -m tests.crash.power_worker SCHEME DIRECTORY            work, and print ACK 0, ACK 1, …
    python -m tests.crash.power_worker SCHEME DIRECTORY verify     print HAVE <n>, or CORRUPT <why>

Operation n is done by worker n modulo 4, each in a session of its own, so that four are under way at once.
What it does depends on n, too; whatever it is leaves `op <n>.` in some line that stays, or in a blob.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from holdfast import Session, Store, open_store
from holdfast.blobs.home import BlobContext
from holdfast.drivers.contract import Driver, HeadFilter
from holdfast.engine.journal import Journal
from tests.internals import take_keyframes_after
from tests.server import PostgresServer, start_on_disk
from tests.stores import POSTGRES, open_driver

from .check import find_damage, find_problems
from .workload import KEYFRAME_ENTRIES

WORKERS = 4
_MARK = re.compile(rb"\bop (\d+)\.")
_MANY = 1_000_000


def _mark(n: int) -> str:
    return f"op {n}."


class Worker:
    """One of those who work at the same time."""

    def __init__(self, store: Store, driver: Driver, session: Session) -> None:
        self.store, self.driver, self.session = store, driver, session
        self.fork: tuple[str, int] | None = None

    async def do(self, n: int) -> None:
        """Operation n; durable on return."""
        await OPERATIONS[n // WORKERS % len(OPERATIONS)](self, n)

    async def say(self, n: int) -> None:
        await self.session.add(_mark(n))
        await self.session.flush()

    async def keep(self, n: int) -> None:
        await self.session.set(_mark(n), n)
        await self.session.checkpoint()

    async def ask(self, n: int) -> None:
        async with self.session.run() as run, run.request(reserve_usd=0.01) as request:
            await request.reply(_mark(n))

    async def post(self, n: int) -> None:
        await self.store.submit(self.session.id, _mark(n))

    async def run_by_name(self, n: int) -> None:
        async with self.session.run(run_id=f"run-{n}", agent=_mark(n)):
            pass

    async def branch(self, n: int) -> None:
        name = f"fork-{n}"
        await self.store.fork(self.session.id, into=name, labels={"made": _mark(n)})
        self.fork = name, n

    async def cut(self, n: int) -> None:
        """Delete the fork, after saying so: then its own mark may be gone."""
        assert self.fork is not None
        name, made = self.fork
        await self.session.add(f"{_mark(n)} {_mark(made)}")
        await self.session.flush()
        await self.store.delete(name)

    async def attach(self, n: int) -> None:
        data = _mark(n).encode()
        digest = hashlib.sha256(data).hexdigest()
        put = partial(self.driver.blobs.put, digest, [data], BlobContext(), owner=self.driver.store_id())
        await anyio.to_thread.run_sync(put)

    async def go_back(self, n: int) -> None:
        await self.session.add(_mark(n))
        await self.session.checkpoint()
        await self.session.rewind(version=self.session.checkpoints[0].version)


Operation: TypeAlias = Callable[[Worker, int], Awaitable[None]]
OPERATIONS: tuple[Operation, ...] = (
    Worker.say,
    Worker.keep,
    Worker.ask,
    Worker.branch,
    Worker.post,
    Worker.run_by_name,
    Worker.cut,
    Worker.attach,
    Worker.go_back,
)
_CUT = OPERATIONS.index(Worker.cut)
_ATTACH = OPERATIONS.index(Worker.attach)


class Durable:
    """Prints ACK n once everything up to n is durable."""

    def __init__(self) -> None:
        self._done: set[int] = set()
        self._next = 0

    def add(self, n: int) -> None:
        self._done.add(n)
        while self._next in self._done:
            self._done.remove(self._next)
            print("ACK", self._next, flush=True)
            self._next += 1


async def work(url: str) -> None:
    """Until the plug is pulled."""
    take_keyframes_after(KEYFRAME_ENTRIES)
    driver = await anyio.to_thread.run_sync(open_driver, url)
    durable = Durable()
    async with open_store(driver) as store, anyio.create_task_group() as tasks:
        for number in range(WORKERS):
            tasks.start_soon(_work, store, driver, number, durable)


async def _work(store: Store, driver: Driver, number: int, durable: Durable) -> None:
    async with store.session(f"worker-{number}") as session:
        worker = Worker(store, driver, session)
        for n in range(number, _MANY, WORKERS):
            await worker.do(n)
            durable.add(n)


def find_last(driver: Driver) -> int:
    """Everything up to this operation is there."""
    tips = driver.list_tips(HeadFilter(), None, _MANY)
    marks: set[int] = set()
    for tip in tips:
        for page in Journal(driver, tip.session).pages(said=True):
            for part in (page.facts, page.details, page.said or b""):
                marks.update(map(int, _MARK.findall(part)))
        for row in driver.read_inbox(tip.session, 0, _MANY):
            marks.update(map(int, _MARK.findall(row.item)))
    names = {str(tip.session) for tip in tips}
    for n in range(_MANY):
        operation = n // WORKERS % len(OPERATIONS)
        there = n in marks
        if operation == _ATTACH:
            there = driver.blobs.find(hashlib.sha256(_mark(n).encode()).hexdigest()) is not None
        elif operation == _CUT:
            # Three operations of the same worker after the fork was made.
            there = there and f"fork-{n - 3 * WORKERS}" not in names
        if not there:
            return n - 1
    return _MANY


async def go_on(url: str) -> None:
    """Every session can be opened at once and written to."""
    async with open_store(await anyio.to_thread.run_sync(open_driver, url)) as store:
        async for head in store.sessions():
            async with store.session(head.session) as session:
                await session.add("after the lights came back")
                await session.checkpoint()


def verify(url: str) -> str:
    """What is left, in the words of `power_cut.py`."""
    scheme, _, path = url.partition(":")
    if scheme != "postgresql" and not Path(path).exists():
        return "HAVE -1"
    driver = open_driver(url)
    problems = find_problems(driver, [])
    have = find_last(driver)
    driver.close()
    anyio.run(go_on, url)
    driver = open_driver(url)
    problems += find_problems(driver, [])
    driver.close()
    problems += find_damage(url)
    return f"CORRUPT {problems}" if problems else f"HAVE {have}"


def main(scheme: str, directory: str, verifying: bool) -> None:
    """Work or verify; where there is a server, in its company."""
    url = f"{scheme}:{directory}/store"
    server: PostgresServer | None = None
    if scheme == "postgresql":
        server = start_on_disk(Path(directory))
        os.environ[POSTGRES] = server.url
    if verifying:
        print(verify(url))
    else:
        anyio.run(work, url)
    if server is not None:
        server.stop(signal.SIGINT)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["verify"])
