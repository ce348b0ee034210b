"""Sessions that are moved: driven in one store at any time, whatever dies on the way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import Agent, Landed, NotLanded, Registry, Store, ToolContext, open_store, tool
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.agents import ScriptedModel
from holdfast.core.entries import SessionArrived, SessionMoving
from holdfast.drivers.contract import ClaimChange, Driver
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadInput, Closed, LeaseHeld, ReadOnlyReplica
from holdfast.ids import SessionId
from holdfast.records import Parent
from tests.agent.scripted_agents import Counting, call
from tests.crash import faults
from tests.crash.fork_server import Line, Warm
from tests.internals import engine_of
from tests.langgraph.checkpoints_by_hand import Writer
from tests.session.example_sessions import kinds, step, texts
from tests.stores import copy_store, on_every_driver, open_driver, remove_store, share
from tests.tools.example_tools import World, die
from tests.worker.example_workers import work

from . import random_stores


async def make(store: Store, *names: str) -> None:
    """Sessions with a version."""
    for name in names:
        async with store.session(name) as session:
            await step(session, f"hello {name}")


async def is_driven(store: Store, name: str) -> bool:
    """Whether the session can be opened there."""
    try:
        async with store.session(name, create=False):
            return True
    except ReadOnlyReplica:
        return False


async def test_a_moved_session_is_driven_in_the_target_alone(store_url: str | Driver) -> None:
    """With everything that it had; the source says where it is."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source, "s")
        await source.submit("s", "psst", agent="clerk")
        moved = await source.copy(target, move=True)
        assert moved.moved == ("s",)
        for attempt in (source.session("s").__aenter__, lambda: source.submit("s", "more")):
            with pytest.raises(ReadOnlyReplica) as refused:
                await attempt()
            assert refused.value.store == engine_of(target).driver.store_id()
        assert (await kinds(target, "s"))[-4:] == [
            "lease.taken",
            "session.moving",
            "lease.released",
            "session.arrived",
        ]
        assert not (await target.head("s")).replica
        with anyio.fail_after(300):
            done = await work(target, Agent(ScriptedModel(["done"]), name="clerk"))
        assert done == [("s", "taken"), ("s", "completed")]
        assert texts((await target.load("s")).transcript) == ["hello s", "psst", "done"]
        # Moved again, there is nothing left to do.
        again = await source.copy(target, move=True)
        assert again.entries == 0
        assert texts((await target.load("s")).transcript) == ["hello s", "psst", "done"]
        # And back.
        assert (await target.copy(source, move=True)).moved == ("s",)
        assert (await is_driven(source, "s"), await is_driven(target, "s")) == (True, False)
        assert texts((await source.load("s")).transcript) == ["hello s", "psst", "done"]


async def test_the_address_is_told(tmp_path: Path) -> None:
    """Of a store that was opened by its URL."""
    url = f"sqlite:{tmp_path}/b.db"
    async with open_store("memory:") as source, open_store(url) as target:
        await make(source, "s")
        await source.copy(target, move=True)
        with pytest.raises(ReadOnlyReplica, match="was moved to sqlite:"):
            await source.submit("s", "hello")


