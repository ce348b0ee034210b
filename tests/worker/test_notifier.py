"""Every call that waits for a person is told: at least once, and once as long as nothing dies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from os import write as really_write
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import anyio
import anyio.to_thread
import pytest

from holdfast import Store, open_store
from holdfast.agents import Waiting
from holdfast.drivers.contract import ClaimChange, Outcome
from holdfast.errors import BadInput, LeaseHeld, StoreFailed
from holdfast.tools import Retry
from holdfast.workers import Notifier, notifier
from tests.agent.scripted_agents import call, make
from tests.crash import faults
from tests.crash.fork_server import Line, Warm
from tests.internals import engine_of
from tests.session.example_sessions import StoreUrl, eventually
from tests.stores import copy_store, on_every_driver, open_driver, share
from tests.worker.example_workers import Log, make_worker

QUICK = Retry(attempts=3, backoff_s=0.01, backoff_max_s=0.02, jitter=0.0)


class Person:
    """Whom a notifier tells. What is in `deaf_to` fails, as often as it says."""

    def __init__(self, **deaf_to: int) -> None:
        self.told: list[str] = []
        self._deaf_to = deaf_to

    async def hear(self, one: Waiting) -> None:
        left = self._deaf_to.get(one.session, 0)
        if left:
            self._deaf_to[one.session] = left - 1
            raise ConnectionError("no route to the person")
        self.told.append(f"{one.session} {one.tool} {one.kind}")


def notify(store: Any, person: Person, **options: Any) -> Notifier:
    """A notifier that does not wait long for anything."""
    return Notifier(store, person.hear, **{"poll_s": 0.01, "retry": QUICK, **options})


async def ask(store: Store, *sessions: str) -> None:
    """Sessions with a call that needs approval."""
    for name in sessions:
        outcome = await make([call("fire", what="ann"), "done"]).run("go", store=store, session=name)
        assert outcome.status == "waiting"


async def doubt(store: Store, session: str) -> None:
    """A session with a call in doubt."""
    outcome = await make([call("vanish", what="rent"), "done"]).run("go", store=store, session=session)
    assert outcome.reason == "in_doubt"


@asynccontextmanager
async def notifying(*notifiers: Notifier) -> AsyncIterator[None]:
    """These notifiers, for the length of the block."""
    async with anyio.create_task_group() as tasks:
        for one in notifiers:
            tasks.start_soon(one.run)
        try:
            yield
        finally:
            for one in notifiers:
                one.stop()


async def until_told(person: Person, count: int) -> None:
    async def has_heard() -> bool:
        return len(person.told) >= count

    await eventually(has_heard)


async def test_each_call_that_waits_is_told_once(store_url: StoreUrl) -> None:
    """Approvals and doubts, the oldest first; a notifier of another name tells them again."""
    person = Person()
    async with open_store(store_url) as store:
        await ask(store, "b")
        await doubt(store, "a")
        for _ in range(2):
            await notify(store, person).run(once=True)
        assert person.told == ["b fire approval", "a vanish in_doubt"]
        await notify(store, person, name="pager").run(once=True)
        assert len(person.told) == 4
    if isinstance(store_url, str):
        await notify(store_url, person).run(once=True)  # It opens the store, and closes it.
        assert len(person.told) == 4


async def test_a_call_that_begins_to_wait_is_told(store_url: StoreUrl) -> None:
    """While the notifier runs, and only the new one."""
    person = Person()
    async with open_store(store_url) as store, notifying(notify(store, person)):
        await ask(store, "a")
        await until_told(person, 1)
        await store.refuse("a", "c-fire", by="ann")
        await doubt(store, "b")
        await until_told(person, 2)
        assert person.told == ["a fire approval", "b vanish in_doubt"]


async def test_the_record_has_what_waits_and_nothing_else(store_url: StoreUrl) -> None:
    """In each claim that is written; three hundred calls are in 256 claims."""
    async with open_store(store_url) as store:
        record = notifier.ToldRecord(engine_of(store), "x")
        one, two, other = "aa1", "aa2", "bb1"
        for id in (one, two, other):
            record.add(id, {one, two, other})
        assert record.find_new([one, two, other, "aa3"]) == ["aa3"]
        record.add("aa3", {two, "aa3", other})
        fresh = notifier.ToldRecord(engine_of(store), "x")
        assert fresh.find_new([one, two, other, "aa3"]) == [one]


async def test_a_call_that_cannot_be_told_is_tried_again_and_delays_no_other(store_url: StoreUrl) -> None:
    """After growing pauses."""
    person = Person(a=2)
    async with open_store(store_url) as store:
        await ask(store, "a", "b")
        async with notifying(notify(store, person)):
            await until_told(person, 2)
        assert person.told == ["b fire approval", "a fire approval"]


async def test_what_could_not_be_told_is_counted_and_stays(store_url: StoreUrl) -> None:
    """For whoever runs it from a timer: the next run tells it."""
    person = Person(a=3)
    async with open_store(store_url) as store:
        await ask(store, "a", "b")
        first = notify(store, person)
        await first.run(once=True)
        assert (first.untold, person.told) == (1, ["b fire approval"])
        second = notify(store, person)
        await second.run(once=True)
        assert (second.untold, person.told) == (0, ["b fire approval", "a fire approval"])


async def test_two_notifiers_tell_each_call_once(store_url: StoreUrl) -> None:
    """One of them tells; the other one takes over when it ends."""
    person = Person()
    async with open_store(store_url) as store, open_store(store_url) as other:
        await ask(store, "a")
        first, second = notify(store, person), notify(other, person)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.run)
            await until_told(person, 1)
            tasks.start_soon(second.run)
            await ask(store, "b")
            await until_told(person, 2)
            with pytest.raises(LeaseHeld):
                await notify(other, person).run(once=True)
            first.stop()
            await ask(store, "c")
            await until_told(person, 3)
            second.stop()
        assert sorted(person.told) == [f"{name} fire approval" for name in "abc"]


async def test_a_function_without_await_runs_in_a_thread() -> None:
    """A slow one blocks no event loop. What it returns is awaited if it can be."""
    threads: list[Any] = []
    going = anyio.Event()
    waiting = Event()

    def tell(one: Waiting) -> None:
        threads.append(current_thread())
        anyio.from_thread.run_sync(going.set)
        assert waiting.wait(300)

    person = Person()
    async with open_store("memory:") as store:
        await ask(store, "a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(Notifier(store, tell).run, once=True))
            await going.wait()
            waiting.set()
        assert threads != [main_thread()]
        await Notifier(store, lambda one: person.hear(one), name="returned").run(once=True)
        assert person.told == ["a fire approval"]


async def test_telling_that_hangs_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again."""
    monkeypatch.setattr(notifier, "NOTIFY_TELL_S", 0.01)
    calls: list[str] = []

    async def hang_once(one: Waiting) -> None:
        calls.append(one.session)
        if len(calls) == 1:
            await anyio.sleep_forever()

    async with open_store("memory:") as store:
        await ask(store, "a")
        await Notifier(store, hang_once, retry=QUICK).run(once=True)
        assert calls == ["a", "a"]


