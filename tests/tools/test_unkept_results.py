"""A result without a JSON form is an error result that says so; the call is done all the same."""

from __future__ import annotations

import datetime
import decimal
import enum
import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from msgspec import Struct

import holdfast
from holdfast import Landed, Registry, Store, ToolContext, tool
from holdfast.tools import Result
from tests.internals import stop_heartbeat
from tests.tools.example_tools import Url, World, call, opened, reply, results

ADVICE = "The tool has to return text, JSON data, bytes, media, a dataclass or a pydantic model."

NOT_UTF8 = (
    "UnicodeEncodeError: 'utf-8' codec can't encode character '\\udfff' in position 0: surrogates not allowed"
)


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


class Odd:
    """Has no JSON form, and a repr with an address in it."""


class Ticket(Struct):
    """A msgspec struct."""

    extra: Any = None


@dataclass
class Point:
    """A dataclass."""

    x: Any


def endless() -> list[Any]:
    """Holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


def holds_itself() -> Ticket:
    """So does this one."""
    found = Ticket()
    found.extra = found
    return found


def lines() -> Iterator[str]:
    """A generator."""
    yield "one"


UNKEPT: list[tuple[Callable[[], Any], str, str]] = [
    (Odd, "Odd", "Odd has no JSON form"),
    (lambda: {"a": [1, {"b": Odd()}]}, "dict", "Odd has no JSON form"),
    (lambda: Ticket(extra=[Odd()]), "Ticket", "Odd has no JSON form"),
    (lambda: Point(Ticket(Odd())), "Point", "Odd has no JSON form"),
    (lambda: io.StringIO("one\ntwo\n"), "StringIO", "StringIO has no JSON form"),
    (lambda: {"rows": lines()}, "dict", "generator has no JSON form"),
    (lambda: [iter([1])], "list", "list_iterator has no JSON form"),
    (lambda: Odd, "type", "type has no JSON form"),
    (lambda: ValueError("returned, not raised"), "ValueError", "ValueError has no JSON form"),
    (endless, "list", "it holds itself, or is nested too deeply"),
    (holds_itself, "Ticket", "it holds itself, or is nested too deeply"),
    (
        lambda: {"\udfff": 1},
        "dict",
        NOT_UTF8,
    ),
]


def acting(world: World, make: Callable[[], Any], **options: Any) -> Registry:
    """A tool that acts, and returns this."""

    @tool(**{"side_effects": {"mutate"}, **options})
    async def act(what: str = "it") -> Any:
        world.do(what)
        return make()

    return Registry([act], max_repeats=100)


@pytest.mark.parametrize(("make", "kind", "why"), UNKEPT)
async def test_the_result_says_what_cannot_be_kept_and_the_call_is_done(
    make: Callable[[], Any], kind: str, why: str, store_url: Url, world: World
) -> None:
    """Whoever asks again, also in another process, gets the same error, and nothing is done twice."""
    registry = acting(world, make)
    done = "act: it ran, and its side effects are done."
    text = f"{done} Its result, of type {kind}, cannot be kept: {why}. {ADVICE}"
    async with opened(store_url) as (_, session):
        first = await registry.dispatch("act", {}, call_id="c1", session=session)
        assert (first.status, first.is_error, first.unkept) == ("completed", True, True)
        assert (first.content, first.value) == (text, None)
        assert session.in_doubt == []
    async with opened(store_url) as (_, session):
        assert session.in_doubt == []
        assert await registry.dispatch("act", {}, call_id="c1", session=session) == first
        other = await registry.dispatch("act", {}, call_id="c2", session=session)
        assert other.content == f"[idempotent replay of c1]: {text}"
        assert (other.status, other.is_error, other.replay_of) == ("completed", True, "c1")
        assert [row.status for row in session.state.facts.effects.rows.values()] == ["completed"]
    assert world.done == ["it"]


@pytest.mark.parametrize("options", [{}, {"timeout_s": 60}, {"side_effects": "read"}])
async def test_of_a_tool_without_side_effects_none_are_told(
    options: dict[str, Any], store_url: Url, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It ran, and that is all; the log says the same, for the tool's author."""
    registry = acting(world, Odd, **{"side_effects": (), **options})
    async with opened(store_url) as (_, session):
        await reply(session, call("act"))
        (found,) = await registry.dispatch_step(session)
        (block,) = results(session)
        assert session.continuable
    text = f"act: it ran. Its result, of type Odd, cannot be kept: Odd has no JSON form. {ADVICE}"
    assert (found.content, found.is_error) == (text, True)
    assert (block.content, block.is_error, block.value) == (text, True, None)
    assert text in caplog.messages


