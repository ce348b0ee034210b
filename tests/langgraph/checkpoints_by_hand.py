"""Checkpoints put by hand, without a graph."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.base.id import uuid6

from .graphs import thread

_order = iter(range(1, 1 << 30))


def checkpoint(values: dict[str, Any], versions: dict[str, Any]) -> Checkpoint:
    """A checkpoint with these values."""
    return {
        "v": 4,
        "id": str(uuid6(clock_seq=next(_order))),
        "ts": "2026-11-16T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": None,
    }


class Writer:
    """Puts one checkpoint after another; all channels that are given are new each time."""

    def __init__(self, saver: BaseCheckpointSaver[Any], id: str = "t", ns: str = "") -> None:
        self.saver = saver
        self.config: RunnableConfig = thread(id, checkpoint_ns=ns)
        self.steps = 0
        self.versions: dict[str, Any] = {}

    async def put(self, /, **values: Any) -> RunnableConfig:
        """Put all values as they are now; where it is."""
        self.steps += 1
        self.versions = {one: self.saver.get_next_version(self.versions.get(one), None) for one in values}
        made = checkpoint(values, dict(self.versions))
        metadata: Any = {"source": "loop", "step": self.steps, "parents": {}}
        self.config = await self.saver.aput(self.config, made, metadata, dict(self.versions))
        return self.config


async def values_at(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> dict[str, Any]:
    """The values of a checkpoint."""
    found = await saver.aget_tuple(config)
    assert found is not None
    return found.checkpoint["channel_values"]