async def test_a_session_that_is_held_is_not_moved(store_url: str | Driver) -> None:
    """Its holder goes on; nothing was begun."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source, "s")
        async with source.session("s") as session:
            with pytest.raises(LeaseHeld):
                await source.copy(target, move=True)
            await step(session, "two")
        assert "session.moving" not in await kinds(source, "s")
        await source.copy(target, move=True)
        assert await is_driven(target, "s")


async def test_what_the_target_refuses_is_not_begun(store_url: str | Driver) -> None:
    """It has a session of this id; or forks would be left behind; or a dry run was asked for."""
    async with open_store("memory:") as source, open_store(store_url) as target:
        await make(source, "s", "other")
        await make(target, "other")
        with pytest.raises(BadInput, match="another one"):
            await source.copy(target, move=True)
        await source.fork("s", into="fork")
        with pytest.raises(BadInput, match="fork"):
            await source.copy(target, ["s"], move=True)
        with pytest.raises(BadInput, match="keeps its id"):
            await source.copy(target, ["s"], move=True, into="new")
        planned = await source.copy(target, ["s", "fork"], move=True, dry_run=True)
        assert planned.moved == ("s", "fork")
        for name in ("s", "fork", "other"):
            assert await is_driven(source, name)
            assert "session.moving" not in await kinds(source, name)
        await source.copy(target, ["s", "fork"], move=True)
        assert await is_driven(target, "fork")


async def test_a_replica_stays_one_when_its_store_is_moved(store_url: str | Driver) -> None:
    """It is driven where it was."""
    async with (
        open_store("memory:") as first,
        open_store("memory:") as source,
        open_store(store_url) as target,
    ):
        await make(first, "s")
        await first.copy(source)
        await make(source, "own")
        assert (await source.copy(target, move=True)).moved == ("own",)
        assert (await is_driven(target, "s"), await is_driven(target, "own")) == (False, True)
        assert await is_driven(first, "s")


async def test_a_call_in_doubt_is_settled_where_the_session_is(store_url: str | Driver) -> None:
    """Once, with the key that it was issued with; the process that issued it has not ended for the target."""
    world, asked = World(), list[str]()

    def pay_with(**options: Any) -> Registry:
        @tool(side_effects={"mutate"}, **options)
        async def pay(ctx: ToolContext[Any], to: str) -> str:
            world.do(to, ctx.key)
            raise ConnectionError

        return Registry([pay])

    def verify(ctx: ToolContext[Any], to: str) -> Landed | NotLanded:
        asked.append(ctx.key)
        return Landed("paid") if ctx.key in world.keys else NotLanded()

    async with open_store("memory:") as source, open_store(store_url) as target:
        async with source.session("s") as session:
            found = await pay_with().dispatch("pay", {"to": "ann"}, call_id="c", session=session)
            assert found.status == "in_doubt"
        await source.copy(target, move=True)
        with pytest.raises(ReadOnlyReplica):
            await source.resolve("s", "c", "not_landed", by="ann")
        async with target.session("s") as session:
            (row,) = session.in_doubt
            assert row.holder == engine_of(source).heartbeat.holder
            assert not engine_of(target).heartbeat.judge(engine_of(source).heartbeat.holder).ended
            await pay_with(verify=verify).settle(session)
            assert session.in_doubt == []
            again = await pay_with(verify=verify).dispatch("pay", {"to": "ann"}, session=session)
        assert (again.status, world.done, asked) == ("completed", ["ann"], world.keys)


async def test_a_run_that_was_killed_goes_on_in_the_target(store_url: str | Driver) -> None:
    """Moved while a payment is in doubt: it is paid once, the model is asked for nothing twice, and the
    source can no longer resume it."""
    driver, world, stores = MemoryDriver(), World(), list[Store]()

    @tool(side_effects={"mutate"}, verify=lambda ctx, to: Landed("paid"))
    async def pay(ctx: ToolContext[Any], to: str) -> str:
        world.do(to, ctx.key)
        die(stores[-1])
        return "paid"

    model = Counting([call("pay", to="ann"), "Done."])
    agent = Agent(model, name="clerk", tools=[pay])
    with suppress(Closed):
        async with open_store(driver) as dying:
            stores.append(dying)
            await agent.run("Pay ann", session="s", store=dying)
    assert (world.done, len(model.prompts)) == (["ann"], 1)
    async with open_store(driver) as source, open_store(store_url) as target:
        await source.copy(target, move=True)
        with pytest.raises(ReadOnlyReplica):
            await agent.resume("s", store=source)
        assert await work(source, agent) == []
        outcome = await agent.resume("s", store=target)
        assert (outcome.output, world.done, len(model.prompts)) == ("Done.", ["ann"], 2)
        assert (await agent.resume("s", store=target)).output == "Done."
    assert world.done == ["ann"]


class Interrupted(MemoryDriver):
    """A driver with which a move begins just after an item was posted."""

    def post(self, session: SessionId, item: bytes) -> int:
        number = super().post(session, item)
        tip = self.find_tip(session)
        assert tip is not None
        assert tip.head is not None
        record = f'{{"uid":"{tip.head.uid}","store":"elsewhere","address":"elsewhere"}}'
        self.claim(ClaimChange(key=f"replica:{session}", expect=None, record=record))
        return number


async def test_a_message_that_a_move_may_have_missed_is_not_acknowledged() -> None:
    """Its sender sends it again, with its key, to where the session is."""
    async with open_store(Interrupted()) as store:
        await make(store, "s")
        with pytest.raises(ReadOnlyReplica, match="moved to elsewhere"):
            await store.submit("s", "psst", key="k")


async def test_a_random_store_is_moved_and_moved_back(
    tmp_path: Path, seed: int, anyio_backend_name: str
) -> None:
    """What it says and knows is the same; every session is driven where it is."""
    if anyio_backend_name != "asyncio":
        pytest.skip("LangGraph knows asyncio only")
    async with open_store("memory:") as first, open_store(f"sqlite:{tmp_path}/b.db") as second:
        await random_stores.fill(first, seed, 40)
        expected = random_stores.contents_of(first)
        for source, target in ((first, second), (second, first)):
            moved = await source.copy(target, move=True)
            assert set(moved.moved) == set(expected.sessions)
            found = random_stores.contents_of(target)
            assert (found.claims, found.blobs, found.hidden) == (
                expected.claims,
                expected.blobs,
                expected.hidden,
            )
            for name, one in expected.sessions.items():
                assert found.sessions[name].said == one.said
                assert found.sessions[name].chunks.facts.startswith(one.chunks.facts)
                assert found.sessions[name].facts.get("values") == one.facts.get("values")
        driven = [await is_driven(first, name) for name in expected.sessions]
        assert all(driven)
        assert not [name for name in expected.sessions if await is_driven(second, name)]


async def test_a_saver_that_is_open_writes_nothing_to_a_thread_that_was_moved(
    anyio_backend_name: str,
) -> None:
    """It goes on in the target, and in the source again when it is moved back."""
    if anyio_backend_name != "asyncio":
        pytest.skip("LangGraph knows asyncio only")
    async with open_store("memory:") as source, open_store("memory:") as target:
        here, there = Writer(HoldfastSaver(source), "t"), Writer(HoldfastSaver(target), "t")
        await here.put(said=["one"])
        await source.copy(target, move=True)
        before = await kinds(source, "t.7c.")
        with pytest.raises(ReadOnlyReplica):
            await here.put(said=["one", "two"])
        assert await kinds(source, "t.7c.") == before
        there.config, there.versions, there.steps = here.config, here.versions, here.steps
        await there.put(said=["one", "two"])
        await target.copy(source, move=True)
        here.config, here.versions, here.steps = there.config, there.versions, there.steps
        read = await here.saver.aget_tuple(here.config)
        assert read is not None
        assert read.checkpoint["channel_values"] == {"said": ["one", "two"]}
        await here.put(said=["one", "two", "three"])


# -- killed ------------------------------------------------------------------------------------------

NAMES = ("root", "child", "lone", "fork")


async def fill(url: str) -> None:
    """Sessions to move: a family, a fork, and something in an inbox."""
    async with open_store(open_driver(url)) as store:
        await make(store, "root", "lone")
        async with store.session("child", parent=Parent(session="root")) as session:
            await step(session, "hello child")
        await store.fork("lone", into="fork")
        await store.submit("root", "psst", key="k")


async def move(source: str, target: str) -> None:
    """All of one store into another, or what is left of it."""
    async with open_store(open_driver(source)) as store, open_store(open_driver(target)) as other:
        await store.copy(other, move=True)


def move_or_die(line: Line, source: str, target: str, number: int, when: faults.When) -> list[str]:
    """Move, or die at a change of a disk."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    anyio.run(move, source, target)
    return [event.kind for event in disk.events]


