"""Stores for the viewer in a browser: a shop with something of everything, and large ones."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import anyio
from msgspec.structs import replace

import holdfast
from holdfast import Store
from holdfast.core import entries as kinds
from holdfast.core.budget import Usage
from holdfast.drivers.contract import Append, Done
from holdfast.engine.committer import make_append
from tests.cli import clerk as clerk_file
from tests.cli.cli_processes import call
from tests.drawing.example_journals import Author, store_journal, write_eventful, write_steps
from tests.internals import engine_of

CLERK = Path(clerk_file.__file__)
SESSIONS = 10_000
STEPS = 10_000
KILLED_AT = 7_777
"""The step of the long session in which a process was killed."""


async def stock(place: Path) -> None:
    """Sessions that are done, asking, killed with a call in doubt, and eventful."""
    shutil.copy(CLERK, place)
    async with holdfast.open_store(f"sqlite:{place}/holdfast.db") as store:
        clerk = clerk_file.clerk
        for said in ("Refund order 42", "Book a room", "12 please"):
            assert (await clerk.run(said, session="done", store=store)).status == "completed"
        assert (await clerk.run("Delegate it", session="family", store=store)).status == "completed"
        assert (await clerk.run("Ask them", session="asking", store=store)).status == "waiting"
        author, delegates = write_eventful()
        store_journal(store, author)
        assert list(delegates) == ["order-42-helper"]
    # The clerk books a room by a file where it works, which is where the tests run.
    await anyio.Path("room-12").unlink(missing_ok=True)
    killed = call(place, "run clerk.py 'Charge it' --session doubtful", CLERK_DIES_IN="charge")
    assert killed.code == -signal.SIGKILL


async def stock_large(place: Path) -> None:
    """Ten thousand sessions, and one of ten thousand steps, written as their journals would be."""
    async with holdfast.open_store(f"sqlite:{place}/holdfast.db") as store:
        store_journal(store, write_steps(STEPS, killed_at=KILLED_AT))
        await store_many(store, SESSIONS)


async def store_many(store: Store, count: int) -> None:
    """Small sessions of several agents, some of which wait for a person or failed."""
    engine = engine_of(store)
    batch: list[Append] = []
    for number in range(count):
        batch.append(_small(number))
        if len(batch) == 500 or number == count - 1:
            outcomes: Sequence[object] = await engine.call(engine.driver.commit, batch)
            assert all(isinstance(one, Done) for one in outcomes)
            batch = []


def _small(number: int) -> Append:
    author = Author(f"order-{number:05}")
    author.now += timedelta(seconds=number)
    author.add(kinds.LeaseTaken(holder=f"h-{number % 7}", name=f"agent@web-{number % 7}"))
    author.run = f"run-{number}"
    author.add(kinds.RunStarted(agent=("clerk", "planner", "auditor")[number % 3], model="sonnet-9"))
    author.say(f"Refund order {number}")
    author.reply(f"Order {number} is refunded.", took_s=1 + number % 9)
    author.checkpoint()
    if number % 50 == 49:
        author.add(kinds.RunFailed(reason="model_error", error="no such model"))
        author.add(kinds.LeaseReleased())
    else:
        author.release()
    assert author.state.facts.head.usage != Usage()
    return make_append(author.new, after=None, head=replace(author.state.facts.head))
