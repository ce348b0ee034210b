"""The tools of an MCP server, whichever way it is reached, and in both eras of the protocol."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

import holdfast
from holdfast.adapters.mcp import McpTools, mutate
from holdfast.messages import Media, Text
from tests.crash.fork_server import DEADLINE_S, poll

from .office import PICTURE, SOUND, Office
from .test_names_and_effects import ACTS, told

# The `mcp` package leaves response streams half read, and trio says so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


async def wait_for(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, DEADLINE_S)


async def test_tools_come_with_their_schemas_and_descriptions(office: Office) -> None:
    """As the server gives them; a hint that a tool reads is believed, and nothing else."""
    async with office.open() as tools:
        assert [one.name for one in tools] == [
            "pay",
            "look",
            "is_paid",
            "show",
            "walk",
            "hang",
            "fail",
            "grow",
        ]
        pay, look = tools[0], tools[1]
        assert pay.description == "Pay somebody."
        assert set(pay.schema["properties"]) == {"to", "cents"}
        assert pay.schema["required"] == ["to", "cents"]
        assert "additionalProperties" not in pay.schema
        assert told(pay) == ACTS
        assert told(look) == (["read"], "call")
        schemas = holdfast.Registry(tools).schemas("anthropic")
        assert schemas[0] == {"name": "pay", "description": "Pay somebody.", "input_schema": pay.schema}


async def test_an_effect_is_called_once_with_its_key_and_fence(office: Office) -> None:
    async with office.open(effects={"pay": mutate()}) as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store, store.session("s") as session:
            for _ in range(2):
                result = await registry.dispatch("pay", {"to": "ann", "cents": 5}, session=session)
                assert (result.status, result.value) == ("completed", "paid")
            (row,) = session.state.facts.effects.rows.values()
            assert office.paid == ["ann:5"]
            (meta,) = office.metas
            assert meta["holdfast/key"] == row.key
            assert (meta["holdfast/fence"], meta["holdfast/attempt"]) == (session.fence, 1)


async def test_arguments_are_checked_by_the_schema_of_the_server(office: Office) -> None:
    async with office.open() as tools:
        registry = holdfast.Registry(tools)
        wrong = await registry.dispatch("pay", {"to": "ann", "cents": "five"})
        assert wrong.status == "refused"
        assert "args.cents" in wrong.content
        misspelt = await registry.dispatch("pay", {"to": "ann", "cents": 5, "cent": 6})
        assert "did you mean 'cents'?" in misspelt.content
        assert office.paid == []


async def test_data_is_data(office: Office) -> None:
    """Structured content is the value; text that was wrapped for it is text again."""
    async with office.open() as tools:
        registry = holdfast.Registry(tools)
        assert (await registry.dispatch("pay", {"to": "ann", "cents": 5})).value == "paid"
        assert (await registry.dispatch("look", {"to": "ann"})).value == {"ann:5": 1}
        assert (await registry.dispatch("is_paid", {"to": "ann"})).value is True


async def test_pictures_sound_and_resources_are_shown_and_kept(office: Office) -> None:
    """What is large is in blobs, and comes back from them."""
    async with office.open() as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store:
            async with store.session("s") as session:
                call = holdfast.messages.ToolCall(id="c", name="show", args={})
                await session.add(holdfast.messages.Message(role="assistant", blocks=(call,)))
                (result,) = await registry.dispatch_step(session)
                assert result.status == "completed"
            async with store.session("s") as session:
                message = session.transcript[-1]
                assert isinstance(message, holdfast.messages.Message)
                (shown,) = message.blocks
                assert isinstance(shown, holdfast.messages.ToolResult)
                assert shown.content == (
                    Text("this"),
                    Media(media_type="image/png", data=PICTURE),
                    Media(media_type="audio/wav", data=SOUND),
                    Text("[resource file:///page.txt]\na page"),
                    Media(media_type="application/pdf", data=b"%PDF-", name="file:///a.pdf"),
                    Text("[resource more: https://example.org/more]"),
                )
            (blob,) = [one async for one in store.blobs()]
            assert blob.size == len(PICTURE)
            assert b"".join([part async for part in store.read_blob(blob.reference)]) == PICTURE


async def test_progress_is_on_record(office: Office) -> None:
    async with office.open() as tools, holdfast.open_store("memory:") as store:
        async with store.session("s") as session:
            result = await holdfast.Registry(tools).dispatch("walk", {}, session=session)
            assert result.value == "there"
        entries = [one async for one in store.tail("s", follow=False) if one.kind == "tool.reported"]
        assert [msgspec.json.decode(one.content or b"") for one in entries] == ["1/2 half way", "2/2"]


async def test_a_timeout_cancels_the_call_and_leaves_it_in_doubt(office: Office) -> None:
    """The server is told, and the connection goes on."""
    async with office.open(timeout_s=0.2) as tools:
        registry = holdfast.Registry(tools, grace_s=0)
        async with holdfast.open_store("memory:") as store, store.session("s") as session:
            result = await registry.dispatch("hang", {}, session=session)
            assert result.status == "in_doubt"
            await wait_for(office.cancelled)


async def test_cancelling_the_caller_cancels_the_call(office: Office) -> None:
    async with office.open(effects={"hang": "read"}) as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store, store.session("s") as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: registry.dispatch("hang", {}, session=session))
                await wait_for(office.began)
                tasks.cancel_scope.cancel()
            await wait_for(office.cancelled)
            assert (await registry.dispatch("look", {"to": "x"}, session=session)).status == "completed"


async def test_an_error_of_the_tool_is_believed_unless_it_can_be_asked(office: Office) -> None:
    """The model is told what the server said. A tool with `verify` is asked."""
    asked: list[str] = []

    def has_failed(text: str) -> Any:
        asked.append(text)
        return holdfast.Landed("it happened all the same")

    async with holdfast.open_store("memory:") as store:
        async with office.open() as tools, store.session("a") as session:
            result = await holdfast.Registry(tools).dispatch(
                "fail", {"text": "no such file"}, session=session
            )
            assert result.status == "failed"
            assert "no such file" in result.content
        hooks = {"fail": mutate(verify=has_failed)}
        async with office.open(effects=hooks) as tools, store.session("b") as session:
            result = await holdfast.Registry(tools).dispatch("fail", {"text": "a fire"}, session=session)
            assert (result.status, result.value) == ("completed", "it happened all the same")
            assert asked == ["a fire"]


async def test_tools_that_a_server_adds_are_added(office: Office) -> None:
    """`on_change` is told; the tools that were there stay the same objects."""
    changed = anyio.Event()
    seen: list[McpTools] = []

    def on_change(tools: McpTools) -> None:
        seen.append(tools)
        changed.set()

    async with office.open(on_change=on_change) as tools:
        if office.protocol == "auto":
            await _listening(office)
        before = list(tools)
        await tools.get_tool("grow")(name="tree")
        with anyio.fail_after(DEADLINE_S):
            await changed.wait()
        assert seen == [tools]
        assert [*before, tools.get_tool("tree")] == list(tools)
        assert await tools.get_tool("tree")() == "grown"


async def _listening(office: Office) -> None:
    """Wait until the server has the stream in which it tells of changes."""
    bus: Any = office.mcp._subscriptions  # Nothing public tells.
    await anyio.to_thread.run_sync(poll, lambda: bool(bus._listeners), "the server to be listened to")


async def test_a_tool_may_be_used_by_many_tasks(office: Office) -> None:
    async with office.open() as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store, store.session("s") as session:

            async def pay(cents: int) -> None:
                args = {"to": "ann", "cents": cents}
                assert (await registry.dispatch("pay", args, session=session)).status == "completed"

            async with anyio.create_task_group() as tasks:
                for cents in range(1, 21):
                    tasks.start_soon(pay, cents)
    assert sorted(office.paid) == sorted(f"ann:{cents}" for cents in range(1, 21))


async def test_tools_that_say_nothing_are_warned_of_once(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with office.open() as tools:
            holdfast.Registry(tools)
    (warning,) = [one for one in caplog.messages if "do not say what they do" in one]
    assert ": hang, fail." in warning
    assert "mcp_tools(…, effects={'hang': \"read\"})" in warning


async def test_nothing_is_called_after_the_end(office: Office) -> None:
    async with office.open(effects={"pay": mutate()}) as tools:
        registry = holdfast.Registry(tools)
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        result = await registry.dispatch("pay", {"to": "ann", "cents": 1}, session=session)
        assert result.status == "failed"
        assert "inside of `async with mcp_tools(…)`" in result.content
    assert office.paid == []
