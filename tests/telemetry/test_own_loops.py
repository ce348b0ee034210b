"""Loops of one's own, with an event loop and without, and dispatches outside of any run."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import blocking as blocking_holdfast
from holdfast.messages import Message, ToolCall
from tests.telemetry.exporters import Listener, about, error_of


@holdfast.tool(side_effects={"read"})
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} is fine"


@holdfast.tool(side_effects={"mutate"})
def pay(what: str) -> str:
    """Pay for something."""
    return f"{what} is paid"


CALLS = Message(
    role="assistant",
    blocks=(
        ToolCall(id="1", name="look", args={"what": "x"}),
        ToolCall(id="2", name="pay", args={"what": "x"}),
    ),
)
TREE = [
    "invoke_agent clerk",
    "  step",
    "    chat model",
    "      at the model",
    "    execute_tool look",
    "    execute_tool pay",
    "  step",
    "    chat model",
]


async def test_a_step_goes_from_a_request_to_a_checkpoint(listener: Listener) -> None:
    registry = holdfast.Registry([look, pay])
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        async with session.run(agent="clerk", model="openai:model") as run:
            await session.add("Go")
            async with run.request() as request:
                with listener.tracer.start_as_current_span("at the model"):
                    pass
                await request.reply(CALLS)
            await registry.dispatch_step(session)
            await session.checkpoint()
            async with run.request() as request:
                await request.reply("Done.")
            run.complete()
    assert listener.tree() == TREE
    # The tokens were not counted.
    assert "gen_ai.usage.input_tokens" not in about(listener.spans[2])


def test_code_without_an_event_loop_is_reported_alike(listener: Listener) -> None:
    """What the caller's own thread does in the meantime included."""
    registry = blocking_holdfast.Registry([look, pay])
    with blocking_holdfast.open_store("memory:") as store, store.session("s") as session:
        with session.run(agent="clerk", model="openai:model") as run:
            session.add("Go")
            with run.request() as request:
                with listener.tracer.start_as_current_span("at the model"):
                    pass
                request.reply(CALLS)
            registry.dispatch_step(session)
            session.checkpoint()
            with run.request() as request:
                request.reply("Done.")
            run.complete()
        registry.dispatch("look", {"what": "y"}, session=session)
    assert listener.tree() == [*TREE, "execute_tool look"]


def test_an_agent_without_an_event_loop_is_below_its_caller(listener: Listener) -> None:
    model = holdfast.agents.ScriptedModel([ToolCall(id="1", name="pay", args={"what": "x"}), "Done."])
    agent = blocking_holdfast.Agent(model, tools=[pay], name="clerk")
    with blocking_holdfast.open_store("memory:") as store:
        with listener.tracer.start_as_current_span("caller"):
            agent.run("Go", session="s", store=store)
    assert listener.tree()[:4] == ["caller", "  invoke_agent clerk", "    step", "      chat scripted"]


async def test_a_slip_of_the_caller_is_refused_as_without_a_listener(listener: Listener) -> None:
    odd: Any = 3
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        with pytest.raises(holdfast.errors.BadInput):
            async with session.run(model=odd):
                pass
    assert [error_of(span) for span in listener.spans] == ["holdfast.errors.BadInput"]


async def test_a_span_of_the_callers_own_is_between_the_run_and_a_request(listener: Listener) -> None:
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        async with session.run(agent="clerk") as run:
            with listener.tracer.start_as_current_span("plan"):
                async with run.request(model="model") as request:
                    await request.reply("Hm.")
    assert listener.tree() == ["invoke_agent clerk", "  plan", "    chat model"]


async def test_a_request_that_is_left_without_a_reply_has_failed(listener: Listener) -> None:
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        async with session.run() as run, run.request(model="model"):
            pass
    assert error_of(listener.find("chat model")) == "no_reply"


@pytest.mark.parametrize("with_session", [True, False])
async def test_a_dispatch_without_a_run_stands_alone(listener: Listener, with_session: bool) -> None:
    registry = holdfast.Registry([look])
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        within = session if with_session else None
        await registry.dispatch("look", {"what": "x"}, call_id="c1", session=within)
        await registry.dispatch("look", {}, call_id="c2", session=within)
    assert listener.tree() == ["execute_tool look", "execute_tool look"]
    done, refused = map(about, listener.spans)
    assert (done["gen_ai.tool.call.id"], done["holdfast.tool.status"]) == ("c1", "completed")
    assert (refused["holdfast.tool.gate"], refused["holdfast.tool.status"]) == ("arguments", "refused")
    assert done.get("gen_ai.conversation.id") == ("s" if with_session else None)


async def test_a_body_that_is_run_again_to_settle_a_doubt_has_a_span(listener: Listener) -> None:
    """The tool was in doubt, and is idempotent: the same key, once more."""
    failures = [OSError("the line went dead")]

    @holdfast.tool(side_effects={"mutate"}, idempotent=True, retry=holdfast.tools.Retry(attempts=1))
    async def send(what: str) -> str:
        if failures:
            raise failures.pop()
        return what

    registry = holdfast.Registry([send])
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        await registry.dispatch("send", {"what": "x"}, session=session)
        assert await session.settle(registry) == []
    first, second = listener.spans
    assert [error_of(first), error_of(second)] == ["OSError", None]
    assert [about(one)["holdfast.tool.attempt"] for one in (first, second)] == [1, 2]


async def test_the_context_of_the_caller_is_as_it_was(listener: Listener) -> None:
    from opentelemetry import trace

    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        with listener.tracer.start_as_current_span("caller") as caller:
            async with session.run() as run:
                async with run.request() as request:
                    await request.reply("Hm.")
            await holdfast.Registry([look]).dispatch("look", {"what": "x"}, session=session)
            assert trace.get_current_span() is caller
        assert not trace.get_current_span().get_span_context().is_valid
