"""What the tests of tools share: a world that is acted upon, processes that die, clocks that do not tick."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Session, Store
from holdfast.core.entries import Body
from holdfast.drivers.contract import Driver
from holdfast.engine.engine import Engine
from holdfast.errors import Closed
from holdfast.messages import Json, Message, Text, ToolCall, ToolResult
from holdfast.system.clock import Instant, boot_s
from tests.internals import engine_of, stop_heartbeat, writer_of

Url = str | Driver


class World:
    """The outside world: what was done to it, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        """What was done, and under which key."""

    def do(self, what: str, key: str = "") -> str:
        """An effect lands."""
        self.log.append((what, key))
        return f"did {what}"

    @property
    def done(self) -> list[str]:
        """What was done."""
        return [what for what, _ in self.log]

    @property
    def keys(self) -> list[str]:
        """Under which keys."""
        return [key for _, key in self.log]


@asynccontextmanager
async def opened(url: Url, id: str = "s", **options: Any) -> AsyncIterator[tuple[Store, Session]]:
    """A store and a session in it."""
    async with holdfast.open_store(url) as store, store.session(id, **options) as session:
        yield store, session


def die(store: Store, *, proof: bool = True) -> None:
    """As if the process of this store had been killed: what is not durable is lost, and nobody beats.

    Without `proof`, it may only have been cut off: its kernel lock is still held.
    """
    engine = engine_of(store)
    for channel in engine.channels.values():
        channel.lost = Closed("the process died")
    engine.call = _dead  # type: ignore[method-assign,assignment]
    stop_heartbeat(store)
    # A kernel that ends a process frees its lock without the file being removed. No call does only that.
    lock = engine.heartbeat._kernel_lock
    if proof and lock is not None:
        lock.let_go()
        engine.heartbeat._kernel_lock = None


async def _dead(*args: Any) -> Any:
    raise Closed("the process died")


async def reply(session: Session, *calls: ToolCall) -> None:
    """A model's reply that asks for these calls."""
    await session.add(Message(role="assistant", blocks=(Text("Let me see."), *calls)))


def call(name: str, args: Json = None, id: str = "call_0") -> ToolCall:
    """A call in a reply; its id is the one that many servers always give."""
    return ToolCall(id=id, name=name, args={} if args is None else args)


def results(session: Session) -> list[ToolResult]:
    """The results of the last message of the transcript."""
    message = session.transcript[-1]
    assert isinstance(message, Message)
    return [block for block in message.blocks if isinstance(block, ToolResult)]


async def kinds(store: Store, session: Session) -> list[str]:
    """The kinds of the session's lines."""
    await session.flush()
    return [entry.kind async for entry in store.tail(session.id, follow=False)]


async def bodies(store: Store, session: Session, cls: type[Body]) -> list[Any]:
    """The bodies of the session's lines of one kind."""
    await session.flush()
    return [entry.body async for entry in store.tail(session.id, follow=False) if isinstance(entry.body, cls)]


async def hear(session: Session) -> None:
    """Let the holder notice what was sent to it: it hears of it when it writes."""
    await session.set("heard", True)
    await session.flush()


async def come_true(condition: Callable[[], bool]) -> None:
    """Wait for what another thread brings about."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


def later(session: Session, seconds: float) -> None:
    """For the session, some seconds have passed."""
    instant = writer_of(session).engine.instant
    set_clock(writer_of(session).engine, seconds)

    def shifted() -> Instant:
        now = instant()
        server_s = None if now.server_s is None else now.server_s + seconds
        return replace(now, boot_s=now.boot_s + seconds, server_s=server_s)

    writer_of(session).engine.instant = shifted  # type: ignore[method-assign]


def set_clock(engine: Engine, seconds: float) -> None:
    """The wall clock is set ahead by some seconds, or back."""
    now = engine.now

    def shifted() -> datetime:
        return now() + timedelta(seconds=seconds)

    engine.now = shifted


def move_to(engine: Engine, boot: str, *, server_s: Callable[[], float] | None = None) -> None:
    """The process is on another machine; `server_s` is the server's clock, if the store has one."""

    def instant() -> Instant:
        return Instant(boot=boot, boot_s=boot_s(), server_s=None if server_s is None else server_s())

    engine.instant = instant  # type: ignore[method-assign]


class NoWaiting:
    """Stands in for `anyio` in a module: sleeping is noted, and over at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        self.slept: list[float] = []
        self.during: Callable[[], None] = lambda: None
        """What happens while somebody sleeps."""
        monkeypatch.setattr(module, "anyio", self)

    async def sleep(self, seconds: float) -> None:
        """Over at once."""
        self.slept.append(seconds)
        self.during()
        await anyio.lowlevel.checkpoint()

    def __getattr__(self, name: str) -> Any:
        return getattr(anyio, name)
