"""A person agrees first, perhaps to something else; the process may end meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Registry, Session, tool
from holdfast.core.entries import ApprovalAsked, ApprovalGiven, ApprovalRefused, InboxTaken
from holdfast.errors import BadInput, NotFound
from holdfast.tools import Policy, ask
from tests.tools.example_tools import Url, World, bodies, call, hear, kinds, opened, reply, results


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def asking(world: World, *, policy: Policy | None = None, **options: Any) -> Registry:
    """A tool that needs approval, unless told otherwise."""

    @tool(**{"side_effects": {"mutate"}, "needs_approval": True, **options})
    async def pay(to: str, cents: int) -> str:
        """Pay somebody."""
        return world.do(f"{to} {cents}")

    return Registry([pay], policy=policy, max_repeats=3)


ANN = {"to": "ann", "cents": 500}


async def ask_for(registry: Registry, session: Session, args: Any = ANN) -> holdfast.tools.Result:
    """A reply asks for the payment."""
    await reply(session, call("pay", args))
    (found,) = await registry.dispatch_step(session)
    return found


async def test_the_call_waits_for_a_person(store_url: Url, world: World) -> None:
    """On record, durable, shown in listings; asked again, it still waits, and nobody is asked twice."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        found = await ask_for(registry, session)
        assert (found.status, found.is_error) == ("waiting", True)
        assert found.content == "pay: waits for a person's approval. pay needs approval"
        (again,) = await registry.dispatch_step(session)
        assert again.status == "waiting"
        (asked,) = await bodies(store, session, ApprovalAsked)
        assert (asked.tool, asked.args, asked.why) == ("pay", ANN, "pay needs approval")
        assert session.state.facts.head.waiting == 1
        assert session.problems
    assert world.done == []


@pytest.mark.parametrize("held", [True, False])
async def test_approved_from_another_process_the_run_goes_on(
    held: bool, store_url: Url, world: World
) -> None:
    """The first process may have ended long ago."""
    async with opened(store_url) as (_, session):
        await ask_for(asking(world), session)
        if held:
            async with holdfast.open_store(store_url) as other:
                assert await other.approve("s", "call_0", by="boss", note="fine") == "posted"
            await hear(session)
            await asking(world).dispatch_step(session)
    if not held:
        async with holdfast.open_store(store_url) as other:
            assert await other.approve("s", "call_0", by="boss", note="fine") == "settled"
    async with opened(store_url) as (store, session):
        (found,) = await asking(world).dispatch_step(session)
        assert (found.status, found.content) == ("completed", "did ann 500")
        (given,) = await bodies(store, session, ApprovalGiven)
        assert (given.by, given.note) == ("boss", "fine")
        assert session.continuable
        assert session.state.facts.head.waiting == 0
    assert world.done == ["ann 500"]


async def test_approved_with_other_arguments(store_url: Url, world: World) -> None:
    """Validated like any; both are on record, and the effect is what was approved."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        await ask_for(registry, session)
        await store.approve("s", "call_0", by="boss", args={"to": "ann", "cents": 400})
        await hear(session)
        (found,) = await registry.dispatch_step(session)
        assert found.content == "did ann 400"
        assert [one.args for one in await bodies(store, session, ApprovalAsked)] == [ANN]
        assert [one.args for one in await bodies(store, session, ApprovalGiven)] == [
            {"to": "ann", "cents": 400}
        ]
        (row,) = session.state.facts.effects.rows.values()
        assert row.status == "completed"
    assert world.done == ["ann 400"]


async def test_corrected_arguments_that_do_not_fit_are_refused(store_url: Url, world: World) -> None:
    """The model is told whose they were."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        await ask_for(registry, session)
        await store.approve("s", "call_0", by="boss", args={"to": "ann", "cents": "400"})
        await hear(session)
        (found,) = await registry.dispatch_step(session)
        assert found.content.startswith("pay: invalid arguments, as a person corrected them. args.cents: ")
        assert session.continuable
    assert world.done == []


async def test_a_correction_must_pass_the_policy_too(store_url: Url, world: World) -> None:
    """A person who may approve may not do everything."""
    large = holdfast.tools.deny("pay", when=lambda args: args["cents"] > 1000, why="Too much.")
    registry = asking(world, policy=Policy(large))
    async with opened(store_url) as (store, session):
        await ask_for(registry, session)
        await store.approve("s", "call_0", by="boss", args={"to": "ann", "cents": 5000})
        await hear(session)
        (found,) = await registry.dispatch_step(session)
        assert found.content == "pay: denied. Too much."
    assert world.done == []


