"""Whole runs of agents, as a tracer sees them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

import holdfast
from holdfast.agents import Prompt, Reply, ScriptedModel
from holdfast.agents.model import ModelEvent
from holdfast.errors import ModelError
from holdfast.messages import Message, Text
from holdfast.records import Usage
from tests.agent.scripted_agents import World, call, fresh_store, make
from tests.telemetry.exporters import Listener, about, error_of, id_of


def said(text: str, **usage: int) -> Reply:
    """A reply, with what it took."""
    message = Message(role="assistant", blocks=(Text(text),))
    return Reply(message=message, usage=Usage(**usage), model="model-2026-01-01")


async def test_a_run_is_a_tree_of_steps_requests_and_dispatches(listener: Listener) -> None:
    model = ScriptedModel([call("look", what="x"), "Fine."], name="anthropic:model")
    async with fresh_store() as store:
        outcome = await make(model, name="clerk").run("Go", session="s", store=store)
    assert listener.tree() == [
        "invoke_agent clerk",
        "  step",
        "    chat model",
        "    execute_tool look",
        "  step",
        "    chat model",
    ]
    run, first, chat, tool, second, _ = listener.spans
    assert about(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
        "gen_ai.conversation.id": "s",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "model",
        "holdfast.run.id": outcome.run,
        "holdfast.run.status": "completed",
    }
    assert [about(step) for step in (first, second)] == [
        {"holdfast.step.number": number, "holdfast.step.version": number} for number in (1, 2)
    ]
    assert about(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "clerk",
        "gen_ai.conversation.id": "s",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c-look",
        "holdfast.tool.status": "completed",
        "holdfast.tool.attempt": 1,
    }
    assert (chat.kind.name, tool.kind.name, run.kind.name) == ("CLIENT", "INTERNAL", "INTERNAL")
    assert not any(map(error_of, listener.spans))


async def test_a_request_says_what_it_took_and_who_answered(listener: Listener) -> None:
    reply = said("Fine.", input_tokens=100, output_tokens=7, cache_read_tokens=60, cache_write_tokens=5)
    agent = make(
        ScriptedModel([reply], name="google:model"),
        price=holdfast.agents.Price(input_usd_per_mtok=1, output_usd_per_mtok=2),
        name="clerk",
    )
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
    found = about(listener.find("chat model"))
    assert found.pop("holdfast.usage.cost_usd") == pytest.approx(outcome.cost_usd)
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "clerk",
        "gen_ai.conversation.id": "s",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "model",
        "gen_ai.response.model": "model-2026-01-01",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 5,
    }


async def test_a_delegate_is_below_the_call_that_started_it(listener: Listener) -> None:
    helper = make([call("look", what="x"), "Fine."], name="helper")
    boss = make([call("helper", task="Look"), "Thanks."], name="boss", tools=[helper.as_tool()])
    async with fresh_store() as store:
        await boss.run("Go", session="s", store=store)
    assert listener.tree() == [
        "invoke_agent boss",
        "  step",
        "    chat scripted",
        "    execute_tool helper",
        "      invoke_agent helper",
        "        step",
        "          chat scripted",
        "          execute_tool look",
        "        step",
        "          chat scripted",
        "  step",
        "    chat scripted",
    ]


async def test_the_turns_of_a_thread_are_below_it(listener: Listener) -> None:
    agents = [make(lambda prompt: "I agree.", name=name) for name in ("a", "b")]
    async with fresh_store() as store:
        await holdfast.agents.Thread(agents, max_iterations=2).run("Discuss", session="s", store=store)
    turn = ["    step", "      chat scripted"]
    assert listener.tree() == [
        "invoke_agent thread",
        "  invoke_agent a",
        *turn,
        "  invoke_agent b",
        *turn,
    ]


async def test_every_attempt_at_a_request_is_a_span(listener: Listener) -> None:
    model = ScriptedModel([ModelError("busy", retryable=True), "Fine."])
    async with fresh_store() as store:
        outcome = await make(model).run("Go", session="s", store=store)
    assert outcome.output == "Fine."
    assert listener.tree() == ["invoke_agent", "  step", "    chat scripted", "    chat scripted"]
    assert [error_of(span) for span in listener.spans] == [None, None, "holdfast.errors.ModelError", None]


async def test_a_refusal_names_its_gate(listener: Listener) -> None:
    """A name that a model made up names no span: it would fill a tracer with names."""
    agent = make([call("lok", what="x"), call("look", wat="x"), "I give up."], name="clerk")
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
    unknown = about(listener.find("execute_tool"))
    wrong = about(listener.find("execute_tool look"))
    assert [one["holdfast.tool.gate"] for one in (unknown, wrong)] == ["name", "arguments"]
    assert [one["holdfast.tool.status"] for one in (unknown, wrong)] == ["refused", "refused"]
    assert [one["error.type"] for one in (unknown, wrong)] == ["refused", "refused"]
    assert unknown["gen_ai.tool.name"] == "lok"


async def test_a_call_that_fails_tells_the_class_of_the_error_alone(listener: Listener) -> None:
    @holdfast.tool(side_effects={"read"}, retry=holdfast.tools.Retry(attempts=2, backoff_s=0.0))
    async def ask(secret: str) -> str:
        raise OSError(f"no answer to {secret}")

    @holdfast.tool(side_effects={"mutate"})
    async def send(secret: str) -> str:
        raise TimeoutError(f"no answer to {secret}")

    calls = [call("ask", secret="hush"), call("send", secret="hush")]
    agent = make([calls, "Never mind, hush."], tools=[ask, send], instructions="hush", in_doubt="tell")
    async with fresh_store() as store:
        await agent.run("hush", session="s", store=store)
    asked, sent = listener.find("execute_tool ask"), listener.find("execute_tool send")
    assert [error_of(span) for span in (asked, sent)] == ["OSError", "TimeoutError"]
    assert about(asked)["holdfast.tool.attempt"] == 2
    assert [about(span)["holdfast.tool.status"] for span in (asked, sent)] == ["failed", "in_doubt"]
    assert "hush" not in "".join(span.to_json() for span in listener.spans)


async def test_what_was_done_before_names_the_call_that_did_it(listener: Listener) -> None:
    calls = [call("pay", id="one", what="42"), call("pay", id="two", what="42")]
    async with fresh_store() as store:
        await make([calls[0], calls[1], "Paid."], World()).run("Go", session="s", store=store)
    first, second = [about(span) for span in listener.spans if span.name == "execute_tool pay"]
    assert "holdfast.tool.replay_of" not in first
    assert second["holdfast.tool.replay_of"] == "one"
    assert "holdfast.tool.attempt" not in second


async def test_parallel_calls_are_siblings_and_keep_their_own_spans(listener: Listener) -> None:
    """Also in threads, and whatever order they end in."""
    turn = anyio.Event()

    @holdfast.tool(side_effects={"read"})
    async def first() -> str:
        with listener.tracer.start_as_current_span("in first"):
            await turn.wait()
            with listener.tracer.start_as_current_span("late in first"):
                return "1"

    @holdfast.tool(side_effects={"read"})
    async def second() -> str:
        with listener.tracer.start_as_current_span("in second"):
            turn.set()
            return "2"

    @holdfast.tool(side_effects={"read"})
    def third() -> str:
        with listener.tracer.start_as_current_span("in third"):
            return "3"

    @holdfast.tool(side_effects={"mutate"})
    def fourth() -> str:
        with listener.tracer.start_as_current_span("in fourth"):
            return "4"

    tools: list[Any] = [first, second, third, fourth]
    agent = make([[call(tool.name) for tool in tools], "Done."], tools=tools)
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
    parents = {id_of(span): span.name for span in listener.spans}
    below = {span.name: parents[span.parent.span_id] for span in listener.spans if span.parent}
    for name in ("first", "second", "third", "fourth"):
        assert below[f"in {name}"] == f"execute_tool {name}"
        assert below[f"execute_tool {name}"] == "step"
    assert below["late in first"] == "in first"


async def test_a_cancelled_run_ends_every_span(listener: Listener) -> None:
    @holdfast.tool(side_effects={"read"})
    async def wait() -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    async with fresh_store() as store:
        with anyio.CancelScope() as scope:
            await make([call("wait")], tools=[wait]).run("Go", session="s", store=store)
    assert listener.tree() == ["invoke_agent", "  step", "    chat scripted", "    execute_tool wait"]
    run, step, chat, tool = listener.spans
    assert [error_of(span) for span in (run, step, chat, tool)] == [
        "cancelled",
        "cancelled",
        None,
        "cancelled",
    ]
    assert about(run)["holdfast.run.status"] == "cancelled"


async def test_a_request_that_is_cancelled_ends_its_span(listener: Listener) -> None:
    class Cancelled(ScriptedModel):
        async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
            scope.cancel()
            async for one in super().ask(prompt):
                yield one

    async with fresh_store() as store:
        with anyio.CancelScope() as scope:
            await make(Cancelled(["Late."], delay_s=60)).run("Go", session="s", store=store)
    assert error_of(listener.find("chat scripted")) == "cancelled"


@pytest.mark.parametrize(
    ("options", "error"),
    [({"max_steps": 1}, "step_limit"), ({"budget": holdfast.Budget(steps=1)}, "budget_spent")],
)
async def test_a_run_that_fails_says_why(listener: Listener, options: dict[str, Any], error: str) -> None:
    async with fresh_store() as store:
        await make([call("look", what="x")] * 2, **options).run("Go", session="s", store=store)
    run = listener.find("invoke_agent")
    assert (error_of(run), about(run)["holdfast.run.status"]) == (error, "failed")


async def test_an_exception_in_a_run_is_told_by_its_class(listener: Listener) -> None:
    async with fresh_store() as store, store.session("s") as session:
        with pytest.raises(ZeroDivisionError):
            async with session.run(agent="clerk") as run, run.request(model="llama3:8b"):
                raise ZeroDivisionError("hush")
    assert [error_of(span) for span in listener.spans] == ["ZeroDivisionError"] * 3
    chat = about(listener.find("chat llama3:8b"))
    assert (chat["gen_ai.provider.name"], chat["gen_ai.request.model"]) == ("_OTHER", "llama3:8b")
    assert "hush" not in "".join(span.to_json() for span in listener.spans)


async def test_who_stops_listening_to_a_stream_ends_every_span(listener: Listener) -> None:
    """A generator may be closed in any task; the context of that task is not changed."""
    agent = make([call("look", what="x"), "It is all fine."])
    async with fresh_store() as store:
        with listener.tracer.start_as_current_span("caller") as caller:
            events = agent.stream("Go", session="s", store=store)
            async for _ in events:
                break  # At the first of them: the run must not be over before it is stopped.
            await events.aclose()
            with listener.tracer.start_as_current_span("afterwards"):
                pass
    assert listener.tree()[:3] == ["caller", "  invoke_agent", "    step"]
    after = listener.find("afterwards")
    assert after.parent is not None
    assert after.parent.span_id == caller.get_span_context().span_id
    assert error_of(listener.find("invoke_agent")) == "cancelled"
