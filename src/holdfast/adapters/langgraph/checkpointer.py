"""`HoldfastSaver`: LangGraph's checkpoints in a holdfast store."""

from __future__ import annotations

import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar

import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
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
from ...content.lazy import Shared
from ...errors import BadInput, BadUrl, NotFound
from ...ids import check_list
from ...store.opening import AnyStore, address_of, find_open_store
from ...store.store import Store, open_store
from ...system import randomness
from ..langgraph_threads import CALLER_LABEL
from ..leaseless_journal import EntryToWrite, Outdated
from .journal import ThreadJournal, ThreadJournals
from .serde import Allowed, CheckedSerializer
from .sync_loop import SyncLoop
from .thread_ids import ThreadNamespace
from .thread_state import ThreadState
from .tool_session import ledger_labels, ledger_session

T = TypeVar("T")
Check: TypeAlias = Literal["objects", "bytes"]


class HoldfastSaver(BaseCheckpointSaver[str]):
    """A checkpointer: `builder.compile(checkpointer=HoldfastSaver(store))`.

    `store` is an open store of `holdfast` or of `holdfast.blocking`, or the URL or `Path` of one that is
    opened here, and closed by `close`. Every method exists as async and as sync. What is put is durable when
    the method returns, and costs what is new.

    `allow` lists the application's own types that may be made when a checkpoint is read; simple ones of the
    standard library, LangChain's messages and LangGraph's own are known. `serde` replaces the serializer,
    list and all (LangGraph's `EncryptedSerializer`, for one). `check`: what counts as unchanged since the
    last checkpoint, the same object with the same objects in its fields, or (`"bytes"`) what serializes to
    the same.
    """

    def __init__(
        self,
        store: AnyStore,
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
        self._stack = ExitStack()
        """Closes the store, if it was opened here."""
        found = find_open_store(store)
        if found is None:
            store = self._stack.enter_context(blocking.open_store(address_of(store)))
            found = store.with_loop
        self._store = found
        self._given = store if isinstance(store, blocking.Store) else found
        self._sync = SyncLoop.of(store)
        trust_objects = check == "objects"
        # LangGraph makes shallow copies of a saver, which share the journals.
        serializer, engine = self.serde, self._store._engine
        self._journals = ThreadJournals(
            engine,
            lambda: ThreadState(
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

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        allow: Iterable[Allowed] = (),
        serde: SerializerProtocol | None = None,
        check: Check = "objects",
        pipeline: bool = False,
    ) -> Opening:
        """Do the same as `from_url` for what LangGraph's own savers take, with `with` or `async with`.

        `conn_string` is the path of a SQLite file, `:memory:`, or `postgresql://…`; or the URL of a store.
        `pipeline` changes nothing: a commit is one round trip.
        """
        return cls.from_url(_read_conn_string(conn_string), allow=allow, serde=serde, check=check)

    @property
    def store(self) -> Store | blocking.Store:
        """The store, open as long as the saver: `durable_tools(…, store=saver.store)`."""
        return self._given

    def setup(self) -> Awaitable[None]:
        """Do nothing: an open store has its tables. It may be awaited, as that of an async saver."""
        return _Nothing()

    async def asetup(self) -> None:
        """`setup`, with an event loop."""

    # -- with an event loop --------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the latest of its thread and namespace."""

        def read(journal: ThreadJournal, is_final: bool) -> CheckpointTuple | None:
            id = get_checkpoint_id(config) or journal.thread.latest()
            return None if id is None else _find_tuple(journal, id, keep=is_final)

        return await self._read(_namespace_of(config), {}, read)

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
        found: list[tuple[str, ThreadNamespace]] = []
        for namespace in await self._list_namespaces(config):
            async with self._journals.reading(namespace) as journal:
                found += [
                    (id, namespace)
                    for id in journal.thread.checkpoints
                    if wanted in (None, id) and (bound is None or id < bound)
                ]
        left = len(found) if limit is None else limit
        blobs: dict[str, Shared] = {}
        for id, namespace in sorted(found, key=lambda one: one[0], reverse=True):
            if left <= 0:
                return
            if filter and not await self._matches(namespace, id, filter):
                continue
            tuple_ = await self._read(namespace, blobs, partial(_find_listed, id))
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
        namespace = _namespace_of(config)
        merged = get_checkpoint_metadata(config, metadata)
        parent = get_checkpoint_id(config)
        await self._journals.append(
            namespace,
            lambda thread: thread.put(checkpoint, merged, new_versions, parent),
            lambda thread: thread.load_for_put(checkpoint, new_versions, parent),
        )
        return _config(namespace, checkpoint["id"])

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
        await self._journals.append(
            _namespace_of(config),
            lambda thread: thread.put_writes(id, writes, task_id, task_path),
            lambda thread: thread.writes_of(id),
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread with all its namespaces, and the ledger of its tools."""
        for namespace in await self._journals.list_namespaces(str(thread_id)):
            await self._journals.delete(namespace)
        with suppress(NotFound):
            await self._store.delete(ledger_session(str(thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs made, in all threads. Looks through all of them.

        What a delta channel of a checkpoint that stays is rebuilt from stays, too.
        """
        runs = set(check_list("run_ids", run_ids))
        if not runs:
            return

        def keep(thread: ThreadState) -> set[str]:
            others = [id for id in thread.checkpoints if thread.metadata(id).get("run_id") not in runs]
            # An ancestor that is still needed would otherwise be left out, and its descendants be empty.
            return thread.needed(others)

        for namespace in await self._journals.list_namespaces():
            await self._journals.shrink(namespace, keep)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread. A namespace that the target does not have is shared, and takes no space."""
        for source in await self._journals.list_namespaces(str(source_thread_id)):
            target = ThreadNamespace(str(target_thread_id), source.ns)
            async with self._journals.reading(target) as journal:
                is_new = journal.is_new
            if is_new:
                await self._journals.fork(source, target)
            else:
                await self._merge(self, source, target)
                await self._merge_ahead(source, target)
        await self._share_ledger(str(source_thread_id), str(target_thread_id))

    async def _share_ledger(self, source: str, target: str) -> None:
        """Share the ledger with the copy, which would else repeat the effects of the source."""
        origin, copy = ledger_session(source), ledger_session(target)
        engine = self._store._engine
        there = [await engine.call(engine.driver.find_tip, one) is not None for one in (origin, copy)]
        if there == [True, False]:
            labels = (await self._store.head(origin)).labels
            await self._journals.share(origin, copy, ledger_labels(target, labels.get(CALLER_LABEL, "")))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the latest checkpoint of each namespace, or nothing (`strategy="delete"`).

        What a delta channel of the latest is rebuilt from stays, too.
        """
        if strategy not in ("keep_latest", "delete"):
            raise BadInput(f"strategy is 'keep_latest' or 'delete', not {strategy!r}")
        for thread_id in check_list("thread_ids", thread_ids):
            for namespace in await self._journals.list_namespaces(str(thread_id)):
                if strategy == "delete":
                    await self._journals.delete(namespace)
                else:
                    await self._journals.shrink(namespace, _keep_latest)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What delta channels are rebuilt from, up to the checkpoint that `config` names."""
        check_list("channels", channels)
        if not channels:
            return {}

        def read(journal: ThreadJournal, is_final: bool) -> Mapping[str, DeltaChannelHistory]:
            id = get_checkpoint_id(config) or journal.thread.latest() or ""
            return journal.thread.delta_history(id, channels)

        return await self._read(_namespace_of(config), {}, read)

    async def acopy_from(self, other: BaseCheckpointSaver[Any]) -> int:
        """Import all threads of another saver, and return the number of new checkpoints.

        Checkpoints that exist here stay as they are, so an import that was cut off can be repeated.
        """
        namespaces: dict[ThreadNamespace, None] = {}
        async for one in _iter_checkpoints(other, None):
            namespaces.setdefault(_namespace_of(one.config))
        return sum([await self._merge(other, one, one) for one in namespaces])

    async def _merge(
        self, other: BaseCheckpointSaver[Any], source: ThreadNamespace, target: ThreadNamespace
    ) -> int:
        """Put what `other` has of a namespace and is not here, the oldest first; how many checkpoints."""
        async with self._journals.reading(target) as journal:
            known = set(journal.thread.checkpoints)
        ids = [one.checkpoint["id"] async for one in _iter_checkpoints(other, _config(source))]
        for id in sorted(ids):
            found = await _find_checkpoint(other, _config(source, id))
            if found is None:
                continue
            if id not in known:
                parent = get_checkpoint_id(found.parent_config) if found.parent_config else None
                await self._put_imported(target, found, parent)
            for task, path, writes in _group_writes(found.pending_writes or []):
                await self.aput_writes(_config(target, id), writes, task, path)
        return len(set(ids) - known)

    async def _merge_ahead(self, source: ThreadNamespace, target: ThreadNamespace) -> None:
        """Put the writes of a namespace whose checkpoint was not put yet: no list of checkpoints has them."""
        async with self._journals.reading(source) as journal:
            ids = journal.thread.index.list_ahead()
        for id in ids:
            pending = await self._read(source, {}, partial(_read_pending, id))
            for task, path, writes in _group_writes(pending):
                await self.aput_writes(_config(target, id), writes, task, path)

    async def _put_imported(
        self, target: ThreadNamespace, found: CheckpointTuple, parent: str | None
    ) -> None:
        checkpoint, metadata = found.checkpoint, found.metadata

        def put(thread: ThreadState) -> EntryToWrite:
            return thread.put(checkpoint, metadata, thread.changed(checkpoint, parent), parent)

        await self._journals.append(target, put, lambda thread: thread.load_for_put(checkpoint, None, parent))

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
        return self._sync.loop.iterate(self.alist(config, filter=filter, before=before, limit=limit))

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
        """Stop the thread of the sync methods, and close the store if it was opened by this object.

        A store that was given stays open.
        """
        self._sync.end()
        self._stack.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._sync.loop.wait(work)

    # -- the rest ------------------------------------------------------------------------------------

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A greater version, never the same in two branches of a thread."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{randomness.random():016}"

    async def _read(
        self,
        namespace: ThreadNamespace,
        blobs: dict[str, Shared],
        read: Callable[[ThreadJournal, bool], T],
    ) -> T:
        """What `read` finds in the thread as it is now, after the blobs that it needs were fetched.

        `blobs` has those that were fetched before, and then those that were needed. `read` is called first to
        find out which: its second argument says whether its result is used.
        """
        while True:
            async with self._journals.reading(namespace) as journal:
                try:
                    missing, found = await self._journals.compute(
                        journal, partial(self._read_if_there, journal, blobs, read)
                    )
                except Outdated:
                    continue
                if found is not None:
                    return found[0]
            # Not while the thread is locked: it may take long.
            blobs.update(await self._journals.fetch(namespace, missing))

    def _read_if_there(
        self, journal: ThreadJournal, blobs: dict[str, Shared], read: Callable[[ThreadJournal, bool], T]
    ) -> tuple[set[str], tuple[T] | None]:
        """The blobs that are missing, or what `read` finds."""
        values = journal.thread.values
        with values.by(self.serde):
            wanted = values.find_blobs(partial(read, journal, False))
            missing = wanted - blobs.keys()
            if missing:
                return missing, None
            for digest in blobs.keys() - wanted:
                del blobs[digest]
            with values.with_blobs(blobs):
                return missing, (read(journal, True),)

    async def _matches(self, namespace: ThreadNamespace, id: str, filter: dict[str, Any]) -> bool:
        def look(journal: ThreadJournal) -> bool:
            if id not in journal.thread.checkpoints:
                return False
            metadata = journal.thread.metadata(id)
            return all(metadata.get(key) == value for key, value in filter.items())

        return await self._journals.read(namespace, look)

    async def _list_namespaces(self, config: RunnableConfig | None) -> Sequence[ThreadNamespace]:
        if config is None:
            return await self._journals.list_namespaces()
        if "checkpoint_ns" in config["configurable"]:
            return [_namespace_of(config)]
        return await self._journals.list_namespaces(str(config["configurable"]["thread_id"]))


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


class _Nothing:
    """Can be awaited, and need not be."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


def _read_conn_string(conn_string: str) -> str | Path:
    """What a connection string of LangGraph's own savers names: a URL, or the path of a SQLite file."""
    if conn_string == ":memory:":
        return "memory:"
    if re.match(r"\s*\w+\s*=", conn_string):
        # libpq's other form. It may hold a password, and is not shown.
        raise BadUrl("a connection string is a path, or 'postgresql://user:password@host:5432/database'")
    # A single letter before the colon is a drive of Windows.
    is_url = not conn_string or re.match(r"[A-Za-z0-9+]{2,}:", conn_string)
    return conn_string if is_url else Path(conn_string)


def _namespace_of(config: RunnableConfig) -> ThreadNamespace:
    given = config["configurable"]
    return ThreadNamespace(str(given["thread_id"]), given.get("checkpoint_ns") or "")


def _config(namespace: ThreadNamespace, id: str | None = None) -> RunnableConfig:
    given = {"thread_id": namespace.thread, "checkpoint_ns": namespace.ns}
    return {"configurable": given if id is None else {**given, "checkpoint_id": id}}


def _find_tuple(journal: ThreadJournal, id: str, *, keep: bool) -> CheckpointTuple | None:
    thread, namespace = journal.thread, journal.key
    if id not in thread.checkpoints:
        return None
    parent = thread.index.parents[id]
    return CheckpointTuple(
        config=_config(namespace, id),
        checkpoint=thread.checkpoint(id, keep=keep),
        metadata=thread.metadata(id),
        parent_config=_config(namespace, parent) if parent else None,
        pending_writes=thread.pending(id),
    )


def _find_listed(id: str, journal: ThreadJournal, is_final: bool) -> CheckpointTuple | None:
    return _find_tuple(journal, id, keep=False)


def _read_pending(id: str, journal: ThreadJournal, is_final: bool) -> list[PendingWrite]:
    return journal.thread.pending(id)


def _keep_latest(thread: ThreadState) -> set[str]:
    latest = thread.latest()
    return set() if latest is None else thread.needed([latest])


def _group_writes(writes: Sequence[PendingWrite]) -> Iterator[tuple[str, str, Sequence[tuple[str, Any]]]]:
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


async def _iter_checkpoints(
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


async def _find_checkpoint(other: BaseCheckpointSaver[Any], config: RunnableConfig) -> CheckpointTuple | None:
    try:
        return await other.aget_tuple(config)
    except NotImplementedError:
        return await anyio.to_thread.run_sync(other.get_tuple, config)
