"""Print how many functions and files of holdfast a message passes on its way to the disk, and a tool call.

    .venv/bin/python tools/call_paths.py [--list]

The first way begins when `Agent.run` is called and ends when the user's message is handed to the committer.
The second begins with `session.add` and ends when `session.flush` returns, the commit included. The third
begins when a mutating call is dispatched and ends when its result is handed back. A file switch is a call
into another file than the call before it. Calls into `system/` stand for calls of the operating system and
are not counted. `--list` prints each call in order. A person who wants to
understand the code has to walk these ways: shorter is better. `docs/architecture.md` draws them, and a test
compares.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

import holdfast

PACKAGE = Path(holdfast.__file__).resolve().parent
NOT_FUNCTIONS = ("<module>", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


_watching: list[Way] = []


def profile(frame: FrameType, event: str, argument: Any) -> None:
    """Set in all threads before the first of them begins."""
    for way in _watching:
        way.note(frame, event, argument)


class Way:
    """The calls into holdfast, in the order in which they began, until a call that `ends` it returns."""

    def __init__(self, name: str, ends: Callable[[FrameType], bool] = lambda frame: False) -> None:
        self.name, self._ends = name, ends
        self._over = False
        self._entered: set[FrameType] = set()
        self.calls: list[tuple[str, str]] = []

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call, or end the way."""
        if self._over or event not in ("call", "return"):
            return
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)) or code.co_name in NOT_FUNCTIONS:
            return
        if code.co_filename.startswith(str(PACKAGE / "system")):
            return
        if event == "call":
            # The frame of a coroutine is entered again whenever it goes on.
            if frame not in self._entered:
                self._entered.add(frame)
                self.calls.append((str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname))
        elif self._ends(frame):
            self._over = True

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note what is called in every thread."""
        _watching.append(self)
        try:
            yield
        finally:
            _watching.remove(self)

    def tell(self, *, every_call: bool) -> None:
        """Print the counts."""
        if every_call:
            for file, function in self.calls:
                print(f"    {file:<36} {function}")
        files = [file for file, _ in self.calls]
        switches = sum(one != other for one, other in pairwise(files))
        functions = len(set(self.calls))
        print(f"{self.name}: {functions} functions in {len(set(files))} files, {switches} file switches")


def hands_over_a_message(frame: FrameType) -> bool:
    """True if this call handed a message to the committer."""
    if frame.f_code.co_qualname != "Committer.offer":
        return False
    return any(one.entry.kind == "message.added" for one in frame.f_locals["entries"])


@holdfast.tool(side_effects={"mutate"})
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents} cents"


async def walk(directory: str) -> list[Way]:
    """Go all ways, once to warm up and once to count."""
    agent = holdfast.Agent(holdfast.agents.ScriptedModel(lambda prompt: "Good day!"))
    registry = holdfast.Registry([pay])
    threading.setprofile(profile)
    sys.setprofile(profile)
    run = Way("a message from Agent.run to the committer", hands_over_a_message)
    added = Way("a message from session.add to the disk")
    call = Way("a mutating call to its body and back")
    async with holdfast.open_store(f"sqlite:{directory}/walk.db") as store:
        await agent.run("Hello.", session="warm", store=store)
        with run.watch():
            await agent.run("Hello.", session="counted", store=store)
        async with store.session("by-hand") as session:
            # Several times: the first commits are made in a thread, until it is known how long one takes.
            for _ in range(5):
                await session.add("Hello.")
                await session.flush()
            with added.watch():
                await session.add("Hello.")
                await session.flush()
            await registry.dispatch("pay", {"cents": 1}, session=session)
            with call.watch():
                await registry.dispatch("pay", {"cents": 2}, session=session)
    sys.setprofile(None)
    threading.setprofile(None)
    return [run, added, call]


def main() -> None:
    """Print each way."""
    with tempfile.TemporaryDirectory() as made:
        for way in anyio.run(walk, made):
            way.tell(every_call="--list" in sys.argv[1:])


if __name__ == "__main__":
    main()
