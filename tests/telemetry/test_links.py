"""A run that goes on with the work of another one points at it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from opentelemetry.trace import SpanContext

import holdfast
from tests.agent.scripted_agents import World, call, fresh_store, make
from tests.crash.fork_server import Warm
from tests.telemetry.exporters import Listener, context_of, listen, nobody_listens
from tests.telemetry.killed_agents import make_agent, work


def links_of(listener: Listener, name: str) -> list[tuple[str, object]]:
    """What the only span of this name points at, as a traceparent, and the run that is said to be there."""
    return [
        (written(link.context), dict(link.attributes or {})["holdfast.run.id"])
        for link in listener.find(name).links
    ]


def written(span: SpanContext) -> str:
    """As the W3C writes it."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


async def runs_of(store: holdfast.Store, session: str) -> list[holdfast.records.RunInfo]:
    """The runs of a session."""
    return [run async for run in store.runs(session=session)]


@pytest.mark.parametrize("scheme", ["dir", "sqlite"])
def test_a_run_links_to_the_one_that_was_killed(warm: Warm, scheme: str, tmp_path: Path) -> None:
    """The spans of a killed process are lost; the journal knows which they were."""
    url = f"{scheme}:{tmp_path}/store"
    with warm.child(work, url) as child:
        trace_id = child.hear()
        child.kill()
        child.wait()

    async def resume() -> None:
        async with holdfast.open_store(url) as store:
            with listen() as listener:
                outcome = await make_agent(None).resume("s", store=store)
            assert outcome.output == "Done."
            killed, resumed = await runs_of(store, "s")
            assert killed.trace is not None
            assert killed.trace.split("-")[1] == trace_id
            assert resumed.continues == killed.run
            assert links_of(listener, "invoke_agent clerk") == [(killed.trace, killed.run)]
            assert resumed.trace == written(context_of(listener.find("invoke_agent clerk")))
            assert listener.tree()[:3] == ["invoke_agent clerk", "  step", "    execute_tool look"]

    anyio.run(resume)


async def test_a_run_links_to_the_one_that_waited(listener: Listener) -> None:
    """A person has answered, and the work goes on."""
    agent = make([call("fire", what="bob"), "Fired."], World(), name="clerk")
    async with fresh_store() as store:
        (waiting,) = (await agent.run("Go", session="s", store=store)).waiting
        (before,) = await runs_of(store, "s")
        assert not listener.find("invoke_agent clerk").links
        await store.approve(waiting.session, waiting.call, by="ann")
        with listen() as later:
            await agent.resume("s", store=store)
    assert links_of(later, "invoke_agent clerk") == [(before.trace, before.run)]


async def test_a_run_after_one_that_came_to_its_end_links_to_nothing(listener: Listener) -> None:
    agent = make(lambda prompt: "Done.", name="clerk")
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
        await agent.run("Once more", session="s", store=store)
    assert [span.links for span in listener.spans if span.name == "invoke_agent clerk"] == [(), ()]


async def test_a_run_whose_forerunner_was_not_reported_links_to_nothing(listener: Listener) -> None:
    agent = make([call("fire", what="bob"), "Fired."], World(), name="clerk")
    async with fresh_store() as store:
        with nobody_listens():
            await agent.run("Go", session="s", store=store)
        await agent.resume("s", store=store)
    assert links_of(listener, "invoke_agent clerk") == []


async def test_a_delegate_that_is_taken_up_again_links_to_its_own_run(listener: Listener) -> None:
    world = World()
    helper = make([call("fire", what="bob"), "Fired."], world, name="helper")
    boss = make([call("helper", task="Fire bob"), "Done."], world, name="boss", tools=[helper.as_tool()])
    async with fresh_store() as store:
        (waiting,) = (await boss.run("Go", session="s", store=store)).waiting
        (before,) = await runs_of(store, waiting.session)
        await store.approve(waiting.session, waiting.call, by="ann")
        with listen() as later:
            await boss.resume("s", store=store)
    assert links_of(later, "invoke_agent helper") == [(before.trace, before.run)]
    assert later.tree()[:5] == [
        "invoke_agent boss",
        "  step",
        "    execute_tool helper",
        "      invoke_agent helper",
        "        step",
    ]
