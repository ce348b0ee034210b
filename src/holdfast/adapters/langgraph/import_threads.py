"""Bringing over what another saver has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple, PendingWrite

from ..leaseless_journal import NewEntry
from .thread_state import ThreadState


def putting(found: CheckpointTuple, parent: str | None) -> Callable[[ThreadState], NewEntry]:
    checkpoint, metadata = found.checkpoint, found.metadata

    def put(thread: ThreadState) -> NewEntry:
        return thread.put(checkpoint, metadata, thread.changed(checkpoint, parent), parent)

    return put


def writing(
    id: str, task: str, writes: Sequence[tuple[str, Any]], path: str
) -> Callable[[ThreadState], NewEntry | None]:
    return lambda thread: thread.put_writes(id, writes, task, path)


def batches(writes: Sequence[PendingWrite]) -> Iterator[tuple[str, str, Sequence[tuple[str, Any]]]]:
    """Pending writes as they were put: what each task wrote, and each of its special ones by itself.

    Where a task stood is not told by a pending write; their order is, and is kept in place of it.
    """
    plain: dict[str, list[tuple[str, Any]]] = {}
    paths: dict[str, str] = {}
    for task, channel, value in writes:
        path = paths.setdefault(task, f"~{len(paths):08}")
        if channel in WRITES_IDX_MAP:
            yield task, path, [(channel, value)]
        else:
            plain.setdefault(task, []).append((channel, value))
    for task, batch in plain.items():
        yield task, paths[task], batch


async def iter_all(
    other: BaseCheckpointSaver[Any], config: RunnableConfig | None
) -> AsyncIterator[CheckpointTuple]:
    """The checkpoints of a saver that may be for code without an event loop only."""
    try:
        async for one in other.alist(config):
            yield one
        return
    except NotImplementedError:
        found = await anyio.to_thread.run_sync(lambda: [*other.list(config)])
    for one in found:
        yield one


async def find_one(other: BaseCheckpointSaver[Any], config: RunnableConfig) -> CheckpointTuple | None:
    try:
        return await other.aget_tuple(config)
    except NotImplementedError:
        return await anyio.to_thread.run_sync(other.get_tuple, config)
