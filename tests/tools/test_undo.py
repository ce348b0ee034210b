"""Taking effects back, each as an effect of its own; and what is left behind otherwise."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import holdfast
from holdfast import NotDone, Registry, Session, Store, ToolContext, tool
from holdfast.core.entries import ToolIssued, ToolUndone
from holdfast.drivers.contract import Append, Outcome
from holdfast.errors import BadInput
from holdfast.records import Rewound, Undone
from tests.drivers import in_thread
from tests.internals import engine_of
from tests.tools.example_tools import Url, World, bodies, come_true, die, hear, kinds, opened


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def booking(world: World, undo: Any = None, **options: Any) -> Registry:
    """A tool that can be undone, one that cannot, and a harmless one."""

    async def unbook(ctx: ToolContext[Any], what: str) -> str:
        return world.do(f"unbook {what}", ctx.key)

    @tool(**{"side_effects": {"mutate"}, "undo": undo or unbook, **options})
    async def book(ctx: ToolContext[Any], what: str) -> dict[str, str]:
        await ctx.annotate(vendor=f"v-{what}")
        world.do(f"book {what}", ctx.key)
        return {"booking": what}

    @tool(side_effects={"mutate"})
    async def mail(what: str) -> None:
        world.do(f"mail {what}")

    @tool(side_effects={"read"})
    async def look() -> None: ...

    return Registry([book, mail, look], max_repeats=100)


async def step(registry: Registry, session: Session, name: str, **args: str) -> holdfast.tools.Result:
    """One call and a checkpoint."""
    found = await registry.dispatch(name, args, session=session)
    await session.checkpoint()
    return found


async def test_a_rewind_undoes_what_it_leaves_behind_the_last_first(store_url: Url, world: World) -> None:
    """Each undo is on record as an effect; what came before the version stays."""
    registry = booking(world)
    async with opened(store_url) as (store, session):
        await step(registry, session, "book", what="train")
        for what in ("hotel", "flight"):
            await step(registry, session, "book", what=what)
        assert [row.call.id[:4] for row in session.left_behind(1)] == ["call", "call"]
        await session.rewind(version=1, undo=True, registry=registry)
        assert world.done[3:] == ["unbook flight", "unbook hotel"]
        assert session.left_behind(1) == []
        issued = await bodies(store, session, ToolIssued)
        assert [one.undoes is not None for one in issued] == [False, False, False, True, True]
        undone = await bodies(store, session, ToolUndone)
        assert [one.issued for one in undone] == [one.undoes for one in issued[3:]]
        assert (await kinds(store, session))[-1] == "session.rewound"
    async with opened(store_url) as (_, session):
        statuses = [row.status for row in session.state.facts.effects.rows.values() if row.undoes is None]
        assert statuses == ["completed", "undone", "undone"]


async def test_what_was_undone_can_be_done_again(store_url: Url, world: World) -> None:
    """With a new key: the old one is spent."""
    registry = booking(world)
    async with opened(store_url) as (_, session):
        await session.checkpoint()
        await step(registry, session, "book", what="hotel")
        await session.rewind(version=1, undo=True, registry=registry)
        again = await registry.dispatch("book", {"what": "hotel"}, session=session)
        assert again.replay_of is None
    assert world.done == ["book hotel", "unbook hotel", "book hotel"]
    assert len(set(world.keys)) == 3


async def test_without_undo_a_rewind_takes_nothing_back(store_url: Url, world: World) -> None:
    """It tells what there is, and doing it again gives the recorded result."""
    registry = booking(world)
    async with opened(store_url) as (_, session):
        await session.checkpoint()
        await step(registry, session, "book", what="hotel")
        await step(registry, session, "look")
        (left,) = session.left_behind(1)
        assert (left.tool, left.status) == ("book", "completed")
        await session.rewind(version=1)
        again = await registry.dispatch("book", {"what": "hotel"}, session=session)
        assert again.replay_of is not None
    assert world.done == ["book hotel"]


async def test_the_undo_is_told_what_it_takes_back(store_url: Url, world: World) -> None:
    """Arguments, result, annotations, dependencies, and a key of its own."""
    told: list[ToolContext[Any]] = []

    def unbook(ctx: ToolContext[Any], what: str) -> None:
        told.append(ctx)
        world.do(f"unbook {what}")

    registry = booking(world, undo=unbook)
    async with opened(store_url) as (_, session):
        await session.checkpoint()
        await step(registry, session, "book", what="hotel")
        await session.rewind(version=1, undo=True, registry=registry, deps="deps")
        (ctx,) = told
        assert ctx.result == {"booking": "hotel"}
        assert ctx.notes == {"vendor": "v-hotel"}
        assert ctx.deps == "deps"
        assert ctx.key not in ("", world.keys[0])


async def test_what_cannot_be_undone_is_reported(store_url: Url, world: World) -> None:
    """And stays; the rest is undone all the same."""
    registry = booking(world)
    fails = iter([True])

    @tool(side_effects={"mutate"}, undo=lambda: None)
    async def doubtful() -> None:
        if next(fails, False):
            raise ValueError("reset")

    registry.add(doubtful)
    async with opened(store_url) as (_, session):
        await step(registry, session, "book", what="hotel")
        await step(registry, session, "mail", what="hello")
        await registry.dispatch("doubtful", {}, session=session)
        report = await registry.undo(session, session.left_behind())
        assert [(one.tool, one.status, one.why) for one in report] == [
            ("doubtful", "cannot", "it is in_doubt"),
            ("mail", "cannot", "the tool has no undo"),
            ("book", "undone", ""),
        ]
        assert isinstance(report[0], Undone)
        assert [row.tool for row in session.left_behind()] == ["mail", "doubtful"]
        gone = Registry([])
        (row,) = [row for row in session.left_behind() if row.tool == "mail"]
        assert [one.why for one in await gone.undo(session, [row])] == ["the tool is gone"]


async def test_a_rewind_says_what_it_could_not_take_back(store_url: Url, world: World) -> None:
    """With the version, the last effect first; it goes back all the same."""
    registry = booking(world)
    async with opened(store_url) as (_, session):
        await session.checkpoint()
        await step(registry, session, "book", what="hotel")
        await step(registry, session, "mail", what="hello")
        rewound = await session.rewind(version=1, undo=True, registry=registry)
        assert rewound.version == session.version == 1
        assert [(one.tool, one.status) for one in rewound.undone] == [("mail", "cannot"), ("book", "undone")]
        assert [(one.tool, one.why) for one in rewound.still_done] == [("mail", "the tool has no undo")]
        assert (await session.rewind(steps=0)) == Rewound(1)


async def test_an_undo_that_fails_is_on_record_and_can_be_tried_again(store_url: Url, world: World) -> None:
    """`NotDone`: surely nothing happened."""
    fails = iter([True])

    def unbook(what: str) -> None:
        if next(fails, False):
            raise NotDone("the hotel does not answer")
        world.do(f"unbook {what}")

    registry = booking(world, undo=unbook)
    async with opened(store_url) as (store, session):
        await session.checkpoint()
        await step(registry, session, "book", what="hotel")
        (row,) = session.left_behind(1)
        (first,) = await registry.undo(session, [row])
        assert (first.status, first.why) == ("failed", "it raised NotDone: the hotel does not answer")
        assert "tool.failed" in await kinds(store, session)
        await session.rewind(version=1, undo=True, registry=registry)
        assert session.left_behind(1) == []
    assert world.done == ["book hotel", "unbook hotel"]


async def test_an_undo_in_doubt_is_not_tried_again(store_url: Url, world: World) -> None:
    """Until somebody says what became of it: landed means that the effect is undone."""

    def unbook(what: str) -> None:
        world.do(f"unbook {what}")
        raise ValueError("reset")

    registry = booking(world, undo=unbook)
    async with opened(store_url) as (store, session):
        await step(registry, session, "book", what="hotel")
        for _ in range(2):
            (found,) = await registry.undo(session, session.left_behind())
            assert (found.status, found.why) == ("in_doubt", "it raised ValueError: reset")
        (row,) = session.in_doubt
        assert row.undoes is not None
        assert len(await session.settle(registry)) == 1
        await store.resolve("s", row.issued, "landed", by="ann")
        await hear(session)
        assert session.left_behind() == []
        assert session.in_doubt == []
        again = await registry.dispatch("book", {"what": "hotel"}, session=session)
        assert again.replay_of is None
    assert world.done == ["book hotel", "unbook hotel", "book hotel"]


async def test_a_process_that_dies_in_an_undo_leaves_it_in_doubt(store_url: Url, world: World) -> None:
    """Found when the session is opened again; not landed means that it may be tried again, with its key."""
    dies = iter([True])

    def unbook(ctx: ToolContext[Store], what: str) -> None:
        world.do(f"unbook {what}", ctx.key)
        if next(dies, False):
            die(ctx.deps)

    registry = booking(world, undo=unbook)
    async with opened(store_url) as (store, session):
        await step(registry, session, "book", what="hotel")
        with pytest.raises(holdfast.errors.Closed):
            await registry.undo(session, session.left_behind(), deps=store)
    async with opened(store_url) as (store, session):
        (row,) = session.in_doubt
        assert row.undoes is not None
        await store.resolve("s", row.issued, "not_landed", by="ann")
        await hear(session)
        (found,) = await registry.undo(session, session.left_behind(), deps=store)
        assert found.status == "undone"
    assert world.done == ["book hotel", "unbook hotel", "unbook hotel"]
    assert world.keys[1] == world.keys[2]


async def test_an_effect_whose_arguments_no_longer_fit_is_not_undone(store_url: Url, world: World) -> None:
    """The code has changed: nobody knows what the old arguments mean."""
    async with opened(store_url) as (_, session):
        await step(booking(world), session, "book", what="hotel")

        @tool(side_effects={"mutate"}, undo=lambda where: None)
        async def book(where: int) -> None: ...

        (found,) = await Registry([book]).undo(session, session.left_behind())
        assert (found.status, found.why) == ("cannot", "its arguments no longer fit the tool")
    assert world.done == ["book hotel"]


async def test_to_undo_a_registry_is_needed(store_url: Url, world: World) -> None:
    """Its tools know how."""
    async with opened(store_url) as (_, session):
        await session.checkpoint()
        with pytest.raises(BadInput, match="needs registry=…"):
            await session.rewind(version=1, undo=True)


async def test_a_fork_is_told_what_its_origin_did_afterwards(store_url: Url, world: World) -> None:
    """In its own journal: it happened, and the fork would otherwise not know."""
    registry = booking(world)
    async with opened(store_url) as (store, session):
        await step(registry, session, "book", what="train")
        await step(registry, session, "book", what="hotel")
        await step(registry, session, "look")
        await step(registry, session, "mail", what="hello")
        await store.fork("s", version=1, into="f")
        await store.fork("s", into="g")
    async with opened(store_url, "f") as (store, fork):
        left = fork.left_at_origin
        assert [(one.tool, one.status) for one in left] == [("book", "completed"), ("mail", "completed")]
        assert (await store.load("g")).facts.left_behind == ()
        # They are the origin's; the fork does its own.
        found = await registry.dispatch("book", {"what": "hotel"}, session=fork)
        assert found.replay_of is None
    assert world.done == ["book train", "book hotel", "mail hello", "book hotel"]
    assert len({key for what, key in world.log if what == "book hotel"}) == 2


async def test_a_copy_of_an_effect_is_not_undone_twice(store_url: Url, world: World) -> None:
    """Read by somebody else before it was undone, it still looks as if it stood."""
    registry = booking(world)
    async with opened(store_url) as (store, session):
        await step(registry, session, "book", what="hotel")
        await session.flush()
        copies = (await store.load("s")).facts.effects.since(0)
        for _ in range(2):
            (found,) = await registry.undo(session, copies)
            assert found.status == "undone"
            assert copies[0].status == "completed"
        async with store.session("t") as other:
            (found,) = await registry.undo(other, copies)
            assert (found.status, found.why) == ("cannot", "it is not an effect of this session")
    assert world.done == ["book hotel", "unbook hotel"]


async def test_two_undos_at_once_are_one(store_url: Url, world: World) -> None:
    """The second waits for the first, and has nothing left to do."""
    entered, release = anyio.Event(), anyio.Event()
    reports: list[str] = []

    async def unbook(what: str) -> None:
        entered.set()
        await release.wait()
        world.do(f"unbook {what}")

    registry = booking(world, undo=unbook)
    async with opened(store_url) as (_, session):
        await step(registry, session, "book", what="hotel")
        left = session.left_behind()

        async def undo() -> None:
            reports.extend(one.status for one in await registry.undo(session, left))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(undo)
            await entered.wait()
            tasks.start_soon(undo)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            release.set()
    assert reports == ["undone", "undone"]
    assert world.done == ["book hotel", "unbook hotel"]


async def test_while_nobody_knows_whether_it_was_undone_it_is_not_done_again(
    store_url: Url, world: World
) -> None:
    """Nor is it given as done: landed means that it is undone, not landed that it stands."""

    def unbook(what: str) -> None:
        world.do(f"unbook {what}")
        raise ValueError("reset")

    registry = booking(world, undo=unbook)
    async with opened(store_url) as (store, session):
        for verdict, then in (("not_landed", "completed"), ("landed", "undone")):
            await step(registry, session, "book", what=verdict)
            (row,) = [row for row in session.left_behind() if row.undo is None]
            await registry.undo(session, [row])
            blocked = await registry.dispatch("book", {"what": verdict}, session=session)
            assert blocked.status == "in_doubt"
            assert "which takes it back, is in doubt: it raised ValueError: reset" in blocked.content
            (undo,) = session.in_doubt
            await store.resolve("s", undo.issued, verdict, by="ann")  # type: ignore[arg-type]
            await hear(session)
            assert row.status == then
            again = await registry.dispatch("book", {"what": verdict}, session=session)
            assert (again.status, again.replay_of is None) == ("completed", then == "undone")


async def test_an_undo_that_still_runs_is_not_run_beside_itself(store_url: Url, world: World) -> None:
    """Also when a person says that it did not land."""
    release = threading.Event()

    def unbook(what: str) -> None:
        release.wait(60)
        world.do(f"unbook {what}")

    registry = booking(world, undo=unbook, timeout_s=0.05)
    registry.grace_s = 0.05
    async with opened(store_url) as (store, session):
        try:
            await step(booking(world), session, "book", what="hotel")
            (found,) = await registry.undo(session, session.left_behind())
            assert found.status == "in_doubt"
            (row,) = session.in_doubt
            await store.resolve("s", row.issued, "not_landed", by="ann")
            await hear(session)
            (found,) = await registry.undo(session, session.left_behind())
            assert (found.status, found.why) == ("in_doubt", "the body of its last undo still runs")
        finally:
            release.set()
        await come_true(lambda: "unbook hotel" in world.done)
    assert world.done == ["book hotel", "unbook hotel"]


async def test_a_fork_does_not_undo_what_its_origin_did(store_url: Url, world: World) -> None:
    """The origin may do so itself, or count on it; nobody would know that it happened twice."""
    registry = booking(world)
    async with opened(store_url) as (store, session):
        await session.checkpoint()
        await step(registry, session, "book", what="hotel")
        await store.fork("s", into="f")
        async with store.session("f") as fork:
            await step(registry, fork, "book", what="train")
            rewound = await fork.rewind(version=1, undo=True, registry=registry)
            assert [(one.status, one.why) for one in rewound.undone] == [
                ("undone", ""),
                ("cannot", "session 's' did it, before this one was forked from it: undo it there"),
            ]
        assert [one.status for one in await registry.undo(session, session.left_behind())] == ["undone"]
    assert world.done == ["book hotel", "book train", "unbook train", "unbook hotel"]


async def test_a_fork_knows_what_its_origin_has_taken_back_since(store_url: Url, world: World) -> None:
    """It began with a version in which it was done, and it is done no more."""
    registry = booking(world)
    async with opened(store_url) as (store, session):
        await step(registry, session, "book", what="hotel")
        await registry.undo(session, session.left_behind())
        await session.flush()
        await store.fork("s", version=1, into="f")
        await store.fork("f", version=1, into="g")
    for id in ("f", "g"):
        async with opened(store_url, id) as (_, fork):
            assert [(one.tool, one.status) for one in fork.left_at_origin] == [("book", "undone")]
            found = await registry.dispatch("book", {"what": "hotel"}, session=fork)
            assert found.replay_of is None
    assert world.done == ["book hotel", "unbook hotel", "book hotel", "book hotel"]


async def test_two_who_take_the_same_back_at_once_do_it_once(store_url: Url, world: World) -> None:
    """Who comes second waits for the first."""
    registry = booking(world)
    async with opened(store_url) as (_, session):
        await step(registry, session, "book", what="hotel")
        effects = session.left_behind()
        found: list[str] = []

        async def undo() -> None:
            found.extend(one.status for one in await registry.undo(session, effects))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(undo)
        assert found == ["undone"] * 3
    assert world.done == ["book hotel", "unbook hotel"]


async def test_what_still_runs_cannot_be_taken_back(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor can what is about to: its intent is not even durable."""
    registry = booking(world)
    async with opened(store_url) as (store, session):
        driver = engine_of(store).driver
        commit = driver.commit

        go_on = threading.Event()

        def slowly(batch: Sequence[Append]) -> Sequence[Outcome]:
            assert go_on.wait(60)
            return commit(batch)

        rows = session.state.facts.effects.rows
        monkeypatch.setattr(driver, "commit", in_thread(slowly))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: registry.dispatch("book", {"what": "hotel"}, session=session))
            await come_true(lambda: bool(rows))
            (found,) = await registry.undo(session, list(rows.values()))
            go_on.set()
        assert (found.status, found.why) == ("cannot", "it is running")
    assert world.done == ["book hotel"]
