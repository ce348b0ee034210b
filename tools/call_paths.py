"""Print how many functions and files of holdfast two ways pass: of a message to the disk, and of a tool call.

    .venv/bin/python tools/call_paths.py [--list]

The first way begins when `Agent.run` is called and ends when the commit with the user's message is durable.
The second begins when a mutating call is dispatched and ends when its result is handed back. A file switch is
a call into another file than the call before it. `--list` prints each call in order. A person who wants to
understand the code has to walk these ways: shorter is better.
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


class Way:
    """The calls into holdfast, in the order in which they began, until a call that `ends` it returns."""

    def __init__(self, name: str, ends: Callable[[FrameType], bool] = lambda frame: False) -> None:
        self.name, self._ends = name, ends
        self._over = False
        self.calls: list[tuple[str, str]] = []

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function."""
        if self._over or event not in ("call", "return"):
            return
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)) or code.co_name in NOT_FUNCTIONS:
            return
        if event == "call":
            # A coroutine that goes on is entered again; it was counted when it began.
            if frame.f_lasti <= 0 or not code.co_flags & (0x80 | 0x20 | 0x200):
                self.calls.append((str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname))
        elif self._ends(frame):
            self._over = True

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note what is called in this thread, and in every one that begins meanwhile."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def tell(self, *, every_call: bool) -> None:
        """Print the counts."""
        if every_call:
            for file, function in self.calls:
                print(f"    {file:<36} {function}")
        files = [file for file, _ in self.calls]
        switches = sum(one != other for one, other in pairwise(files))
        functions = len(set(self.calls))
        print(f"{self.name}: {functions} functions in {len(set(files))} files, {switches} file switches")


def has_message(frame: FrameType) -> bool:
    """Whether this is the driver's commit of a message."""
    code = frame.f_code
    if code.co_qualname != "SqliteDriver.commit":
        return False
    return any("message.added" in item.kinds for item in frame.f_locals["batch"])


@holdfast.tool(side_effects={"mutate"})
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents} cents"


async def walk(directory: str, *, every_call: bool) -> None:
    """Go both ways, once to warm up and once to count."""
    agent = holdfast.Agent(holdfast.agents.ScriptedModel(lambda prompt: "Good day!"))
    registry = holdfast.Registry([pay])
    async with holdfast.open_store(f"sqlite:{directory}/walk.db") as store:
        await agent.run("Hello.", session="warm", store=store)
        message = Way("a message to the disk", has_message)
        with message.watch():
            await agent.run("Hello.", session="counted", store=store)
        message.tell(every_call=every_call)
        async with store.session("tools") as session:
            await registry.dispatch("pay", {"cents": 1}, session=session)
            call = Way("a mutating call to its body and back")
            with call.watch():
                await registry.dispatch("pay", {"cents": 2}, session=session)
            call.tell(every_call=every_call)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        anyio.run(lambda: walk(made, every_call="--list" in sys.argv[1:]))
