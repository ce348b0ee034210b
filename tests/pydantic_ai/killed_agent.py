"""An agent of pydantic-ai that acts upon a world of files, and may be killed on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.adapters.pydantic_ai import Durable, annotate, current_effect, effects
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.tools.ledger import Ledger
from tests.crash.fork_server import Line

PROMPT = "Settle order 7"
SESSION = "order-7"


class World:
    """What was done to it, and what the model was asked, one line each."""

    def __init__(self, place: str) -> None:
        self.place = Path(place)
        self.charged = anyio.Event()
        """Set once the charge is on record."""

    def note(self, book: str, what: str) -> None:
        """Something happened; it survives the process."""
        with open(self.place / book, "a") as file:
            file.write(f"{what}\n")

    def read(self, book: str) -> list[str]:
        """What happened."""
        path = self.place / book
        return path.read_text().splitlines() if path.exists() else []

    @property
    def url(self) -> str:
        """Of the store beside it."""
        return f"sqlite:{self.place}/store.db"


def die() -> None:
    """Now, and without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


SCRIPT: list[list[ToolCallPart]] = [
    [ToolCallPart("look", {"order": "7"}, "c0")],
    # Ids come again, as those of many servers do.
    [
        ToolCallPart("charge", {"order": "7", "cents": 500}, "c0"),
        ToolCallPart("store", {"key": "7", "value": "paid"}, "c1"),
        ToolCallPart("slow", {"order": "7"}, "c2"),
    ],
    [ToolCallPart("mail", {"to": "a@example.org"}, "c0")],
]


def make_agent(
    world: World, *, at: str = "", undeclared: bool = False, by_name: dict[str, Any] | None = None
) -> Agent[None, str]:
    """The agent; `at` is where it dies. Given `by_name`, the declarations go there, under globs."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        world.note("asked", str(step))
        if step < len(SCRIPT):
            return ModelResponse(parts=list(SCRIPT[step]))
        results = [
            f"{part.tool_name}={part.content}"
            for message in messages
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return ModelResponse(parts=[TextPart(" ".join(results))])

    agent: Agent[None, str] = Agent(FunctionModel(model), name="clerk")

    def maybe(point: str) -> None:
        if at == point:
            die()

    def was_done(book: str, what: str) -> Callable[..., Any]:
        def verify(**args: Any) -> Any:
            done = what.format(**args) in world.read(book)
            return holdfast.Landed(f"{book} {what.format(**args)}") if done else holdfast.NotLanded()

        return verify

    def charged(order: str, cents: int) -> Any:
        return was_done("charge", "{order}:{cents}")(order=order, cents=cents)

    def mailed(to: str) -> Any:
        return was_done("mail", "{to}")(to=to)

    def slowed(order: str) -> Any:
        return was_done("slow", "{order}")(order=order)

    def declare(name: str, given: dict[str, Any]) -> dict[str, Any] | None:
        if by_name is not None:
            by_name[f"{name[:-1]}*"] = given
        return None if by_name is not None or (undeclared and name == "charge") else given

    @agent.tool_plain(metadata=declare("look", effects(side_effects={"read"})))
    def look(order: str) -> dict[str, int]:
        """Look an order up."""
        world.note("look", order)
        return {"cents": 500}

    @agent.tool_plain(metadata=declare("charge", effects(side_effects={"mutate"}, verify=charged)))
    async def charge(order: str, cents: int) -> str:
        """Charge the card."""
        maybe("before the effect")
        world.note("charge", f"{order}:{cents}")
        world.note("keys", current_effect().key)
        maybe("after the effect")
        await annotate(vendor="v1")
        return f"charge {order}:{cents}"

    @agent.tool_plain(metadata=declare("store", effects(side_effects={"write"})))
    def store(key: str, value: str) -> str:
        """Set something."""
        world.note("store", f"{key}={value}")
        return f"store {key}={value}"

    @agent.tool_plain(metadata=declare("slow", effects(side_effects={"mutate"}, verify=slowed)))
    async def slow(order: str) -> str:
        """Takes its time: its neighbours have ended when it does."""
        if at:
            # In whatever order the calls begin: the process dies in `charge`, or here once that is recorded.
            with anyio.fail_after(60):
                await world.charged.wait()
        maybe("in a batch, before the effect")
        world.note("slow", order)
        maybe("in a batch, after the effect")
        return f"slow {order}"

    @agent.tool_plain(metadata=declare("mail", effects(side_effects={"mutate"}, verify=mailed)))
    async def mail(to: str) -> str:
        """Send mail."""
        world.note("mail", to)
        return f"mail {to}"

    return agent


def _interfere(world: World, at: str) -> None:
    """Die between a tool and its record, or around the record of a reply."""
    complete = Ledger.complete

    async def completed(self: Ledger, row: Any, given: Any, latency_ms: float) -> Any:
        if at == "before the record" and row.tool == "charge":
            die()
        done = await complete(self, row, given, latency_ms)
        if at.startswith("in a batch") and row.tool == "charge":
            # Noted once it is durable: what comes after it in the queue is.
            _note_when_durable(self, world)
        return done

    Ledger.complete = completed  # type: ignore[method-assign]
    reply = holdfast.records.Request.reply

    async def replied(self: holdfast.records.Request, *args: Any, **options: Any) -> None:
        second = len(world.read("asked")) == 2
        if at == "before the reply is recorded" and second:
            die()
        await reply(self, *args, **options)
        if at == "after the reply is recorded" and second:
            die()

    holdfast.records.Request.reply = replied  # type: ignore[method-assign]


def _note_when_durable(ledger: Ledger, world: World) -> None:
    import asyncio

    async def later() -> None:
        await ledger._session.flush()  # The adapter opened the session; the application has no other.
        world.charged.set()

    task = asyncio.get_running_loop().create_task(later())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_tasks: set[Any] = set()


def count_commits(number: int, when: str) -> list[int]:
    """Die before or after the n-th commit to the store; how many there were."""
    commit, counted = SqliteDriver.commit, [0]

    def committed(self: SqliteDriver, *args: Any, **options: Any) -> Any:
        counted[0] += 1
        mine = counted[0]
        if mine == number and when == "before":
            die()
        outcome = commit(self, *args, **options)
        if mine == number and when == "after":
            die()
        return outcome

    SqliteDriver.commit = committed  # type: ignore[method-assign]
    return counted


def work(
    line: Line,
    place: str,
    *,
    at: str = "",
    number: int = 0,
    when: str = "",
    once: bool = False,
    in_doubt: Any = "wait",
    undeclared: bool = False,
    globs: bool = False,
) -> dict[str, Any]:
    """Run the agent, or die on the way."""
    counted = count_commits(number, when)

    async def main() -> dict[str, Any]:
        world = World(place)
        _interfere(world, at)
        by_name: dict[str, Any] | None = {} if globs else None
        agent = make_agent(world, at=at, undeclared=undeclared, by_name=by_name)
        durable = Durable(world.url, session=SESSION, effects=by_name or {}, once=once, in_doubt=in_doubt)
        result = await agent.run(PROMPT, capabilities=[durable])
        usage = result.usage
        return {
            "output": result.output,
            "messages": len(result.all_messages()),
            "usage": [usage.requests, usage.tool_calls, usage.input_tokens, usage.output_tokens],
            "commits": counted[0],
        }

    return anyio.run(main)