@pytest.mark.parametrize("held", [True, False])
async def test_refused_with_a_reason_the_model_is_told(held: bool, store_url: Url, world: World) -> None:
    """And the transcript can go on."""
    async with opened(store_url) as (store, session):
        await ask_for(asking(world), session)
        if held:
            await store.refuse("s", "call_0", by="boss", reason="Not this month.")
            await hear(session)
    if not held:
        async with holdfast.open_store(store_url) as other:
            assert await other.refuse("s", "call_0", by="boss", reason="Not this month.") == "settled"
    async with opened(store_url) as (store, session):
        assert session.continuable
        (block,) = results(session)
        assert (block.content, block.is_error) == ("pay: refused by boss. Not this month.", True)
        assert [one.by for one in await bodies(store, session, ApprovalRefused)] == ["boss"]
        (found,) = await asking(world).dispatch_step(session)
        assert found.content == "pay: refused by boss. Not this month."
    assert world.done == []


async def test_a_caller_without_a_transcript_hears_the_answer_too(store_url: Url, world: World) -> None:
    """By dispatching the same call again, after a restart as well."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        for id in ("yes", "no"):
            found = await registry.dispatch("pay", {"to": id, "cents": 1}, call_id=id, session=session)
            assert found.status == "waiting"
        await store.approve("s", "yes", by="boss")
        await store.refuse("s", "no", by="boss", reason="No.")
    async with opened(store_url) as (store, session):
        registry = asking(world)
        yes = await registry.dispatch("pay", {"to": "yes", "cents": 1}, call_id="yes", session=session)
        no = await registry.dispatch("pay", {"to": "no", "cents": 1}, call_id="no", session=session)
        assert (yes.status, no.status) == ("completed", "refused")
        assert no.content == "pay: refused by boss. No."
        assert len(await bodies(store, session, ApprovalAsked)) == 2
    assert world.done == ["yes 1"]


async def test_an_approval_is_for_these_arguments_only(store_url: Url, world: World) -> None:
    """A call id that was approved does not open the door to something else."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        await registry.dispatch("pay", ANN, call_id="c1", session=session)
        with pytest.raises(BadInput, match="'c1' was used before with other arguments"):
            await registry.dispatch("pay", {"to": "eve", "cents": 500}, call_id="c1", session=session)
        await store.approve("s", "c1", by="boss")
        await hear(session)
        with pytest.raises(BadInput, match="'c1' was used before with other arguments"):
            await registry.dispatch("pay", {"to": "eve", "cents": 500}, call_id="c1", session=session)
    assert world.done == []


async def test_an_approval_is_for_what_was_shown(store_url: Url, world: World) -> None:
    """If the code has changed what the call means, somebody is asked again."""

    def registry(default: int) -> Registry:
        @tool(side_effects={"mutate"}, needs_approval=True)
        async def pay(to: str, cents: int = default) -> str:
            return world.do(f"{to} {cents}")

        return Registry([pay])

    async with opened(store_url) as (store, session):
        assert (await ask_for(registry(5), session, {"to": "ann"})).status == "waiting"
        await store.approve("s", "call_0", by="boss")
    async with opened(store_url) as (store, session):
        (found,) = await registry(5000).dispatch_step(session)
        assert found.status == "waiting"
        assert [one.args["cents"] for one in await bodies(store, session, ApprovalAsked)] == [5, 5000]
        await store.approve("s", "call_0", by="boss")
        await hear(session)
        (found,) = await registry(5000).dispatch_step(session)
        assert found.status == "completed"
    assert world.done == ["ann 5000"]


async def test_a_function_says_which_calls_need_approval(store_url: Url, world: World) -> None:
    """By their arguments."""
    registry = asking(world, needs_approval=lambda to, cents: cents > 100)
    async with opened(store_url) as (_, session):
        assert (await ask_for(registry, session, {"to": "ann", "cents": 100})).status == "completed"
        assert (await ask_for(registry, session, {"to": "ann", "cents": 101})).status == "waiting"
    assert world.done == ["ann 100"]


async def test_a_policy_asks_as_well(store_url: Url, world: World) -> None:
    """And its reason is what the person reads."""
    policy = Policy(ask("pay", when=lambda args: args["to"] == "ann", why="Ann again?"))
    registry = asking(world, needs_approval=False, policy=policy)
    async with opened(store_url) as (store, session):
        assert (await ask_for(registry, session)).status == "waiting"
        assert [one.why for one in await bodies(store, session, ApprovalAsked)] == ["Ann again?"]
        await store.approve("s", "call_0", by="boss")
        await hear(session)
        (found,) = await registry.dispatch_step(session)
        assert found.status == "completed"
    assert world.done == ["ann 500"]


