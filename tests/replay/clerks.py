"""A clerk whose session is recorded, and replayed with a clerk that differs in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import holdfast
from holdfast.agents import ScriptedModel
from holdfast.messages import ToolCall
from holdfast.replay import SessionReplay, replay_session

DONE: list[str] = []
"""What the tools have done."""


def call(name: str, id: str = "c", **args: Any) -> ToolCall:
    """A call of a script."""
    return ToolCall(id=id, name=name, args=args)


@holdfast.tool(side_effects="read")
async def look_up(order: str) -> str:
    """Find an order."""
    DONE.append(f"look up {order}")
    return f"order {order}: 9900 cents"


@holdfast.tool(side_effects="mutate", scope="session")
async def pay(order: str, cents: int) -> dict[str, Any]:
    """Pay."""
    DONE.append(f"pay {order}")
    return {"order": order, "cents": cents}


@holdfast.tool(side_effects="mutate")
async def fail(why: str) -> str:
    """Fail."""
    DONE.append(f"fail {why}")
    raise holdfast.NotDone(why)


TOOLS = (look_up, pay, fail)
SCRIPT = (
    ("I look.", call("look_up", order="42")),
    (call("pay", "c1", order="42", cents=500), call("fail", "c2", why="closed")),
    call("pay", order="42", cents=500),
    "Paid once.",
    call("look_up", order="43"),
    "There it is.",
)
MESSAGES = ("Pay order 42", "And 43?")


def make_clerk(script: Any = SCRIPT, **changes: Any) -> holdfast.Agent[Any, Any]:
    """The clerk, with changes."""
    options = {"tools": TOOLS, "name": "clerk", **changes}
    return holdfast.Agent(ScriptedModel(script), **options)


@asynccontextmanager
async def recorded(
    clerk: holdfast.Agent[Any, Any] | None = None, messages: Any = MESSAGES
) -> AsyncIterator[holdfast.Store]:
    """A store with the session `done` of the clerk."""
    async with holdfast.open_store("memory:") as store:
        for message in messages:
            await (clerk or make_clerk()).run(message, session="done", store=store)
        DONE.clear()
        yield store


def kinds(replay: SessionReplay) -> list[tuple[Any, ...]]:
    """The differences in short."""
    return [(one.kind, one.gate, one.tool, one.reply) for one in replay.differences]


async def replay_with(store: holdfast.Store, **changes: Any) -> SessionReplay:
    """The replay of `done` with a clerk that has these changes, whose model must not be asked."""

    def refuse(prompt: Any) -> Any:
        raise AssertionError("the model was asked")

    found = await replay_session(store, "done", make_clerk(refuse, **changes))
    assert DONE == []
    return found
