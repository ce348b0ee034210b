"""A program that forks while a store is open, and uses the store in the child.

python -m tests.session.inherited_stores KIND URL [BACKEND]    prints what became of each call, as JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import anyio
import anyio.to_thread

import holdfast
from holdfast import blocking

WATCHDOG_S = 240
"""A child that hangs is ended; all it does takes a second."""


async def _list(items: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in items]


async def _enter(manager: Any) -> None:
    async with manager:
        pass


def list_calls(store: Any, session: Any) -> dict[str, Callable[[], Awaitable[object]]]:
    """Calls that read and that write."""
    return {
        "load": lambda: store.load("s"),
        "head": lambda: store.head("s"),
        "sessions": lambda: _list(store.sessions()),
        "runs": lambda: _list(store.runs()),
        "tail": lambda: _list(store.tail("s", follow=False)),
        "blobs": lambda: _list(store.blobs()),
        "submit": lambda: store.submit("s", "hi"),
        "put_blob": lambda: store.put_blob(b"large"),
        "fork": lambda: store.fork("s"),
        "delete": lambda: store.delete("s"),
        "session": lambda: _enter(store.session("other")),
        "add": lambda: session.add("two"),
        "add large": lambda: session.add("two" * 1_000_000),
        "set": lambda: session.set("key", 1),
        "checkpoint": lambda: session.checkpoint(),
        "flush": lambda: session.flush(),
        "take_in": lambda: session.take_in(),
        "run": lambda: _enter(session.run(agent="a")),
        "hold": lambda: _enter(session.hold("file")),
    }


def in_child(use: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What `use` returns in a forked child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run(use, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found: dict[str, str] = json.loads(pipe.read() or "{}")
    os.waitpid(pid, 0)
    return found


def _run(use: Callable[[], dict[str, str]], writing: int) -> NoReturn:
    signal.alarm(WATCHDOG_S)
    try:
        found = use()
    except BaseException as error:
        found = {"the child": repr(error)}
    os.write(writing, json.dumps(found).encode())
    os._exit(0)


async def _try(call: Callable[[], Awaitable[object]]) -> str:
    try:
        return f"returned {await call()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def with_a_loop(url: str, backend: str) -> dict[str, str]:
    """An async store, used under a new event loop in the child."""
    async with holdfast.open_store(url) as store, store.session("s") as session:
        await session.add("one")
        await session.checkpoint()

        async def use() -> dict[str, str]:
            return {name: await _try(call) for name, call in list_calls(store, session).items()}

        # From a thread: in the parent's own event loop, the child could not start another.
        found = await anyio.to_thread.run_sync(in_child, lambda: anyio.run(use, backend=backend))
        await session.add("three")
        await session.checkpoint()
        return found


async def in_the_same_loop(url: str, backend: str) -> dict[str, str]:
    """An async store, in a child that goes on in the middle of a task, as after a bare `os.fork()`."""
    async with holdfast.open_store(url) as store, store.session("s") as session:
        await session.add("one")
        await session.checkpoint()
        calls = list_calls(store, session)

        def use() -> dict[str, str]:
            found = {}
            for name, call in calls.items():
                try:  # What would wait for the loop is not raised at once.
                    _try(call).send(None)
                    found[name] = "waits"
                except StopIteration as ended:
                    found[name] = ended.value
            return found

        found = in_child(use)
        await session.add("three")
        await session.checkpoint()
        return found


def without_a_loop(url: str) -> dict[str, str]:
    """A blocking store."""
    with blocking.open_store(url) as store, store.session("s") as session:
        session.add("one")
        session.checkpoint()

        def enter(manager: Any) -> None:
            with manager:
                pass

        calls: dict[str, Callable[[], object]] = {
            "load": lambda: store.load("s"),
            "sessions": lambda: list(store.sessions()),
            "submit": lambda: store.submit("s", "hi"),
            "put_blob": lambda: store.put_blob(b"large"),
            "session": lambda: enter(store.session("other")),
            "add": lambda: session.add("two"),
            "checkpoint": lambda: session.checkpoint(),
            "run": lambda: enter(session.run(agent="a")),
            "hold": lambda: enter(session.hold("file")),
        }

        def use() -> dict[str, str]:
            found = {}
            for name, call in calls.items():
                try:
                    found[name] = f"returned {call()!r}"
                except Exception as error:
                    found[name] = f"{type(error).__name__}: {error}"
            return found

        found = in_child(use)
        session.add("three")
        session.checkpoint()
        return found


if __name__ == "__main__":
    kind, address, chosen = [*sys.argv[1:], ""][:3]
    if kind == "blocking":
        print(json.dumps(without_a_loop(address)))
    else:
        program = with_a_loop if kind == "new loop" else in_the_same_loop
        print(json.dumps(anyio.run(program, address, chosen, backend=chosen)))