async def find_drivers(source: str, target: str) -> dict[str, int]:
    """In how many stores each session can be driven."""
    async with open_store(open_driver(source)) as store, open_store(open_driver(target)) as other:
        found = dict.fromkeys(NAMES, 0)
        for one in (store, other):
            for name in [head.session async for head in one.sessions()]:
                found[name] += await is_driven(one, name)
        return found


async def check_moved(source: str, target: str) -> None:
    """All of it is in the target, once."""
    async with open_store(open_driver(source)) as store, open_store(open_driver(target)) as other:
        for name in NAMES:
            assert (await is_driven(store, name), await is_driven(other, name)) == (False, True)
            journal = [entry async for entry in other.tail(name, follow=False)]
            for kind in (SessionMoving, SessionArrived):
                assert sum(isinstance(entry.body, kind) for entry in journal) == 1, name
        async with other.session("root") as session:
            assert texts(session.transcript) == ["hello root", "psst"]


def _moves(warm: Warm, scheme: str, folder: Path, numbers: Sequence[int] | None, seed: int) -> int:
    start = folder / "start"
    start.mkdir()
    anyio.run(fill, f"{scheme}:{start}/a")
    open_driver(f"{scheme}:{start}/b").close()
    killed = 0

    def run(name: str, number: int, when: faults.When) -> list[str] | None:
        for one in ("a", "b"):
            copy_store(start, folder / name, one)
        with warm.child(
            move_or_die, f"{scheme}:{folder}/{name}/a", f"{scheme}:{folder}/{name}/b", number, when
        ) as child:
            outcome = child.outcome()
        assert outcome is None or isinstance(outcome, list), repr(outcome)
        return outcome

    changes = run("counted", 0, "before")
    assert changes is not None
    choose = random.Random(seed)
    chosen = numbers or sorted(choose.sample(range(1, len(changes) + 1), 10))
    for number in chosen:
        if number > len(changes):
            break
        name = f"trial-{number}"
        killed += run(name, number, choose.choice(["before", "half"])) is None
        source, target = f"{scheme}:{folder}/{name}/a", f"{scheme}:{folder}/{name}/b"
        driven = anyio.run(find_drivers, source, target)
        assert max(driven.values()) <= 1, (number, driven)
        anyio.run(move, source, target)
        anyio.run(check_moved, source, target)
        remove_store(folder / name)
    return killed


@on_every_driver
def test_a_move_that_is_killed_never_leaves_two_stores_that_drive_a_session(
    loaded_warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """At some of its writes, others each time; the next move finishes it."""
    assert _moves(loaded_warm, scheme, quick_path, None, seed) > 5


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_move_that_is_killed_at_every_write_is_finished(
    loaded_warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """At each of them."""
    assert _moves(loaded_warm, scheme, quick_path, share(scheme, range(1, 1000)), seed) > (
        2 if scheme == "postgresql" else 20
    )
