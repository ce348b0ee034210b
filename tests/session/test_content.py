"""What a session holds, found again by another process."""

import dataclasses
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pydantic
import pytest

from holdfast import Budget, Session, open_store
from holdfast.errors import BadInput, NotFound
from holdfast.messages import (
    ForeignMessage,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UnknownBlock,
)
from holdfast.records import Codec, Opaque, Plan, PlanStep, Usage
from tests.session.example_sessions import StoreUrl, kinds, texts

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
MESSAGES = [
    Message(role="system", blocks=(Text("Be brief."),), id="sys", at=AT),
    Message(role="user", blocks=(Text("Look:"), Media(media_type="image/png", data=b"\0\xff", name="x.png"))),
    Message(
        role="assistant",
        agent="planner",
        blocks=(
            Reasoning("hm", metadata={"signature": "s"}),
            Text("Let me see."),
            ToolCall(id="call_0", name="look", args={"deep": [1, {"ü": None}]}),
            UnknownBlock({"kind": "hologram", "beams": 3}),
        ),
        metadata={"finish": "tool_calls"},
    ),
    Message(role="tool", blocks=(ToolResult(call_id="call_0", content="a cat", value={"cat": True}),)),
]


async def test_every_message_is_restored_with_every_block(store_url: StoreUrl) -> None:
    """Ids and times included: the message's own, or the journal's where it has none."""
    async with open_store(store_url) as store, store.session("s") as session:
        for message in MESSAGES:
            await session.add(message)
        live = list(session.transcript)
    async with open_store(store_url) as store:
        found = list((await store.load("s")).transcript)
        journal = {entry.seq: entry.at async for entry in store.tail("s", follow=False)}
    assert found == live
    assert found[0] == MESSAGES[0]
    for given, restored in zip(MESSAGES[1:], found[1:], strict=True):
        assert isinstance(restored, Message)
        assert restored.id is not None
        assert restored.at == journal[int(restored.id[1:])]
        assert msgspec.structs.replace(restored, id=None, at=None) == given
    assert len({message.id for message in found}) == len(found)


async def test_a_foreign_message_is_kept_verbatim(store_url: StoreUrl) -> None:
    """Also fields that its reader does not know, and keys in their order."""
    data = {
        "role": "assistant",
        "tool_calls": [{"id": "a", "function": {"name": "f"}}],
        "x": {"b": 1, "a": 2},
    }
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add(data, format="openai")
            assert [str(problem) for problem in session.problems] == [
                "call 'a' of f has no result (message 0)"
            ]
        (found,) = (await store.load("s")).transcript
    assert isinstance(found, ForeignMessage)
    assert (found.format, found.data, found.role) == ("openai", data, "assistant")
    assert list(found.data["x"]) == ["b", "a"]


@dataclasses.dataclass
class Cart:
    items: list[str]
    due: Decimal


class Address(pydantic.BaseModel):
    street: str


class Point(msgspec.Struct):
    x: int


class Money:
    def __init__(self, amount: str) -> None:
        self.amount = amount


async def test_state_is_restored_in_the_types_that_are_asked_for(store_url: StoreUrl) -> None:
    """Whatever was set, by key; what was unset is gone."""
    async with open_store(store_url) as store, store.session("s") as session:
        await session.set("cart", Cart(["apple"], Decimal("1.10")))
        await session.set("address", Address(street="High Street"))
        await session.set("point", Point(3))
        await session.set("any key ☃", {"set": {1, 2}, "at": AT})
        await session.set("gone", 1)
        await session.set("point", Point(4))
        await session.unset("gone")
        await session.unset("never was")
    async with open_store(store_url) as store, store.session("s") as session:
        assert session.get("cart", Cart) == Cart(["apple"], Decimal("1.10"))
        assert session.get("address", Address) == Address(street="High Street")
        assert session.get("point", Point) == Point(4)
        assert session.get("any key ☃") == {"set": {1, 2}, "at": AT}
        assert sorted(session.keys) == ["address", "any key ☃", "cart", "point"]
        with pytest.raises(NotFound, match=r"no state under 'gone'; it has: address, any key ☃, cart, point"):
            session.get("gone")


