"""The loop: request, reply, tools, results, checkpoint; and every way in which it ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest

import holdfast
from holdfast import Agent, LeaseHeld
from holdfast.agents import ScriptedModel
from holdfast.core.entries import ModelFailed, RunStarted
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadId, BadInput, Closed, ModelError, NotFound
from holdfast.messages import Message
from tests.agent.scripted_agents import Counting, World, call, fresh_store, make, texts
from tests.tools.example_tools import die

REFUND = ["I will look.", call("look", what="order 42")]


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


async def test_a_run_goes_from_the_message_to_the_answer(world: World) -> None:
    """Every step has a checkpoint, and the outcome says what it took."""
    agent = make(
        [REFUND, [call("pay", what="42"), call("look", what="bank")], "Refunded."], world, name="clerk"
    )
    async with fresh_store() as store:
        outcome = await agent.run("Refund order 42", session="s", store=store)
        assert (outcome.status, outcome.output, outcome.reason) == ("completed", "Refunded.", "")
        assert outcome.session == "s"
        assert outcome.run.startswith("clerk-")
        assert outcome.usage.tokens > 0
        assert await texts(store, "s") == [
            "user: Refund order 42",
            "assistant: I will look., look(order 42)",
            "tool: order 42 is fine",
            "assistant: pay(42), look(bank)",
            "tool: pay 42 done, bank is fine",
            "assistant: Refunded.",
        ]
        state = await store.load("s")
        assert [one.step for one in state.checkpoints] == [1, 2, 3]
        assert (state.status, state.facts.head.title) == ("completed", "Refund order 42")
    assert world.done == ["pay 42"]


async def test_another_message_goes_on_with_the_session() -> None:
    agent = make(["Hello.", "Again."])
    async with fresh_store() as store:
        await agent.run("Hi", session="s", store=store)
        outcome = await agent.run("Hi again", session="s", store=store)
        assert outcome.output == "Again."
        assert len(await texts(store, "s")) == 4


async def test_several_agents_take_turns_in_a_session_that_is_open() -> None:
    one, two = make(["One."], name="one"), make(["One.", "Two."], name="two")
    async with fresh_store() as store, store.session("s") as session:
        await one.run("First", session=session)
        outcome = await two.run("Second", session=session)
        assert outcome.output == "Two."
        assert await two.resume(session) == outcome
        assert [run.agent for run in session.state.facts.runs.values()] == ["one", "two"]


async def test_a_provider_that_says_much_later_ends_the_run() -> None:
    """It can be resumed then."""
    agent = make([ModelError("come back tomorrow", retryable=True, retry_after_s=86_400), "Hello."])
    async with fresh_store() as store:
        outcome = await agent.run("Hi", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("failed", "model_error")
        assert (await agent.resume("s", store=store)).output == "Hello."


async def test_without_a_session_every_run_has_its_own() -> None:
    agent = make(lambda prompt: "Hello.", name="clerk")
    async with fresh_store() as store:
        first, second = [await agent.run("Hi", store=store) for _ in range(2)]
        assert first.session != second.session


async def test_any_name_of_an_agent_will_do_for_a_session_of_its_own() -> None:
    async with fresh_store() as store:
        for name, begins in (("clerk", "clerk-"), ("Head clerk (2nd)", "session-"), ("x" * 200, "session-")):
            outcome = await make(["Fine."], name=name).run("Go", store=store)
            assert outcome.session.startswith(begins)


async def test_what_was_said_is_recorded_with_model_instructions_and_tools() -> None:
    agent = make(["Hello."], name="clerk", instructions="Be kind.")
    async with fresh_store() as store:
        await agent.run("Hi", session="s", store=store)
        (started,) = [
            entry.body async for entry in store.tail("s", follow=False) if isinstance(entry.body, RunStarted)
        ]
        assert (started.agent, started.model) == ("clerk", "scripted")
        assert started.instructions
        assert set(started.tools) == {"look", "pay", "fire", "vanish"}


async def test_an_outcome_is_given_again_without_a_request() -> None:
    model = Counting(["Hello."])
    agent = make(model)
    async with fresh_store() as store:
        first = await agent.run("Hi", session="s", store=store)
        assert await agent.resume("s", store=store) == first
        assert len(model.prompts) == 1


async def test_a_session_that_is_not_there_cannot_be_resumed() -> None:
    async with fresh_store() as store:
        with pytest.raises(NotFound):
            await make(["Hello."]).resume("s", store=store)
        async with store.session("empty"):
            pass
        outcome = await make(["Hello."]).resume("empty", store=store)
        assert (outcome.status, outcome.reason) == ("failed", "no_message")


async def test_the_same_session_twice_at_once_is_refused() -> None:
    async with fresh_store() as store, store.session("s"):
        with pytest.raises(LeaseHeld, match="open in this process already"):
            await make(["Hello."]).run("Hi", session="s", store=store)


async def test_a_run_that_was_cancelled_goes_on(world: World) -> None:
    """What was recorded is kept: the reply is not asked for again, and the call is made once."""
    asked = anyio.Event()

    @holdfast.tool(side_effects={"read"})
    async def wait_for_ever() -> str:
        """Never ends, the first time."""
        if not asked.is_set():
            asked.set()
            await anyio.sleep_forever()
        return "at last"

    model = Counting([[call("pay", what="42"), call("wait_for_ever")], "Done."])
    agent = make(model, world, tools=[wait_for_ever])
    async with fresh_store() as store:
        async with anyio.create_task_group() as tasks:

            async def first() -> None:
                await agent.run("Go", session="s", store=store)

            tasks.start_soon(first)
            await asked.wait()
            tasks.cancel_scope.cancel()
        assert (await store.load("s")).status == "cancelled"
        outcome = await agent.resume("s", store=store)
        assert outcome.output == "Done."
        assert await texts(store, "s") == [
            "user: Go",
            "assistant: pay(42), wait_for_ever()",
            "tool: pay 42 done, at last",
            "assistant: Done.",
        ]
    assert world.done == ["pay 42"]
    assert len(model.prompts) == 2


async def test_an_unfinished_step_is_finished_before_a_new_message_is_added(world: World) -> None:
    agent = make([[call("pay", what="42")], "Done."], world)
    async with fresh_store() as store:
        async with store.session("s") as session, session.run() as run:
            await session.add("Go")
            async with run.request() as request:
                reply = [one async for one in ScriptedModel([call("pay", what="42")]).ask(_empty())][-1]
                assert isinstance(reply, holdfast.agents.Reply)
                await request.reply(reply.message)
        await agent.run("And hurry", session="s", store=store)
        assert await texts(store, "s") == [
            "user: Go",
            "assistant: pay(42)",
            "tool: pay 42 done",
            "user: And hurry",
            "assistant: Done.",
        ]


async def _crash(store: holdfast.Store, agent: Agent[Any, Any], *, after: str) -> None:
    """Leave a session as a process does that dies on the way to the first tool, or to the second reply."""
    async with store.session("s") as session:
        run = await session.run().__aenter__()
        await session.add("Go")
        async with run.request() as request:
            said = holdfast.messages.Message(role="assistant", blocks=(call("look", what="x"),))
            await request.reply(said)
        if after == "request":
            await agent.registry.dispatch_step(session)
            await session.checkpoint()
            await run.request(reserve_tokens=100).__aenter__()
        run.leave_context()


async def test_a_request_that_was_cut_off_is_no_step(world: World) -> None:
    """It ends none, and no version is made of what has one already."""
    agent = make([call("look", what="x"), "Done."], world)
    async with fresh_store() as store:
        await _crash(store, agent, after="request")
        assert (await agent.resume("s", store=store)).output == "Done."
        assert [one.step for one in (await store.load("s")).checkpoints] == [1, 2]


@pytest.mark.parametrize("after", ["reply", "request"])
async def test_a_step_that_a_crash_cut_in_two_counts_once(world: World, after: str) -> None:
    """Towards the limit: the model is told that the second reply is the last one."""
    model = Counting([call("look", what="x"), "Done."])
    agent = make(model, world, max_steps=2)
    async with fresh_store() as store:
        await _crash(store, agent, after=after)
        assert (await agent.resume("s", store=store)).output == "Done."
        assert "last reply" in model.prompts[-1].instructions
        assert (await store.load("s")).budget.steps == 2


@pytest.mark.parametrize("died", [(), ("request",), ("step", "request")], ids=str)
async def test_a_crash_after_a_pause_takes_no_step_from_the_limit(died: Sequence[str]) -> None:
    """The steps count anew, and the one that waited is of those before: it was asked for then."""
    driver, dying = MemoryDriver(), list(died)
    stores: list[holdfast.Store] = []

    def die_in(place: str) -> None:
        if dying[:1] == [place]:
            dying.pop(0)
            die(stores[-1])

    @holdfast.tool(side_effects={"read"}, needs_approval=True)
    async def enter(what: str) -> str:
        """Look behind a closed door."""
        die_in("step")
        return what

    def script(prompt: holdfast.agents.Prompt) -> Any:
        if len(prompt.messages) == 1:
            return call("enter", what="the vault")
        die_in("request")
        return call("look", what="x") if len(prompt.messages) == 3 else "Done."

    model = Counting(script)
    agent = make(model, tools=[enter], max_steps=2)
    while len(stores) < 6:
        async with holdfast.open_store(driver) as store:
            stores.append(store)
            if len(stores) == 1:
                assert (await agent.run("Go", session="s", store=store)).status == "waiting"
                await store.approve("s", "c-enter", by="ann")
                continue
            with suppress(Closed):
                outcome = await agent.resume("s", store=store)
                break
    assert (outcome.output, dying) == ("Done.", [])
    told = ["last reply" in prompt.instructions for prompt in model.prompts]
    assert told == [False] * (len(told) - 1) + [True]


async def test_a_checkpoint_that_a_tool_takes_is_no_step_after_a_crash() -> None:
    """The limit is on replies."""
    driver, stores = MemoryDriver(), list[holdfast.Store]()

    @holdfast.tool(side_effects={"read"})
    async def save(ctx: holdfast.ToolContext[Any]) -> str:
        """Take some checkpoints."""
        for number in range(3):
            await ctx.session.set("number", number)
            await ctx.session.checkpoint()
        return "saved"

    def script(prompt: holdfast.agents.Prompt) -> Any:
        if len(prompt.messages) == 1:
            return call("save")
        if len(stores) == 1:
            die(stores[0])
        return "Done."

    model = Counting(script)
    agent = make(model, tools=[save], max_steps=3)
    async with holdfast.open_store(driver) as store:
        stores.append(store)
        with suppress(Closed):
            await agent.run("Go", session="s", store=store)
    async with holdfast.open_store(driver) as store:
        stores.append(store)
        assert (await agent.resume("s", store=store)).output == "Done."
    assert not any("last reply" in prompt.instructions for prompt in model.prompts)


def _empty() -> holdfast.agents.Prompt:
    return holdfast.agents.Prompt(messages=[])


async def test_a_message_waits_while_the_step_waits_for_a_person(world: World) -> None:
    """It is not lost, and comes after the step."""
    agent = make([[call("fire", what="bob")], "Done."], world)
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
        waiting = await agent.run("And hurry", session="s", store=store)
        assert waiting.status == "waiting"
        await store.approve("s", "c-fire", by="ann")
        outcome = await agent.resume("s", store=store)
        assert outcome.output == "Done."
        assert (await texts(store, "s"))[-3:] == [
            "tool: fire bob done",
            "user: And hurry",
            "assistant: Done.",
        ]


async def test_no_message_comes_between_a_call_and_its_result(world: World) -> None:
    """Not when another task takes a checkpoint meanwhile, and not when the call is from elsewhere."""
    agent = make([call("fire", what="bob"), "Fired."], world)
    async with fresh_store() as store:
        async with store.session("imported") as session:
            await session.add("Go")
            await session.add(Message(role="assistant", blocks=(call("fire", what="bob"),)))
        await agent.run("Go", session="checkpointed", store=store)
        for id in ("imported", "checkpointed"):
            (question,) = (await agent.run("One more thing", session=id, store=store)).waiting
            async with store.session(id) as session:
                await session.checkpoint()
            await store.approve(id, question.call, by="ann")
            assert (await agent.resume(id, store=store)).output == "Fired."
            assert not (await store.load(id)).problems
            assert (await texts(store, id))[3:] == ["user: One more thing", "assistant: Fired."]


async def test_a_call_that_needs_approval_is_what_the_outcome_waits_for(world: World) -> None:
    agent = make([[call("fire", what="bob"), call("look", what="bob")], "Done."], world)
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason, outcome.output) == ("waiting", "approval", None)
        (one,) = outcome.waiting
        assert (one.session, one.call, one.tool, one.kind) == ("s", "c-fire", "fire", "approval")
        assert (await store.load("s")).status == "waiting"
        assert (await agent.resume("s", store=store)).status == "waiting"
        assert world.done == []
        await store.refuse("s", "c-fire", by="ann", reason="He stays.")
        assert (await agent.resume("s", store=store)).output == "Done."
        assert "tool: fire: refused by ann. He stays., bob is fine" in await texts(store, "s")
    assert world.done == []


async def test_a_call_in_doubt_is_what_the_outcome_waits_for(world: World) -> None:
    agent = make([[call("vanish", what="x")], "Done."], world)
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("waiting", "in_doubt")
        assert "the line went dead" in outcome.waiting[0].why
        await store.resolve("s", "c-vanish", "landed", by="ann", result="it is gone")
        assert (await agent.resume("s", store=store)).output == "Done."
        assert "tool: it is gone" in await texts(store, "s")
    assert world.done == ["vanish x"]


async def test_an_agent_that_is_told_of_doubts_goes_on(world: World) -> None:
    agent = make([[call("vanish", what="x")], "I leave it."], world, in_doubt="tell")
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.output) == ("completed", "I leave it.")


async def test_the_step_limit_ends_a_run_and_the_model_was_told(world: World) -> None:
    model = Counting(lambda prompt: call("look", what=str(len(prompt.messages))))
    agent = make(model, world, max_steps=3)
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("failed", "step_limit")
        told = ["last reply" in prompt.instructions for prompt in model.prompts]
        assert told == [False, False, True]
        assert (await store.load("s")).facts.head.reason == "step_limit"


async def test_a_cancel_request_is_obeyed_at_the_end_of_the_step(world: World) -> None:
    async with fresh_store() as store:

        @holdfast.tool(side_effects={"read"})
        async def be_asked() -> str:
            """A cancel request arrives meanwhile."""
            await store.cancel("s", by="ann", reason="enough")
            return "asked"

        agent = make([call("be_asked"), "Never said."], world, tools=[be_asked])
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("cancelled", "enough")
        assert (await store.load("s")).status == "cancelled"


async def test_a_message_sent_meanwhile_comes_after_the_step(world: World) -> None:
    async with fresh_store() as store:

        @holdfast.tool(side_effects={"read"})
        async def be_told() -> str:
            """A message arrives meanwhile."""
            await store.submit("s", "One more thing")
            return "told"

        agent = make([call("be_told"), "Both done."], world, tools=[be_told])
        await agent.run("Go", session="s", store=store)
        assert (await texts(store, "s"))[-2:] == ["user: One more thing", "assistant: Both done."]


async def test_a_failing_model_is_asked_again_and_every_attempt_is_on_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    agent = make([ModelError("busy", retryable=True), ModelError("busy still", retryable=True), "Hello."])
    async with fresh_store() as store:
        assert (await agent.run("Hi", session="s", store=store)).output == "Hello."
        failed = [
            entry.body.error
            async for entry in store.tail("s", follow=False)
            if isinstance(entry.body, ModelFailed)
        ]
        assert failed == ["ModelError: busy", "ModelError: busy still"]
    assert "Hello" not in caplog.text


@pytest.mark.parametrize(
    ("errors", "asked"),
    [
        ([ModelError("wrong key")], 1),
        ([ModelError("busy", retryable=True)] * 3, 3),
    ],
)
async def test_a_model_that_cannot_be_had_is_the_reason_in_the_outcome(errors: Any, asked: int) -> None:
    model = Counting([*errors, "Hello."])
    agent = make(model)
    async with fresh_store() as store:
        outcome = await agent.run("Hi", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("failed", "model_error")
        assert str(errors[-1]) in outcome.error
        assert len(model.prompts) == asked
        assert (await agent.resume("s", store=store)).output == "Hello."


async def test_an_error_of_the_program_is_not_swallowed() -> None:
    async with fresh_store() as store:
        with pytest.raises(ZeroDivisionError):
            await make([ZeroDivisionError("oops")]).run("Hi", session="s", store=store)
        state = await store.load("s")
        assert (state.status, state.facts.head.open_run) == ("failed", None)


@pytest.mark.parametrize("said", [Message(role="user", blocks=()), Message(role="tool", blocks=())])
async def test_a_reply_that_is_none_is_an_error_of_the_program(said: Message) -> None:
    async with fresh_store() as store:
        with pytest.raises(BadInput, match="a reply is an assistant's message"):
            await make([said]).run("Go", session="s", store=store)
        assert await texts(store, "s") == ["user: Go"]


async def test_what_needs_something_else_gets_it_and_never_stores_it(world: World) -> None:
    @holdfast.tool(side_effects={"read"})
    async def whose(ctx: holdfast.ToolContext[list[str]]) -> str:
        """Whose deps are these?"""
        return ctx.deps[0]

    agent = make([call("whose"), "Yours."], world, tools=[whose])
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store, deps=["mine"])
        assert "tool: mine" in await texts(store, "s")


async def test_a_tool_that_is_gone_is_explained_to_the_model(world: World) -> None:
    """Resuming under changed code."""
    without: Agent[Any, str] = Agent(ScriptedModel([[call("pay", what="42")], "I see."]))
    async with fresh_store() as store:
        async with store.session("s") as session, session.run() as run:
            await session.add("Go")
            async with run.request() as request:
                await request.reply(
                    holdfast.messages.Message(role="assistant", blocks=(call("pay", what="42"),))
                )
        outcome = await without.resume("s", store=store)
        assert outcome.output == "I see."
        assert any("unknown tool: 'pay'" in said for said in await texts(store, "s"))
    assert world.done == []


async def test_all_that_were_interrupted_are_taken_up(world: World) -> None:
    """Those of this agent, and not those with a live holder, or that ended."""
    agent = make(lambda prompt: "Done.", world, name="clerk")
    async with fresh_store() as store:
        await agent.run("Go", session="ended", store=store)
        for name in ("a", "b", "c"):
            await _leave_open(store, name, "clerk")
        await _leave_open(store, "other", "another")
        outcomes = await agent.resume_all(store, concurrency=2)
        assert [(one.session, one.output) for one in outcomes] == [
            ("a", "Done."),
            ("b", "Done."),
            ("c", "Done."),
        ]
        assert await agent.resume_all(store) == []


async def _leave_open(store: holdfast.Store, name: str, agent: str) -> None:
    async with store.session(name) as session:
        await session.run(agent=agent).__aenter__()
        await session.add("Go")
        await session.flush()


def test_nonsense_is_refused_when_an_agent_is_made() -> None:
    with pytest.raises(BadInput, match="max_steps=0"):
        Agent(ScriptedModel([]), max_steps=0)
    with pytest.raises(BadInput, match="5 is not a model"):
        Agent(5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="needs a name"):
        Agent(ScriptedModel([])).as_tool()


async def test_nonsense_is_refused_before_anything_is_written() -> None:
    agent = make(["Hello."])
    async with fresh_store() as store:
        for empty in ("", " \n"):
            with pytest.raises(BadInput, match="the message is empty"):
                await agent.run(empty, session="s", store=store)
            with pytest.raises(BadInput, match="the message is empty"):
                await anext(agent.stream(empty, session="s", store=store))
        with pytest.raises(BadInput, match="not an open store"):
            await agent.run("Hi", session="s", store=5)  # type: ignore[arg-type]
        with pytest.raises(BadId, match="must not be empty"):
            await agent.resume("", store=store)
        assert [head async for head in store.sessions()] == []
