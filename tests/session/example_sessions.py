"""What happens in many of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

import anyio

from holdfast import Session, Store, open_store
from holdfast.core.codec import Page
from holdfast.drivers.contract import Driver
from holdfast.drivers.url import find_driver
from holdfast.ids import SessionId
from holdfast.messages import AnyMessage, Message, Text, ToolCall, ToolResult
from holdfast.records import Entry

StoreUrl: TypeAlias = str | Driver
T = TypeVar("T")


def texts(messages: Iterable[AnyMessage]) -> list[str]:
    """What each message says."""
    return [message.text for message in messages]


def calling(*ids: str, text: str = "let me see") -> Message:
    """A model's reply that asks for tools."""
    return Message(role="assistant", blocks=(Text(text), *(ToolCall(id=id, name=f"tool_{id}") for id in ids)))


def results(*ids: str) -> Message:
    """The tools' answers."""
    return Message(role="tool", blocks=tuple(ToolResult(call_id=id, content=f"{id} ok") for id in ids))


async def step(session: Session, text: str) -> int:
    """A message and a checkpoint; its version."""
    await session.add(text)
    return await session.checkpoint()


async def collect(items: AsyncIterator[T]) -> list[T]:
    """All of them."""
    return [item async for item in items]


async def entries(store: Store, session: str) -> list[Entry]:
    """The journal as far as it is durable."""
    return await collect(store.tail(session, follow=False))


async def kinds(store: Store, session: str) -> list[str]:
    """Of the journal's entries."""
    return [entry.kind for entry in await entries(store, session)]


async def eventually(look: Callable[[], Awaitable[T]]) -> T:
    """Look again and again until there is something."""
    with anyio.fail_after(60):
        while not (found := await look()):  # noqa: ASYNC110 - somebody else's process sets no event of ours
            await anyio.sleep(0.005)
        return found


async def abandon(url: StoreUrl, work: Callable[[Store], Awaitable[object]]) -> None:
    """A process that ends in the middle of its work: what it entered it never leaves."""

    async def live() -> None:
        store = await open_store(url).__aenter__()
        await work(store)
        await store.aclose()

    # A task of its own, so that the run it was in is nobody else's.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live)


@contextmanager
def driver_of(url: StoreUrl) -> Iterator[Driver]:
    """The store's driver, opened once more."""
    driver = find_driver(url, create=False)()
    try:
        yield driver
    finally:
        driver.close()


def own_page(url: StoreUrl, session: str) -> Page:
    """The chunks that are kept under this id, and not under that of an origin."""
    with driver_of(url) as driver:
        return driver.read(SessionId(session), 0, 1_000_000, said=True)


def own_bytes(url: StoreUrl, session: str) -> bytes:
    """All that is stored of their parts."""
    page = own_page(url, session)
    assert page.said is not None
    return page.facts + page.details + page.said


def status_of(session: Session) -> str:
    """What it is now: type checkers believe that a property stays what it was."""
    return session.status