async def test_a_value_that_cannot_be_encoded_is_kept_as_a_mark(store_url: StoreUrl) -> None:
    """Saving does not fail, everything beside it is kept, and a codec would have helped."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.set("wallet", {"owner": "me", "money": Money("3.50")})
        async with store.session("s") as session:
            found = session.get("wallet")
            assert found["owner"] == "me"
            assert isinstance(found["money"], Opaque)
            assert found["money"].type == f"{__name__}.Money"
    codec = Codec(type=Money, encode=lambda money: money.amount, decode=Money, name="money")
    async with open_store(store_url, codecs=[codec]) as store:
        async with store.session("s") as session:
            await session.set("wallet", Money("4.50"))
        async with store.session("s") as session:
            assert session.get("wallet", Money).amount == "4.50"


async def test_plan_budget_summary_labels_and_scratchpad_are_restored(
    store_url: StoreUrl, tmp_path: Path
) -> None:
    """By another store object, as they were last."""
    plan = Plan(goal="ship", steps=(PlanStep(id="a", what="build", postcondition="it is there"),))
    async with (
        open_store(store_url) as store,
        store.session("s", labels={"tenant": "a", "x": "1"}) as session,
    ):
        await session.set_plan(plan)
        await session.set_plan(plan.update("a", status="done", evidence="ls"))
        await session.set_budget(Budget(usd=2, steps=7))
        await session.set_summary("so far")
        await session.label(tenant="b", x=None, new="yes")
        root = await session.set_scratchpad(tmp_path / "deep" / "pad")
        assert root.is_dir()
    async with open_store(store_url) as store, store.session("s") as session:
        assert session.plan == plan.update("a", status="done", evidence="ls")
        assert session.plan is not None
        assert session.plan.step("a").evidence == "ls"
        assert session.budget.caps == Budget(usd=2, steps=7)
        assert session.summary == "so far"
        assert session.labels == {"tenant": "b", "new": "yes"}
        assert session.scratchpad == root == tmp_path / "deep" / "pad"
        await session.set_plan(None)
        assert session.plan is None


async def test_a_scratchpad_that_cannot_be_made_is_refused(store_url: StoreUrl, tmp_path: Path) -> None:
    """And is not recorded."""
    (tmp_path / "file").write_text("")
    async with open_store(store_url) as store, store.session("s") as session:
        with pytest.raises(BadInput, match="scratchpad"):
            await session.set_scratchpad(tmp_path / "file" / "pad")
        assert session.scratchpad is None


async def reply_for(session: Session, cost: object) -> None:
    async with session.run() as run, run.request() as request:
        await request.reply("x", cost_usd=cost)  # type: ignore[arg-type]


SLIPS: list[Callable[[Session], Awaitable[object]]] = [
    lambda session: session.set_plan(Plan(steps=(PlanStep(id=1, what="x"),))),  # type: ignore[arg-type]
    lambda session: session.set_budget(Budget(tokens=1.5)),  # type: ignore[arg-type]
    lambda session: session.set_summary(None),  # type: ignore[arg-type]
    lambda session: session.set_summary("\ud800"),
    lambda session: session.label(tenant=""),
    lambda session: session.label(tenant="x\n"),
    lambda session: session.set("", 1),
    lambda session: session.set("x" * 201, 1),
    lambda session: session.add(Message(role="moderator", blocks=(Text("x"),))),  # type: ignore[arg-type]
    lambda session: session.add(Message(role="user", blocks=(ToolCall(id=1, name="x"),))),  # type: ignore[arg-type]
    lambda session: session.add("\ud800"),
    lambda session: session.add(
        Message(role="user", blocks=(ToolCall(id="a", name="x", args=float("nan")),))
    ),
    lambda session: session.add({"role": "user"}),  # type: ignore[call-overload]
    lambda session: session.add({"role": "user", "content": "x"}, format="opnai"),
    lambda session: session.checkpoint(3),  # type: ignore[arg-type]
    lambda session: session.close(reason=3),  # type: ignore[arg-type]
    lambda session: reply_for(session, Decimal("0.02")),
    lambda session: session.run(model=3).__aenter__(),  # type: ignore[arg-type]
]


async def test_a_slip_of_the_caller_harms_nothing(store_url: StoreUrl) -> None:
    """Wrong types and values are refused at once; the session goes on, and can be opened again."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            for number, slip in enumerate(SLIPS):
                await session.add(f"before {number}")
                with pytest.raises(BadInput):
                    await slip(session)
                await session.flush()
            live = list(session.transcript)
        async with store.session("s") as session:
            assert list(session.transcript) == live
            assert texts(session.transcript) == [f"before {number}" for number in range(len(SLIPS))]


async def test_what_is_recorded_can_be_read_at_once_and_is_durable_in_order(store_url: StoreUrl) -> None:
    """The live state does not wait for the disk, and the journal keeps the order."""
    async with open_store(store_url) as store, store.session("s") as session:
        await session.add("one")
        await session.set("k", 1)
        await session.set_summary("x")
        assert (texts(session.transcript), session.get("k"), session.summary) == (["one"], 1, "x")
        await session.flush()
        assert (await kinds(store, "s"))[2:] == ["message.added", "state.set", "summary.changed"]


async def test_usage_is_counted_for_the_whole_session(store_url: StoreUrl) -> None:
    """Over runs and processes."""
    for tokens in (1, 10):
        usage = Usage(input_tokens=tokens, output_tokens=2 * tokens, cache_read_tokens=1)
        async with (
            open_store(store_url) as store,
            store.session("s") as session,
            session.run() as run,
            run.request() as request,
        ):
            await request.reply("ok", usage=usage, cost_usd=tokens / 4)
    async with open_store(store_url) as store:
        head = (await store.load("s")).facts.head
    assert head.usage == Usage(input_tokens=11, output_tokens=22, cache_read_tokens=2)
    assert head.usd == 11 / 4
