"""LangGraph's checkpointers and ours, given one checkpoint after another, as a graph would give them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6

from bench.subjects.contract import Place
from bench.subjects.savers import OPENERS, set_up


class Thread:
    """A thread whose channel `messages` grows by two a step."""

    def __init__(self, name: str) -> None:
        self.config: RunnableConfig = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self._messages: list[AnyMessage] = []
        self._version: Any = None
        self._count = 0

    async def step(self, saver: BaseCheckpointSaver[Any], first: str, second: str) -> None:
        """Put a checkpoint."""
        self._count += 1
        self._version = saver.get_next_version(self._version, None)
        self._messages = [
            *self._messages,
            HumanMessage(first, id=f"h{self._count}"),
            AIMessage(second, id=f"a{self._count}"),
        ]
        checkpoint: Any = {
            "v": 4,
            "id": str(uuid6(clock_seq=self._count % 2**14)),
            "ts": "2026-11-16T00:00:00+00:00",
            "channel_values": {"messages": self._messages},
            "channel_versions": {"messages": self._version},
            "versions_seen": {"agent": {"messages": self._version}},
            "updated_channels": ["messages"],
        }
        metadata: Any = {"source": "loop", "step": self._count, "parents": {}}
        self.config = await saver.aput(self.config, checkpoint, metadata, {"messages": self._version})


class Puts:
    """Direct puts into one saver."""

    def __init__(self, saver: str) -> None:
        self._open_saver = OPENERS[saver]

    async def open(self, place: Place, sessions: int) -> None:
        self._opened = AsyncExitStack()
        self._saver = await self._opened.enter_async_context(self._open_saver(place))
        await set_up(self._saver)
        # Another saver reads: what a saver has read, it compares the next checkpoint with. Graphs read before
        # each step, and are measured by themselves.
        self._reader = await self._opened.enter_async_context(self._open_saver(place))
        self._threads = [Thread(f"t{number}") for number in range(sessions)]

    async def reopen(self, place: Place) -> None:
        self._opened = AsyncExitStack()
        self._reader = await self._opened.enter_async_context(self._open_saver(place))

    async def step(self, session: int, first: str, second: str) -> None:
        await self._threads[session].step(self._saver, first, second)

    async def load(self, session: int) -> int:
        thread = {"thread_id": f"t{session}", "checkpoint_ns": ""}
        found = await self._reader.aget_tuple({"configurable": thread})
        return len(found.checkpoint["channel_values"]["messages"]) if found else 0

    async def close(self) -> None:
        await self._opened.aclose()