async def test_a_record_that_the_store_did_not_take_is_written_later(store_url: StoreUrl) -> None:
    """The process remembers what it told: the person is told once all the same."""
    person = Person()
    async with open_store(store_url) as store:
        await ask(store, "a")
        driver = engine_of(store).driver
        really_claim, failing = driver.claim, [True]

        def claim(change: ClaimChange) -> Outcome:
            if change.key.startswith("told:") and failing[0]:
                raise StoreFailed("the disk is full")
            return really_claim(change)

        driver.claim = claim  # type: ignore[method-assign]
        with pytest.raises(StoreFailed, match="full"):
            await notify(store, person).run(once=True)
        async with notifying(notify(store, person, name="on")):
            await until_told(person, 2)
            failing[0] = False
            await ask(store, "b")
            await until_told(person, 3)
        driver.claim = really_claim  # type: ignore[method-assign]
        await notify(store, person, name="on").run(once=True)
        assert Counter(person.told) == {"a fire approval": 2, "b fire approval": 1}


async def test_a_damaged_record_is_told_again(store_url: StoreUrl) -> None:
    """Rather than never, or an error for ever."""
    person = Person()
    async with open_store(store_url) as store:
        await ask(store, "a")
        await notify(store, person).run(once=True)
        driver = engine_of(store).driver
        keys = [f"told:on_waiting:{place:02x}" for place in range(256)]
        (key,) = [key for key in keys if driver.find_claim(key) is not None]
        driver.claim(ClaimChange(key=key, expect=driver.find_claim(key), record="nonsense"))
        for _ in range(2):
            await notify(store, person).run(once=True)
        assert person.told == ["a fire approval"] * 2


async def test_options_that_make_no_sense_are_refused() -> None:
    """At once."""
    async with open_store("memory:") as store:
        with pytest.raises(BadInput, match="poll_s"):
            Notifier(store, print, poll_s=0)
        with pytest.raises(BadInput, match="name of a notifier"):
            Notifier(store, print, name="")


