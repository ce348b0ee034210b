"""What a tool gives: media are shown as media, and what is too long is kept whole, shown in part, read on."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import pytest

import holdfast
from holdfast import Registry, open_store
from holdfast.agents import result_tools
from holdfast.blobs.home import BlobContext
from holdfast.content.lazy import BlobMedia, BlobResult, iter_lazy, lazy_value
from holdfast.drivers.contract import Driver
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import StoreFailed
from holdfast.messages import Media, Message, Text, ToolCall, ToolResult
from holdfast.tools.declaration import AnyTool
from tests.stores import ForwardingHome

IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(200_000)
LINES = "\n".join(f"line {number}: {'x' * 40}" for number in range(5_000))


@holdfast.tool(side_effects={"read"})
async def picture() -> bytes:
    """Take a picture."""
    return IMAGE


@holdfast.tool(side_effects={"mutate"})
async def album() -> list[str | Media]:
    """Print an album."""
    return [
        "two of them",
        Media(media_type="image/png", data=IMAGE),
        Media(media_type="image/png", url="x:y"),
    ]


@holdfast.tool(side_effects={"mutate"})
async def log() -> str:
    """Print a long log."""
    return LINES


@holdfast.tool(side_effects={"mutate"})
async def table() -> dict[str, list[str]]:
    """Print a long table."""
    return {"rows": LINES.splitlines()}


TOOLS: list[AnyTool] = [picture, album, log, table, *result_tools()]


async def dispatched(url: str | Driver, *names: str) -> list[ToolResult]:
    """The results of a reply that calls these tools, as another process finds them in the transcript."""
    calls = tuple(ToolCall(id=f"c{place}", name=name, args={}) for place, name in enumerate(names))
    async with open_store(url) as store, store.session("s") as session:
        await session.add(Message(role="assistant", blocks=calls))
        await Registry(TOOLS).dispatch_step(session)
    async with open_store(url) as store:
        message = (await store.load("s")).transcript[-1]
        assert isinstance(message, Message)
        for one in iter_lazy([message]):
            lazy_value(one).read()
        return [block for block in message.blocks if isinstance(block, ToolResult)]


async def test_media_are_shown_as_media(store_url: str | Driver) -> None:
    """Bytes by what they begin with; words beside them; the bytes are stored once."""
    one, many = await dispatched(store_url, "picture", "album")
    assert one.content == (Media(media_type="image/png", data=IMAGE),)
    assert isinstance(many.content, tuple)
    assert many.content[0] == Text("two of them")
    assert isinstance(many.content[1], BlobMedia)
    assert many.content[1].data == IMAGE
    assert many.content[2] == Media(media_type="image/png", url="x:y")
    assert isinstance(one, BlobResult)
    assert len(one.value) > 200_000
    async with open_store(store_url) as store:
        assert [blob.size async for blob in store.blobs()] == [len(IMAGE)]
        entries = [entry async for entry in store.tail("s", follow=False)]
        assert max(len(bytes(entry.content or b"")) for entry in entries) < 2_000


async def test_a_result_that_is_too_long_is_kept_whole_and_shown_in_part(store_url: str | Driver) -> None:
    """Its two ends are in the transcript; the value is all of it."""
    text, rows = await dispatched(store_url, "log", "table")
    assert isinstance(text.content, str)
    assert text.content.startswith(LINES[:1000])
    assert text.content.endswith(LINES[-1000:])
    assert len(text.content) < 13_000
    assert "characters are left out here" in text.content
    assert (text.value, text.metadata["chars"]) == (LINES, len(LINES))
    assert rows.value == {"rows": LINES.splitlines()}


@pytest.mark.parametrize("most", [len(LINES), len(LINES) - 1, None])
async def test_how_long_is_too_long_can_be_said(most: int | None) -> None:
    """Beyond so many characters; never, with None."""
    async with open_store("memory:", result_chars=most) as store, store.session("s") as session:
        result = await Registry(TOOLS).dispatch("log", {}, call_id="c", session=session)
        assert (result.content == LINES) == (most != len(LINES) - 1)
        assert result.value == LINES


async def test_a_model_reads_on(store_url: str | Driver) -> None:
    """In pages, or the lines that hold a text; only what its own session refers to."""
    registry = Registry(TOOLS)
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            result = await registry.dispatch("log", {}, call_id="c", session=session)
            assert result.value == LINES
            assert isinstance(result.content, str)
            blob = result.content.split(" Blob ")[1].split()[0]

            async def read(**args: object) -> str:
                call = f"r{session.state.seq}"
                found = await registry.dispatch("read_result", args, call_id=call, session=session)
                return found.content

            page = await read(blob=blob, offset=100_000, limit=500)
            assert page.startswith(LINES[100_000:100_300])
            assert "go on with offset=" in page
            found = await read(blob=blob, search="line 4321:")
            place = LINES.index("line 4321:")
            assert found.startswith(f"{place}: line 4321: xxx")
            assert "1 lines" in found
            assert "no line" in await read(blob=blob, search="line 9999")
            assert "4800 more are not shown" in await read(blob=blob, search="line")
            assert "nothing at offset" in await read(blob=blob, offset=10**9)
            assert "not the name of a blob" in await read(blob="../../etc")
            assert "no blob" in await read(blob="0123456789abcdef")
        async with store.session("other") as session:
            denied = await registry.dispatch("read_result", {"blob": blob}, call_id="c", session=session)
            assert denied.status == "failed"
            assert "this session has no blob" in denied.content


async def test_a_replay_repeats_what_was_shown_without_another_copy(store_url: str | Driver) -> None:
    """The same operation once more: the same blob, the same value."""
    registry = Registry(TOOLS)
    async with open_store(store_url) as store, store.session("s") as session:
        for name in ("log", "album"):
            first = await registry.dispatch(name, {}, call_id=f"{name}-1", session=session)
            again = await registry.dispatch(name, {}, call_id=f"{name}-2", session=session)
            assert again.replay_of == f"{name}-1"
            assert (again.value, again.parts) == (first.value, first.parts)
            assert again.content == f"[idempotent replay of {name}-1]: {first.content}"
        assert len([blob async for blob in store.blobs()]) == 2


async def test_a_global_result_reaches_another_session_whole(store_url: str | Driver) -> None:
    """Each session refers to what it was given by itself: the first may be deleted."""

    @holdfast.tool(side_effects={"mutate"}, scope="global")
    async def print_once() -> list[str | Media]:
        """Print something once ever."""
        return [LINES, Media(media_type="image/png", data=IMAGE)]

    registry = Registry([print_once])
    async with open_store(store_url) as store:
        async with store.session("a") as session:
            first = await registry.dispatch("print_once", {}, call_id="c", session=session)
        await store.delete("a")
        await store.collect_blobs(grace_s=0, dry_run=False, alone=True)
        async with store.session("b") as session:
            again = await registry.dispatch("print_once", {}, call_id="c", session=session)
            assert (again.value, again.parts) == (first.value, first.parts)


class Failing(ForwardingHome):
    """A home that is down."""

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        raise StoreFailed("down")


async def test_what_was_done_is_on_record_although_its_blobs_cannot_be_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The outcome of an effect counts for more than short lines: it stays in the journal."""
    driver = MemoryDriver()
    async with open_store(driver, blobs=Failing(driver)) as store, store.session("s") as session:
        for name in ("log", "album"):
            result = await Registry(TOOLS).dispatch(name, {}, call_id=name, session=session)
            assert result.status == "completed"
        assert session.in_doubt == []
        again = await Registry(TOOLS).dispatch("log", {}, call_id="again", session=session)
        assert (again.value, again.replay_of) == (LINES, "log")
        assert "Blob" not in again.content
    assert "stays in the journal" in caplog.text


async def test_a_cancelled_caller_leaves_the_outcome_on_record() -> None:
    """Also while its blobs are being written."""
    driver = MemoryDriver()
    begun, go_on = anyio.Event(), anyio.Event()

    class Slow(ForwardingHome):
        def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
            anyio.from_thread.run_sync(begun.set)
            anyio.from_thread.run(go_on.wait)
            super().put(digest, parts, context, owner=owner)

    async with open_store(driver, blobs=Slow(driver)) as store, store.session("s") as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: Registry(TOOLS).dispatch("log", {}, call_id="c", session=session))
            await begun.wait()
            tasks.cancel_scope.cancel()
            go_on.set()
        assert session.in_doubt == []
        again = await Registry(TOOLS).dispatch("log", {}, call_id="again", session=session)
        assert again.replay_of == "c"