async def test_the_transcript_has_it_as_an_error_also_later(store_url: Url, world: World) -> None:
    """A provider is told of it as of any failed tool."""
    registry = acting(world, Odd)
    async with opened(store_url) as (_, session):
        await reply(session, call("act"))
        await registry.dispatch_step(session)
    async with opened(store_url) as (_, session):
        (block,) = results(session)
        assert block.is_error
        assert "its side effects are done" in str(block.content)
        (again,) = await registry.dispatch_step(session)
        assert again.is_error
    assert world.done == ["it"]


async def test_without_a_session_it_is_the_same_error() -> None:
    """There is no record, but no repr either."""

    @tool(side_effects=())
    async def look() -> Any:
        return Odd()

    found = await Registry([look]).dispatch("look", {}, call_id="c1")
    text = f"look: it ran. Its result, of type Odd, cannot be kept: Odd has no JSON form. {ADVICE}"
    assert found == Result(call_id="c1", name="look", content=text, unkept=True)
    assert found.is_error


async def test_what_verify_found_may_be_unkept_as_well(store_url: Url) -> None:
    """`Landed` with anything in it means that it happened."""

    @tool(side_effects={"mutate"}, verify=lambda: Landed(Odd()))
    async def act() -> None:
        raise OSError("reset")

    async with opened(store_url) as (_, session):
        found = await Registry([act]).dispatch("act", {}, session=session)
        assert (found.status, found.unkept, session.in_doubt) == ("completed", True, [])


async def test_other_sessions_get_the_error_of_a_global_operation(store_url: Url, world: World) -> None:
    """And no second effect."""
    registry = acting(world, Odd, scope="global")
    async with opened(store_url, "one") as (_, session):
        first = await registry.dispatch("act", {}, call_id="c1", session=session)
    async with opened(store_url, "two") as (_, session):
        second = await registry.dispatch("act", {}, call_id="c2", session=session)
    assert second.content == f"[idempotent replay of c1 in session one]: {first.content}"
    assert (second.is_error, second.unkept) == (True, True)
    assert world.done == ["it"]


async def test_a_holder_that_is_out_posts_the_error(store_url: Url, world: World) -> None:
    """The process that has the session now records that it happened, and what it could not keep."""
    entered, release = anyio.Event(), anyio.Event()

    @tool(side_effects={"mutate"})
    async def act(ctx: ToolContext[Any]) -> Odd:
        entered.set()
        await release.wait()
        world.do("it", ctx.key)
        return Odd()

    registry = Registry([act])
    async with holdfast.open_store(store_url, lease_s=0.05) as old, old.session("s") as session:
        async with anyio.create_task_group() as tasks:

            async def dispatch() -> None:
                with pytest.raises(holdfast.errors.Fenced):
                    await registry.dispatch("act", {}, call_id="c1", session=session)

            tasks.start_soon(dispatch)
            await entered.wait()
            stop_heartbeat(old)
            async with opened(store_url, wait_s=60) as (_, taken):
                release.set()
                with anyio.fail_after(60):
                    while taken.in_doubt:
                        await taken.set("heard", 1)
                        await taken.flush()
                        await anyio.sleep(0.001)
                found = await registry.dispatch("act", {}, call_id="c1", session=taken)
    assert (found.status, found.unkept) == ("completed", True)
    assert found.content.startswith("act: it ran, and its side effects are done. Its result, of type Odd,")
    assert world.done == ["it"]


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


async def test_what_has_a_json_form_is_kept_at_any_depth(store_url: Url) -> None:
    """Dates, numbers, ids, sets and bytes, in structs and dataclasses."""
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    @tool(side_effects={"mutate"})
    async def act() -> Any:
        return Point(
            Ticket(
                extra=[at, at.date(), decimal.Decimal("1.50"), uuid.UUID(int=1), {3}, b"hi", Colour.RED, (1,)]
            )
        )

    async with opened(store_url) as (_, session):
        found = await Registry([act]).dispatch("act", {}, session=session)
    kept = ["2026-01-01T00:00:00Z", "2026-01-01", "1.50", str(uuid.UUID(int=1)), [3], "aGk=", "red", [1]]
    assert (found.is_error, found.value) == (False, {"x": {"extra": kept}})


async def test_an_open_file_is_not_read(store_url: Url) -> None:
    """Nor is a generator run to its end behind the tool's back."""
    file = io.StringIO("one\ntwo\n")

    @tool(side_effects={"read"})
    async def look(ctx: ToolContext[Store | None]) -> Any:
        return {"file": file}

    async with opened(store_url) as (_, session):
        assert (await Registry([look]).dispatch("look", {}, session=session)).unkept
    assert file.readline() == "one\n"
