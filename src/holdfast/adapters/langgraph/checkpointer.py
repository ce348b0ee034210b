"""`HoldfastSaver`: LangGraph's checkpoints in a holdfast store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ... import blocking
from ...checks import check_list
from ...content.lazy import Shared
from ...errors import BadInput, NotFound
from ...store.store import Store, open_store
from ...system import randomness
from .import_threads import batches, find_one, iter_all, putting, writing
from .journal import Desk, Desks
from .serde import Allowed, CheckedSerializer
from .sync_loop import Waiting
from .thread_ids import Place
from .thread_state import Thread
from .tool_session import ledger_labels, ledger_session

T = TypeVar("T")
Check: TypeAlias = Literal["objects", "bytes"]


class HoldfastSaver(BaseCheckpointSaver[str]):
    """A checkpointer: `builder.compile(checkpointer=HoldfastSaver(store))`.

    `store` is an open one, of `holdfast` or of `holdfast.blocking`. Every method is there for code with an
    event loop and for code without one. What is put is durable when the method returns, and costs what is
    new.

    `allow` lists the application's own types that may be made when a checkpoint is read; simple ones of the
    standard library, LangChain's messages and LangGraph's own are known. `serde` replaces the serializer,
    list and all (LangGraph's `EncryptedSerializer`, for one). `check`: what counts as unchanged since the
    last checkpoint, the same object with the same objects in its fields, or (`"bytes"`) what serializes to
    the same.
    """

    def __init__(
        self,
        store: Store | blocking.Store,
        *,
        allow: Iterable[Allowed] = (),
        serde: SerializerProtocol | None = None,
        check: Check = "objects",
    ) -> None:
        if check not in ("objects", "bytes"):
            raise BadInput(f"check is 'objects' or 'bytes', not {check!r}")
        allowed = tuple(check_list("allow", allow))
        if serde is not None and allowed:
            raise BadInput("allow=… is for holdfast's own serializer; give the list to yours")
        super().__init__(serde=serde or CheckedSerializer(allowed))
        self._store = store if isinstance(store, Store) else store._target
        self._waiting = Waiting(None if isinstance(store, Store) else store._loop)
        trust_objects = check == "objects"
        # LangGraph makes shallow copies of a saver: what is in here is theirs, too.
        serializer, engine = self.serde, self._store._engine
        self._desks = Desks(
            engine,
            lambda: Thread(
                serializer, trust_objects=trust_objects, inline_bytes=engine.blobs.sizes.inline_bytes
            ),
        )

    @classmethod
    def from_url(
        cls,
        url: str | Path | None = None,
        *,
        allow: Iterable[Allowed] = (),
        serde: SerializerProtocol | None = None,
        check: Check = "objects",
    ) -> Opening:
        """Open a store for the saver alone: `with HoldfastSaver.from_url("sqlite:graphs.db") as saver`, or
        `async with`."""
        return Opening(cls, url, {"allow": allow, "serde": serde, "check": check})

    # -- with an event loop --------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the latest of its thread and namespace."""
        place = _place(config)
        desk = await self._desks.look(place)
        with desk.lock:
            id = get_checkpoint_id(config) or desk.thread.latest()
        return None if id is None else await self._find_tuple(desk, id, {}, keep=True)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints of a namespace, a thread, or (None) all threads, the newest first."""
        wanted = get_checkpoint_id(config) if config else None
        bound = get_checkpoint_id(before) if before else None
        places = await self._find_places(config)
        found: list[tuple[str, Place]] = []
        for place in places:
            desk = await self._desks.look(place)
            with desk.lock:
                found += [
                    (id, place)
                    for id in desk.thread.records
                    if wanted in (None, id) and (bound is None or id < bound)
                ]
        left = len(found) if limit is None else limit
        blobs: dict[str, Shared] = {}
        for id, place in sorted(found, key=lambda one: one[0], reverse=True):
            if left <= 0:
                return
            desk = await self._desks.look(place)
            with desk.lock:
                if id not in desk.thread.records or not _fits(desk.thread.metadata(id), filter):
                    continue
            tuple_ = await self._find_tuple(desk, id, blobs, keep=False)
            if tuple_ is not None:
                left -= 1
                yield tuple_

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; the one that `config` names is its parent. Durable on return.

        `holdfast.errors.Overtaken`, and nothing is written, if another saver wrote to the thread and
        namespace after this one last read it.
        """
        place = _place(config)
        merged = get_checkpoint_metadata(config, metadata)
        parent = get_checkpoint_id(config)
        await self._desks.write(place, lambda thread: thread.put(checkpoint, merged, new_versions, parent))
        return _config(place, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task has written after a checkpoint. Durable on return; refused as `aput` is."""
        id = get_checkpoint_id(config)
        if id is None:
            raise BadInput(
                "writes belong to a checkpoint: config['configurable']['checkpoint_id'] is missing"
            )
        await self._desks.write(
            _place(config), lambda thread: thread.put_writes(id, writes, task_id, task_path)
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread with all its namespaces, and the ledger of its tools."""
        for place in await self._desks.places(str(thread_id)):
            await self._desks.delete(place)
        with suppress(NotFound):
            await self._store.delete(ledger_session(str(thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs made, in all threads. Looks through all of them.

        What a delta channel of a checkpoint that stays is rebuilt from stays, too.
        """
        runs = set(check_list("run_ids", run_ids))
        if not runs:
            return

        def keep(thread: Thread) -> set[str]:
            others = [id for id in thread.records if thread.metadata(id).get("run_id") not in runs]
            # An ancestor that is still needed would otherwise be left out, and its descendants be empty.
            return thread.needed(others)

        for place in await self._desks.places():
            await self._desks.shrink(place, keep)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread. A namespace that the target does not have is shared, and takes no space."""
        for source in await self._desks.places(str(source_thread_id)):
            target = Place(str(target_thread_id), source.ns)
            if (await self._desks.look(target)).is_new:
                await self._desks.fork(source, target)
            else:
                await self._merge(self, source, target)
                await self._merge_ahead(source, target)
        await self._share_ledger(str(source_thread_id), str(target_thread_id))

    async def _share_ledger(self, source: str, target: str) -> None:
        """What tools of the source have done is known in the copy: there it would be done twice."""
        origin, copy = ledger_session(source), ledger_session(target)
        driver = self._desks.engine.driver
        there = [await self._desks.engine.call(driver.find_tip, one) is not None for one in (origin, copy)]
        if there == [True, False]:
            await self._desks.share(origin, copy, ledger_labels(target))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the latest checkpoint of each namespace, or nothing (`strategy="delete"`).

        What a delta channel of the latest is rebuilt from stays, too.
        """
        if strategy not in ("keep_latest", "delete"):
            raise BadInput(f"strategy is 'keep_latest' or 'delete', not {strategy!r}")
        for thread_id in check_list("thread_ids", thread_ids):
            for place in await self._desks.places(str(thread_id)):
                if strategy == "delete":
                    await self._desks.delete(place)
                else:
                    await self._desks.shrink(place, _keep_latest)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What delta channels are rebuilt from, up to the checkpoint that `config` names."""
        check_list("channels", channels)
        if not channels:
            return {}
        desk = await self._desks.look(_place(config))
        with desk.lock:
            id = get_checkpoint_id(config) or desk.thread.latest() or ""
        return await self._read(desk, {}, lambda keep: desk.thread.delta_history(id, channels))

    async def acopy_from(self, other: BaseCheckpointSaver[Any]) -> int:
        """Bring over all threads of another saver; how many checkpoints. Those that are here already stay.

        Saying it again after it was cut short goes on: what is there is not written twice.
        """
        places: dict[Place, None] = {}
        async for one in iter_all(other, None):
            places.setdefault(_place(one.config))
        return sum([await self._merge(other, place, place) for place in places])

    async def _merge(self, other: BaseCheckpointSaver[Any], source: Place, target: Place) -> int:
        """Put what `other` has of a namespace and is not here, the oldest first; how many checkpoints."""
        desk = await self._desks.look(target)
        with desk.lock:
            known = set(desk.thread.records)
        ids = [one.checkpoint["id"] async for one in iter_all(other, _config(source))]
        for id in sorted(ids):
            found = await find_one(other, _config(source, id))
            if found is None:
                continue
            if id not in known:
                parent = get_checkpoint_id(found.parent_config) if found.parent_config else None
                await self._desks.write(target, putting(found, parent))
            for task, path, writes in batches(found.pending_writes or []):
                await self._desks.write(target, writing(id, task, writes, path))
        return len(set(ids) - known)

    async def _merge_ahead(self, source: Place, target: Place) -> None:
        """Put the writes of a namespace whose checkpoint was not put yet: no list of checkpoints has them."""
        desk = await self._desks.look(source)
        with desk.lock:
            ids = desk.thread.ahead()
        for id in ids:
            pending = await self._read(desk, {}, partial(_read_pending, desk.thread, id))
            for task, path, writes in batches(pending):
                await self._desks.write(target, writing(id, task, writes, path))

    # -- without one ---------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple`, for code without an event loop."""
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist`, for code without an event loop."""
        return self._waiting.loop.iterate(self.alist(config, filter=filter, before=before, limit=limit))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput`, for code without an event loop."""
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """`aput_writes`, for code without an event loop."""
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread`, for code without an event loop."""
        self._wait(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`adelete_for_runs`, for code without an event loop."""
        self._wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`acopy_thread`, for code without an event loop."""
        self._wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`aprune`, for code without an event loop."""
        self._wait(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history`, for code without an event loop."""
        return self._wait(self.aget_delta_channel_history(config=config, channels=channels))

    def copy_from(self, other: BaseCheckpointSaver[Any]) -> int:
        """`acopy_from`, for code without an event loop."""
        return self._wait(self.acopy_from(other))

    def close(self) -> None:
        """End the thread that code without an event loop has used, if any. The store stays open."""
        self._waiting.end()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._waiting.loop.wait(work)

    # -- the rest ------------------------------------------------------------------------------------

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Grows, and is never the same in two branches of a thread."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{randomness.random():016}"

    async def _read(self, desk: Desk, blobs: dict[str, Shared], read: Callable[[bool], T]) -> T:
        """What `read` finds in the thread, after the blobs that it needs were fetched; `blobs` has those that
        are there, and then those that were needed. `read` is told whether what it finds is what counts."""
        values = desk.thread.values
        while True:
            with desk.lock, values.by(self.serde):
                wanted = values.find_blobs(lambda: read(False))
                missing = wanted - blobs.keys()
                if not missing:
                    for digest in blobs.keys() - wanted:
                        del blobs[digest]
                    with values.with_blobs(blobs):
                        return read(True)
            blobs.update(await self._desks.fetch(desk, missing))

    async def _find_tuple(
        self, desk: Desk, id: str, blobs: dict[str, Shared], *, keep: bool
    ) -> CheckpointTuple | None:
        return await self._read(desk, blobs, lambda counts: self._tuple(desk, id, keep=keep and counts))

    def _tuple(self, desk: Desk, id: str, *, keep: bool) -> CheckpointTuple | None:
        thread, place = desk.thread, desk.place
        record = thread.records.get(id)
        if record is None:
            return None
        return CheckpointTuple(
            config=_config(place, id),
            checkpoint=thread.checkpoint(id, keep=keep),
            metadata=thread.metadata(id),
            parent_config=_config(place, record.parent) if record.parent else None,
            pending_writes=thread.pending(id),
        )

    async def _find_places(self, config: RunnableConfig | None) -> Sequence[Place]:
        if config is None:
            return await self._desks.places()
        if "checkpoint_ns" in config["configurable"]:
            return [_place(config)]
        return await self._desks.places(str(config["configurable"]["thread_id"]))


class Opening:
    """A saver with a store of its own, for the block of a `with` or an `async with`."""

    def __init__(self, cls: type[HoldfastSaver], url: str | Path | None, options: dict[str, Any]) -> None:
        self._cls, self._url, self._options = cls, url, options
        self._stack = ExitStack()
        self._astack = AsyncExitStack()

    def __enter__(self) -> HoldfastSaver:
        store = self._stack.enter_context(blocking.open_store(self._url))
        return self._cls(store, **self._options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    async def __aenter__(self) -> HoldfastSaver:
        store = await self._astack.enter_async_context(open_store(self._url))
        saver = self._cls(store, **self._options)
        self._astack.callback(saver.close)
        return saver

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._astack.__aexit__(kind, error, trace)


def _place(config: RunnableConfig) -> Place:
    given = config["configurable"]
    return Place(str(given["thread_id"]), given.get("checkpoint_ns") or "")


def _config(place: Place, id: str | None = None) -> RunnableConfig:
    given = {"thread_id": place.thread, "checkpoint_ns": place.ns}
    return {"configurable": given if id is None else {**given, "checkpoint_id": id}}


def _fits(metadata: CheckpointMetadata, filter: dict[str, Any] | None) -> bool:
    return not filter or all(metadata.get(key) == value for key, value in filter.items())


def _read_pending(thread: Thread, id: str, keep: bool) -> list[PendingWrite]:
    return thread.pending(id)


def _keep_latest(thread: Thread) -> set[str]:
    latest = thread.latest()
    return set() if latest is None else thread.needed([latest])