# -- workers ---------------------------------------------------------------------------------------------


async def test_a_worker_tells_what_waits(store_url: StoreUrl) -> None:
    """Also what began to wait in its last session, before it ends."""
    person = Person()
    async with open_store(store_url) as store:
        await doubt(store, "old")
        for name in ("a", "b"):
            await store.submit(name, "go", agent="clerk")
        agent = make([call("fire", what="ann"), "done"], name="clerk")
        await make_worker(store, agent, on_waiting=person.hear).run(until_idle=True)
        assert sorted(person.told) == ["a fire approval", "b fire approval", "old vanish in_doubt"]


async def test_workers_tell_once_among_them(store_url: StoreUrl) -> None:
    """Whichever of them begins or ends first."""
    person = Person()
    async with open_store(store_url) as store, open_store(store_url) as other:
        for name in "abcdef":
            await store.submit(name, "go", agent="clerk")
        async with anyio.create_task_group() as tasks:
            for one in (store, other):
                agent = make([call("fire", what="ann"), "done"], name="clerk")
                worker = make_worker(one, agent, on_waiting=person.hear, concurrency=2)
                tasks.start_soon(partial(worker.run, until_idle=True))
        assert sorted(person.told) == [f"{name} fire approval" for name in "abcdef"]


async def test_a_worker_goes_on_when_no_person_can_be_told(store_url: StoreUrl) -> None:
    """And ends when it is idle."""
    log = Log()
    person = Person(a=1000)
    async with open_store(store_url) as store:
        await ask(store, "a")
        await store.submit("b", "go", agent="clerk")
        worker = make_worker(store, make(["hi"], name="clerk"), tell=log, on_waiting=person.hear)
        await worker.run(until_idle=True)
        assert log.kinds == [("b", "taken"), ("b", "completed")]
        assert person.told == []


async def test_a_worker_that_is_stopped_at_once_waits_for_no_person() -> None:
    """Telling that hangs is cut off; the call is told by the next one."""
    hanging = anyio.Event()

    async def hang(one: Waiting) -> None:
        hanging.set()
        await anyio.sleep_forever()

    async with open_store("memory:") as store:
        await ask(store, "a")
        worker = make_worker(store, make(["hi"], name="clerk"), on_waiting=hang)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await hanging.wait()
            worker.stop(now=True)
        person = Person()
        await notify(store, person).run(once=True)
        assert person.told == ["a fire approval"]


# -- kills -----------------------------------------------------------------------------------------------


def tell_into(line: Line, url: str, told: str, number: int = 0, when: faults.When = "before") -> int:
    """Tell what waits by writing it into a file, and die at a change on the disk; the number of changes."""
    file = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    disk = faults.install()
    if number:
        disk.kill_at(number, when)

    async def work() -> None:
        async def write(one: Waiting) -> None:
            really_write(file, f"{one.session}\n".encode())

        async with open_store(open_driver(url)) as store:
            await Notifier(store, write, retry=QUICK).run(once=True)

    anyio.run(work)
    return len(disk.events)


async def _stock(url: str) -> None:
    async with open_store(open_driver(url)) as store:
        await ask(store, "a")
        await doubt(store, "b")


@on_every_driver
def test_a_notifier_that_is_killed_at_any_write_has_told_or_will(
    warm: Warm, scheme: str, quick_path: Path
) -> None:
    """Before and in the middle of each change on the disk: the next one tells what is left. A call is
    told twice only if the process died after telling it and before that was recorded."""
    start = quick_path / "start"
    start.mkdir()
    anyio.run(_stock, f"{scheme}:{start}/store")

    def trial(name: str) -> tuple[str, str]:
        folder = quick_path / name
        copy_store(start, folder)
        return f"{scheme}:{folder}/store", str(folder / "told")

    changes = warm.call(tell_into, *trial("count"))
    assert changes >= 6
    doubled = 0
    whens: tuple[faults.When, ...] = ("before", "half")
    deaths = [(number, when) for number in range(1, changes + 1) for when in whens]
    for number, when in share(scheme, deaths, 4):
        url, told = trial(f"{number}-{when}")
        with warm.child(tell_into, url, told, number, when) as child:
            child.outcome()
        warm.call(tell_into, url, told)
        counts = Counter(Path(told).read_text().split())
        assert set(counts) == {"a", "b"}, (number, when)
        assert sum(counts.values()) <= 3, (number, when)
        doubled += sum(counts.values()) == 3
    assert doubled or scheme == "postgresql"  # A death between telling and recording.
