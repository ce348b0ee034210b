"""Tools without an event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import blocking
from holdfast.drivers.contract import Driver


def test_a_tool_runs_once_without_an_event_loop(store_url: str | Driver) -> None:
    """Sync and async bodies, through the gates and the ledger, with replays and doubt."""
    world: list[str] = []

    @holdfast.tool(side_effects={"mutate"})
    async def pay(order: str) -> str:
        world.append(order)
        if order == "odd":
            raise RuntimeError("the line went dead")
        return f"paid {order}"

    @holdfast.tool(side_effects=())
    def double(number: int) -> int:
        return 2 * number

    registry = blocking.Registry([pay, double])
    assert registry.dispatch("double", {"number": 4}).value == 8
    with blocking.open_store(store_url) as store:
        with store.session("a") as session:
            assert registry.dispatch("pay", {"order": "1"}, call_id="c1", session=session).content == "paid 1"
            again = registry.dispatch("pay", {"order": "1"}, call_id="c2", session=session)
            assert (again.replay_of, again.value) == ("c1", "paid 1")
            registry.dispatch("pay", {"order": "odd"}, call_id="c3", session=session)
            assert [effect.call.id for effect in registry.settle(session)] == ["c3"]
            calls = (
                holdfast.messages.ToolCall(id="x", name="double", args={"number": 1}),
                holdfast.messages.ToolCall(id="y", name="pay", args={"order": "2"}),
            )
            session.add(holdfast.messages.Message(role="assistant", blocks=calls))
            assert [result.value for result in registry.dispatch_step(session)] == [2, "paid 2"]
        assert [doubt.effect.call.id for doubt in registry.settle_all(store)] == ["c3"]
        assert store.resolve("a", "c3", "not_landed", by="ann") == "settled"
        assert registry.settle_all(store) == []
    assert world == ["1", "odd", "2"]
    assert set(registry.tools) == {"pay", "double"}
    assert len(registry.schemas("openai")) == 2


def test_a_rewind_undoes_without_an_event_loop(store_url: str | Driver) -> None:
    """With the registry that blocks, and with the one that does not."""
    rooms: set[str] = set()

    @holdfast.tool(side_effects={"mutate"}, undo=lambda room: rooms.discard(room))
    async def book(room: str) -> None:
        rooms.add(room)

    registry = blocking.Registry([book])
    with blocking.open_store(store_url) as store, store.session("a") as session:
        session.checkpoint()
        for tools in (registry, registry.with_loop):
            registry.dispatch("book", {"room": "12"}, session=session)
            rewound = session.rewind(version=1, undo=True, registry=tools)
            assert [one.status for one in rewound.undone] == ["undone"]
            assert rooms == set()
            assert session.settle(tools) == []


def test_a_duplicate_tool_is_refused(tmp_path: Path) -> None:
    """As everywhere."""

    @holdfast.tool(side_effects=())
    def same() -> None: ...

    registry = blocking.Registry([same])
    with pytest.raises(holdfast.errors.BadInput, match="already"):
        registry.add(same)
