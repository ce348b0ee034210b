"""Which calls are one operation: every scope, the keys that are handed out, and replays."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import NotDone, Registry, ToolContext, tool
from holdfast.core.entries import ToolIssued
from holdfast.errors import BadInput
from holdfast.session.cadence import Cadence
from holdfast.tools import Result, Retry
from holdfast.tools.declaration import Scope
from tests.internals import writer_of
from tests.tools.example_tools import Url, World, bodies, call, kinds, opened, reply, results


def making(world: World, **options: Any) -> Registry:
    """A registry with one tool, `act`, beside another one that changes the world, and a harmless one."""

    @tool(**{"side_effects": {"mutate"}, **options})
    async def act(ctx: ToolContext[Any], what: str) -> dict[str, Any]:
        """Do it."""
        world.do(what, ctx.key)
        return {"what": what, "times": len(world.log)}

    @tool(side_effects={"mutate"}, scope="call")
    async def delete(ctx: ToolContext[Any], what: str) -> None:
        """Take it away."""
        world.do(f"delete {what}", ctx.key)

    @tool(side_effects={"read"})
    async def look() -> None:
        """Look at it."""

    return Registry([act, delete, look], max_repeats=100)


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


async def test_the_second_call_gets_the_outcome_of_the_first(store_url: Url, world: World) -> None:
    """Equal to the original, as data too, and marked; the model is told in words."""
    registry = making(world)
    async with opened(store_url) as (_, session):
        first = await registry.dispatch("act", {"what": "a"}, call_id="c1", session=session)
        second = await registry.dispatch("act", {"what": "a"}, call_id="c2", session=session)
    assert world.done == ["a"]
    assert (first.value, first.replay_of) == ({"what": "a", "times": 1}, None)
    assert (second.value, second.replay_of) == (first.value, "c1")
    assert second.content == f"[idempotent replay of c1]: {first.content}"
    assert (second.status, second.is_error) == ("completed", False)


async def test_a_replay_survives_a_restart(store_url: Url, world: World) -> None:
    """Tomorrow it is still done."""
    async with opened(store_url) as (_, session):
        first = await making(world).dispatch("act", {"what": "a"}, call_id="c1", session=session)
    async with opened(store_url) as (_, session):
        second = await making(world).dispatch("act", {"what": "a"}, call_id="c2", session=session)
    assert (second.value, second.replay_of) == (first.value, "c1")
    assert world.done == ["a"]


async def run_all(registry: Registry, session: holdfast.Session, *whats: str) -> list[Result]:
    """Calls of `act` and, after a minus, of `delete`; an `l` looks."""
    found = []
    for what in whats:
        name, args = ("delete", {"what": what[1:]}) if what[0] == "-" else ("act", {"what": what})
        if what == "l":
            name, args = "look", {}
        found.append(await registry.dispatch(name, args, session=session))
    return found


@pytest.mark.parametrize(
    ("whats", "runs"),
    [
        (["v1", "v1"], ["v1"]),
        (["v1", "l", "v1"], ["v1"]),
        (["v1", "v2", "v1"], ["v1", "v2", "v1"]),
        (["v1", "-v1", "v1"], ["v1", "delete v1", "v1"]),
        (["v1", "v1", "v2", "v2", "v1", "v1"], ["v1", "v2", "v1"]),
    ],
)
async def test_what_sets_something_is_not_fooled_by_its_own_history(
    whats: list[str], runs: list[str], store_url: Url, world: World
) -> None:
    """`repeat`, the scope of tools that write: one operation until anything else changes the world."""
    registry = making(world, side_effects={"write"})
    async with opened(store_url) as (_, session):
        await run_all(registry, session, *whats)
    assert world.done == runs
    assert len(set(world.keys)) == len(runs)  # Each time a key of its own.


async def test_the_history_of_writes_survives_a_restart(store_url: Url, world: World) -> None:
    """v1, v2 and, in another process, v1 again: it runs."""
    async with opened(store_url) as (_, session):
        await run_all(making(world, side_effects={"write"}), session, "v1", "v2")
    async with opened(store_url) as (_, session):
        await run_all(making(world, side_effects={"write"}), session, "v1", "v1")
    assert world.done == ["v1", "v2", "v1"]


async def test_once_a_session_whatever_came_between(store_url: Url, world: World) -> None:
    """`session`, the scope of tools that mutate."""
    registry = making(world)
    async with opened(store_url) as (_, session):
        await run_all(registry, session, "a", "b", "-x", "a")
    async with opened(store_url, "another") as (_, session):
        await run_all(registry, session, "a")
    assert world.done == ["a", "b", "delete x", "a"]
    assert len(set(world.keys)) == 4


async def test_once_a_run(store_url: Url, world: World) -> None:
    """`run`: "send it again" is another run, and outside of any run is one of its own."""
    registry = making(world, scope="run")
    async with opened(store_url) as (_, session):
        async with session.run():
            await run_all(registry, session, "a", "a")
        async with session.run():
            await run_all(registry, session, "a", "a")
        await run_all(registry, session, "a", "a")
    assert world.done == ["a", "a", "a"]
    assert len(set(world.keys)) == 3


async def test_every_call_counts_by_itself(store_url: Url, world: World) -> None:
    """`call`, the scope of tools that declare nothing: only the very same call is one operation."""
    registry = making(world, scope="call")
    async with opened(store_url) as (_, session):
        await registry.dispatch("act", {"what": "a"}, call_id="c1", session=session)
        await registry.dispatch("act", {"what": "a"}, call_id="c2", session=session)
        again = await registry.dispatch("act", {"what": "a"}, call_id="c1", session=session)
    assert world.done == ["a", "a"]
    assert again.value == {"what": "a", "times": 1}
    assert len(set(world.keys)) == 2


async def test_a_function_says_what_is_one_operation(store_url: Url, world: World) -> None:
    """`act` is the same for all that begins alike."""
    registry = making(world, scope=lambda what: what[0])
    async with opened(store_url) as (_, session):
        found = await run_all(registry, session, "apple", "avocado", "banana")
    assert world.done == ["apple", "banana"]
    assert found[1].value == found[0].value


async def test_a_scope_function_that_raises_is_a_refusal(store_url: Url, world: World) -> None:
    """Nothing is run, and the loop goes on."""
    registry = making(world, scope=lambda what: what[99])
    async with opened(store_url) as (_, session):
        (found,) = await run_all(registry, session, "apple")
    assert found.content == "act: its scope function raised IndexError: string index out of range"
    assert found.status == "refused"
    assert world.done == []


@pytest.mark.parametrize("scope", ["session", "repeat", "run", "call", "global"])
async def test_the_same_call_is_one_operation_in_every_scope(
    scope: Scope, store_url: Url, world: World
) -> None:
    """A call id that is used again after a restart gives the recorded outcome, word for word."""
    async with opened(store_url) as (_, session):
        registry = making(world, scope=scope)
        first = await registry.dispatch("act", {"what": "a"}, call_id="c1", session=session)
        await run_all(registry, session, "-x")
    async with opened(store_url) as (_, session), session.run():
        registry = making(world, scope=scope)
        again = await registry.dispatch("act", {"what": "a"}, call_id="c1", session=session)
    assert again == first
    assert world.done == ["a", "delete x"]


async def test_a_call_id_names_one_call_for_good(store_url: Url, world: World) -> None:
    """Other arguments, or another tool, under the same id are a mistake; also if the first was a replay."""
    registry = making(world)
    async with opened(store_url) as (_, session):
        for id in ("c1", "c2"):
            await registry.dispatch("act", {"what": "a"}, call_id=id, session=session)
        for id in ("c1", "c2"):
            with pytest.raises(BadInput, match=f"call id '{id}' was used before"):
                await registry.dispatch("act", {"what": "b"}, call_id=id, session=session)
        with pytest.raises(BadInput, match="call id 'c1' was used before, for a call of act"):
            await registry.dispatch("delete", {"what": "a"}, call_id="c1", session=session)
        harmless = await registry.dispatch("look", {}, call_id="l1", session=session)
        assert await registry.dispatch("look", {}, call_id="l1", session=session) == harmless
    assert world.done == ["a"]


async def test_a_refused_call_may_be_made_again_under_its_id(store_url: Url, world: World) -> None:
    """Nothing was done: mended arguments are no other call."""
    registry = making(world)
    async with opened(store_url) as (_, session):
        bad = await registry.dispatch("act", {"waht": "a"}, call_id="c1", session=session)
        good = await registry.dispatch("act", {"what": "a"}, call_id="c1", session=session)
    assert (bad.status, good.status) == ("refused", "completed")


# -- keys ----------------------------------------------------------------------------------------------


async def test_the_key_that_is_handed_over_is_the_one_on_record(store_url: Url, world: World) -> None:
    """Before the body runs, so that it can be found by it."""
    async with opened(store_url) as (store, session):
        await run_all(making(world), session, "a", "b")
        issued = await bodies(store, session, ToolIssued)
    assert [one.key for one in issued] == world.keys
    assert len(set(world.keys)) == 2


async def test_a_definite_failure_begins_the_next_generation(store_url: Url, world: World) -> None:
    """A service that remembers the failed key would only say so again; retries keep theirs."""
    fails = iter([True, True, True, False])

    @tool(side_effects={"mutate"}, retry=Retry(attempts=2, backoff_s=0))
    async def pay(ctx: ToolContext[Any]) -> None:
        world.do(f"try {ctx.attempt}", ctx.key)
        if next(fails):
            raise NotDone("no money")

    registry = Registry([pay])
    async with opened(store_url) as (store, session):
        first = await registry.dispatch("pay", {}, session=session)
        second = await registry.dispatch("pay", {}, session=session)
        issued = await bodies(store, session, ToolIssued)
    assert (first.status, second.status) == ("failed", "completed")
    assert world.done == ["try 1", "try 2", "try 1", "try 2"]
    a, b = world.keys[0], world.keys[2]
    assert world.keys == [a, a, b, b]
    assert a != b
    assert [(one.generation, one.attempt) for one in issued] == [(0, 1), (0, 2), (1, 1), (1, 2)]


async def test_no_two_sessions_stores_or_lives_of_a_session_share_a_key(store_url: Url, world: World) -> None:
    """A session that was deleted and made anew has done nothing yet."""
    registry = making(world)
    for _ in range(2):
        async with opened(store_url) as (store, session):
            await run_all(registry, session, "a")
        async with opened(store_url, "other") as (_, session):
            await run_all(registry, session, "a")
        async with holdfast.open_store(store_url) as store:
            await store.delete("s")
            await store.delete("other")
    async with opened("memory:") as (_, session):
        await run_all(registry, session, "a")
    assert world.done == ["a"] * 5
    assert len(set(world.keys)) == 5


async def test_a_fork_knows_what_was_done_before_it(store_url: Url, world: World) -> None:
    """And nothing of what its origin does afterwards; what both do anew has two keys."""
    registry = making(world)
    async with opened(store_url) as (store, session):
        await run_all(registry, session, "a")
        await session.checkpoint()
        await run_all(registry, session, "b")
        await store.fork("s", version=1, into="f")
        async with store.session("f") as fork:
            found = await run_all(registry, fork, "a", "b")
    assert found[0].replay_of is not None
    assert world.done == ["a", "b", "b"]
    assert len(set(world.keys)) == 3


async def test_a_rewound_session_keeps_its_ledger(store_url: Url, world: World) -> None:
    """Doing again what was done gives the recorded result, and the transcript gets it, too."""
    registry = making(world)
    async with opened(store_url) as (_, session):
        await reply(session, call("act", {"what": "a"}))
        await session.checkpoint()
        (first,) = await registry.dispatch_step(session)
        await session.rewind(version=1)
        assert session.problems
        (again,) = await registry.dispatch_step(session)
        assert session.continuable
        assert results(session)[0].value == {"what": "a", "times": 1}
        # The same operation, asked for by another reply.
        await reply(session, call("act", {"what": "a"}))
        (other,) = await registry.dispatch_step(session)
    assert (again.value, again.content) == (first.value, first.content)
    assert other.replay_of == "call_0"
    assert world.done == ["a"]


async def test_a_pure_tool_may_be_remembered_too(store_url: Url, world: World) -> None:
    """If its scope says so: a lookup that costs money."""
    registry = making(world, side_effects={"read"}, scope="session")
    async with opened(store_url) as (_, session):
        found = await run_all(registry, session, "a", "a")
    assert world.done == ["a"]
    assert found[1].value == found[0].value


async def test_the_intent_is_durable_before_the_body_and_the_outcome_before_the_result(
    store_url: Url, world: World
) -> None:
    """Whatever the cadence: another process would find both."""
    seen: list[list[str]] = []

    @tool(side_effects={"mutate"})
    async def act(ctx: ToolContext[holdfast.Store]) -> None:
        seen.append([entry.kind async for entry in ctx.deps.tail("s", follow=False)])

    async with opened(store_url, cadence=holdfast.records.Every(steps=1000)) as (store, session):
        await Registry([act]).dispatch("act", {}, session=session, deps=store)
        seen.append([entry.kind async for entry in store.tail("s", follow=False)])
    assert seen[0][-1] == "tool.issued"
    assert seen[1][-2:] == ["tool.issued", "tool.completed"]


async def test_a_harmless_call_is_on_record_but_waits_for_no_disk(store_url: Url) -> None:
    """Unless the cadence says that every call should."""
    ran: list[str] = []

    @tool(side_effects=())
    async def calc() -> int:
        ran.append("calc")
        return 1

    cadences: list[tuple[Cadence, bool]] = [("step", False), ("call", True)]
    for cadence, durable in cadences:
        async with (
            holdfast.open_store(store_url, linger_s=60) as store,
            store.session(f"{cadence}", cadence=cadence) as session,
        ):
            before = writer_of(session).channel.durable_seq
            await Registry([calc]).dispatch("calc", {}, session=session)
            assert (writer_of(session).channel.durable_seq == before + 1) is durable
            assert (await kinds(store, session))[-1] == "tool.ran"