async def test_an_answer_that_comes_too_late_changes_nothing(store_url: Url, world: World) -> None:
    """The first one counts; another is on record as late, or told that nobody asks."""
    async with opened(store_url) as (store, session):
        await ask_for(asking(world), session)
        await store.refuse("s", "call_0", by="ann")
        await store.approve("s", "call_0", by="bob")
        await hear(session)
        taken = await bodies(store, session, InboxTaken)
        assert [(one.item.by, one.late) for one in taken] == [("ann", False), ("bob", True)]
        assert await bodies(store, session, ApprovalGiven) == []
        with pytest.raises(NotFound, match="asks nothing about 'call_0'; to approve: none"):
            await store.approve("s", "call_0", by="bob")
    assert world.done == []


async def test_a_rewound_question_is_open_no_more(store_url: Url, world: World) -> None:
    """What was left behind is not approved behind one's back."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        await session.add("Pay Ann.")
        await session.checkpoint()
        await ask_for(registry, session)
        await session.rewind(version=1)
        assert session.state.facts.head.waiting == 0
        with pytest.raises(NotFound, match="asks nothing about 'call_0'"):
            await store.approve("s", "call_0", by="boss")
    async with opened(store_url) as (_, session):
        assert session.state.facts.effects.questions == {}


async def test_an_answer_names_one_call(store_url: Url, world: World) -> None:
    """Two questions under one id: the line must be named."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        await reply(session, call("pay", ANN), call("pay", {"to": "eve", "cents": 1}))
        await registry.dispatch_step(session)
        with pytest.raises(BadInput, match="2 calls 'call_0' wait"):
            await store.approve("s", "call_0", by="boss")
        first, second = session.state.facts.effects.questions
        await store.approve("s", first, by="boss")
        await store.refuse("s", second, by="boss", reason="Who?")
        await hear(session)
        found = await registry.dispatch_step(session)
        assert [one.content for one in found] == ["did ann 500", "pay: refused by boss. Who?"]
    assert world.done == ["ann 500"]


async def test_others_of_the_step_do_not_wait(store_url: Url, world: World) -> None:
    """Only the call that asks does."""

    @tool(side_effects={"read"})
    async def look() -> str:
        return "seen"

    registry = asking(world)
    registry.add(look)
    async with opened(store_url) as (_, session):
        await reply(session, call("pay", ANN, "a"), call("look", id="b"))
        found = await registry.dispatch_step(session)
        assert [one.status for one in found] == ["waiting", "completed"]
        assert [block.call_id for block in results(session)] == ["b"]


async def test_asking_again_and_again_is_a_loop(store_url: Url, world: World) -> None:
    """A call that a person refused counts as a call: the third is stopped before anybody is bothered."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        statuses = []
        for _ in range(3):
            statuses.append((await ask_for(registry, session)).status)
            if statuses[-1] == "waiting":
                await store.refuse("s", "call_0", by="boss", reason="No.")
                await hear(session)
        assert statuses == ["waiting", "waiting", "refused"]
        assert "tool-call loop detected" in str(results(session)[0].content)
        assert (await kinds(store, session)).count("approval.asked") == 2


async def test_an_answer_must_say_who_gives_it(store_url: Url, world: World) -> None:
    """Somebody is responsible."""
    async with opened(store_url) as (store, session):
        await ask_for(asking(world), session)
        with pytest.raises(BadInput, match="say who decides"):
            await store.approve("s", "call_0", by="")
        with pytest.raises(BadInput, match="say who decides"):
            await store.refuse("s", "call_0", by="")


async def test_what_was_done_already_is_not_asked_about(store_url: Url, world: World) -> None:
    """This very call was approved, made and completed; after a restart it simply has its result."""
    async with opened(store_url) as (store, session):
        await asking(world).dispatch("pay", ANN, call_id="c1", session=session)
        await store.approve("s", "c1", by="boss")
        await hear(session)
        await asking(world).dispatch("pay", ANN, call_id="c1", session=session)
    async with opened(store_url) as (store, session):
        found = await asking(world).dispatch("pay", ANN, call_id="c1", session=session)
        assert found.status == "completed"
        assert len(await bodies(store, session, ApprovalAsked)) == 1
    assert world.done == ["ann 500"]


async def test_an_approval_is_spent_with_what_it_allowed(store_url: Url, world: World) -> None:
    """What was approved and then undone is not done again without a person, also after a correction."""
    registry = asking(world, undo=lambda to, cents: world.do(f"back from {to}"))

    async def pay(session: Session) -> str:
        return (await registry.dispatch("pay", ANN, call_id="c1", session=session)).status

    async with opened(store_url) as (store, session):
        for _ in range(2):
            assert [await pay(session), await pay(session)] == ["waiting", "waiting"]
            await store.approve("s", "c1", by="bob", args={"to": "ann", "cents": 400})
            await hear(session)
            assert [await pay(session), await pay(session)] == ["completed", "completed"]
            assert [one.status for one in await registry.undo(session, session.left_behind())] == ["undone"]
    assert world.done == ["ann 400", "back from ann"] * 2
