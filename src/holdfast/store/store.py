"""The store: sessions, listings, the inbox, answers of people, and blobs."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Literal, get_args

import anyio
from anyio import to_thread
from msgspec.structs import replace

from ..blobs.blob import Blob, BlobData, Collected, OpenBlob, as_media, list_blob, open_blob, put_blob
from ..blobs.home import BlobContext, BlobHome
from ..blobs.home_url import OpenHome, find_home
from ..blobs.public_urls import PublicUrls, check_urls
from ..content.encode import Sizes
from ..content.references import get_digest
from ..core.codec import Page
from ..core.diff import Diff, compare
from ..core.entries import (
    Body,
    Entry,
    InboxCancel,
    Parent,
    RunStarted,
    SessionOpened,
    SessionStatus,
    Verdict,
)
from ..core.fold import RUN_ENDS, Checkpoint, RunInfo
from ..core.head import Head
from ..core.pages import open_page
from ..core.session_state import Overview, SessionState
from ..core.values import Codec
from ..drivers.contract import Driver, HeadFilter, RunChunks, RunCursor, Tip
from ..drivers.read_only import ReadOnlyDriver, reads_only
from ..drivers.url import OpenDriver, StoreAddress, find_driver
from ..engine.committer import make_append
from ..engine.engine import Engine, run_or_undo
from ..engine.journal import Journal
from ..errors import BadInput, Closed, Corrupt, HoldfastError, NewerFormat, NotFound
from ..ids import SessionId, check_labels, check_name, fresh_uid, session_id
from ..limits import (
    BLOB_GRACE_S,
    INLINE_BYTES,
    LEASE_TERM_S,
    LINGER_S,
    PAGE_ROWS,
    RESULT_CHARS,
    TAIL_POLL_MAX_S,
    TAIL_POLL_S,
)
from ..messages import ForeignMessage, Json, Media, Message, as_message
from ..session.cadence import Cadence
from ..session.effect_claims import OperationVerdict
from ..session.fork import fork
from ..session.inbox import encode_item, message_item
from ..session.misuse import AsyncOnly, async_items
from ..session.session import Session
from ..system.aio import run_to_end
from ..telemetry import look
from .approvals import Answered, Doubt, decide, gone_doubts, open_doubts, resolve, resolve_operation
from .blob_gc import References, collect
from .deletion import delete, erase
from .work_queue import WorkerInfo, list_workers

log = logging.getLogger("holdfast")


def open_store(
    url: StoreAddress | None = None,
    *,
    blobs: str | BlobHome | None = None,
    blob_urls: PublicUrls | None = None,
    create: bool = True,
    read_only: bool = False,
    schema: str | None = None,
    lease_s: float = LEASE_TERM_S,
    linger_s: float = LINGER_S,
    codecs: Iterable[Codec] = (),
    inline_bytes: int | None = INLINE_BYTES,
    result_chars: int | None = RESULT_CHARS,
) -> Store:
    """Open the store that `url` names: `async with open_store("sqlite:agents.db") as store`.

    `url` is `memory:`, `dir:PATH`, `sqlite:PATH` or `postgresql://…`; or a `Path` (SQLite), a
    `psycopg_pool.ConnectionPool` (PostgreSQL), or a driver. Without it, `HOLDFAST_STORE` is read.

    `blobs`: the home of large content (`s3://bucket/prefix`, or what `open_home` returned), by default the
    store itself. `blob_urls`: how others reach blobs by URL. `create=False`: a missing store raises
    `NotFound`. `read_only`: nothing is written, neither a lease nor a new schema; what would write raises
    `OpenedToRead`, and a missing store `NotFound`. `schema`: the PostgreSQL schema of the tables
    (`holdfast`). `lease_s`: how long a process without a heartbeat counts as alive. `linger_s`: how long an
    entry may stay in memory if no caller waits for it. Binary content of `inline_bytes` or more, and the text
    of a tool's result beyond `result_chars`, is stored as a blob; None keeps all of it in the journal.
    """
    if lease_s <= 0 or linger_s < 0:
        raise BadInput(f"lease_s={lease_s} must be positive and linger_s={linger_s} not negative")
    sizes = Sizes(inline_bytes=inline_bytes, result_chars=result_chars)
    if blob_urls is not None:
        check_urls(blob_urls)
    open_driver = find_driver(url, create=create, schema=schema, read_only=read_only)
    open_home = find_home(blobs, create=create and not read_only)
    make = partial(
        Engine, blob_urls=blob_urls, lease_s=lease_s, linger_s=linger_s, codecs=codecs, sizes=sizes
    )
    return Store(lambda: _open_both(open_driver, open_home), lambda driver, home: make(driver, home=home))


def _open_both(open_driver: OpenDriver, open_home: OpenHome) -> tuple[Driver, BlobHome]:
    look()  # In this thread: the first call reads files.
    driver = open_driver()
    try:
        return driver, reads_only(driver, open_home(driver))
    except BaseException:
        driver.close()
        raise


def _close_both(opened: tuple[Driver, BlobHome]) -> None:
    driver, home = opened
    home.close()
    driver.close()


class Store(AsyncOnly):
    """A place for many sessions, made by `open_store`. All processes that open the same place share it."""

    _USE = "async with holdfast.open_store(…) as store"
    _USE_BLOCKING = "with holdfast.blocking.open_store(…) as store"

    def __init__(
        self,
        open_both: Callable[[], tuple[Driver, BlobHome]],
        make_engine: Callable[[Driver, BlobHome], Engine],
    ) -> None:
        self._open_both, self._make_engine = open_both, make_engine
        self._opened: Engine | None = None

    async def __aenter__(self) -> Store:
        in_thread = partial(to_thread.run_sync, abandon_on_cancel=True)
        driver, home = await run_or_undo(in_thread, self._open_both, _close_both)
        try:
            self._opened = self._make_engine(driver, home)
        except BaseException:
            await run_to_end(lambda: to_thread.run_sync(_close_both, (driver, home)))
            raise
        return self

    def _open_here(self) -> None:
        """Open it in this thread, which need not have an event loop. `aclose` closes it."""
        opened = self._open_both()
        try:
            self._opened = self._make_engine(*opened)
        except BaseException:
            _close_both(opened)
            raise

    def _to_read(self) -> Store:
        """The same open store, of which nothing is written. It is closed with this one."""
        engine = self._engine
        if isinstance(engine.driver, ReadOnlyDriver):
            return self
        driver = ReadOnlyDriver(engine.driver)
        store = Store(self._open_both, self._make_engine)
        store._opened = self._make_engine(driver, reads_only(driver, engine.home))
        return store

    @property
    def _is_entered(self) -> bool:
        return self._opened is not None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Commit what is left and close the store. Safe to call twice."""
        if self._opened is not None:
            await self._opened.close()

    @property
    def _engine(self) -> Engine:
        """For holdfast's own layers."""
        if self._opened is None:
            raise Closed("the store is not open: use `async with holdfast.open_store(…) as store`")
        return self._opened

    # -- one session --------------------------------------------------------------------------------

    def session(
        self,
        id: str,
        *,
        wait_s: float = 0,
        cadence: Cadence = "step",
        labels: Mapping[str, str] | None = None,
        parent: Parent | None = None,
        create: bool = True,
    ) -> Session:
        """Open a session, or create it: `async with store.session("order-42") as session`.

        Takes the lease. If another holder may be alive, waits up to `wait_s` for it, then raises `LeaseHeld`.
        `labels` and `parent` are used when the session is created; `create=False` raises `NotFound` instead.
        """
        return Session(
            self,
            session_id(id),
            wait_s=wait_s,
            cadence=cadence,
            labels=check_labels(labels or {}),
            parent=parent,
            create=create,
        )

    async def load(self, session: str, version: int | None = None) -> SessionState:
        """Read the state of a session, now or at a version. Takes no lease and changes nothing.

        Messages are read when they are first looked at, or when the store is closed: the state outlives it.
        """
        return await self._engine.call(self._load, session_id(session), version)

    def _load(self, session: SessionId, version: int | None) -> SessionState:
        while True:
            journal = Journal(self._engine.driver, session, self._engine.blobs)
            state = latest = journal.fold()
            if version is not None:
                state = journal.fold(latest.get_checkpoint(version).seq)
            # A version of a fork may be one of its origin.
            if version is None or journal.is_there():
                break
        state.decoder = self._engine.values
        self._engine.snapshots.add(state)
        return state

    async def head(self, session: str) -> Head:
        """Read what listings show of a session, without folding it."""
        return await self._engine.call(self._head, session_id(session))

    def _head(self, session: SessionId) -> Head:
        tip = self._engine.driver.find_tip(session)
        if tip is None:
            raise NotFound(f"no session {session!r}")
        return self._find_head(tip)

    async def is_held(self, head: Head) -> bool:
        """True if the session has a holder that may be alive."""
        return await self._engine.call(self._is_held, head)

    def _is_held(self, head: Head) -> bool:
        return head.lease is not None and self._engine.heartbeat.judge(head.lease.holder).alive

    async def overview(self, session: str) -> Overview:
        """Summarize a session without reading its whole transcript."""
        id = session_id(session)
        journal = await self._engine.call(Journal, self._engine.driver, id, self._engine.blobs)
        return await self._engine.call(journal.overview)

    @async_items
    async def checkpoints(self, session: str) -> AsyncIterator[Checkpoint]:
        """Iterate over the versions of a session, oldest first."""
        for one in (await self.load(session)).checkpoints:
            yield one

    async def drop(self, session: str, version: int, *, wait_s: float = 0) -> None:
        """Drop a version. Other versions, and resuming, are not affected."""
        async with self.session(session, wait_s=wait_s, create=False) as opened:
            await opened.drop(version)

    async def diff(self, session: str, a: int, b: int) -> Diff:
        """Compare version `a` with version `b`."""
        id = session_id(session)
        return await self._engine.call(lambda: compare(self._load(id, a), self._load(id, b)))

    async def fork(
        self,
        session: str,
        *,
        version: int | None = None,
        into: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SessionId:
        """Create a session that starts from a version of another, by default the latest; its id.

        History is shared, not copied. The origin keeps its spending, its runs and its inbox.
        """
        target = None if into is None else session_id(into)
        return await self._engine.call(
            fork, self._engine, session_id(session), version, target, check_labels(labels or {})
        )

    # -- from any process, without the lease ------------------------------------------------------------

    async def submit(
        self, session: str, message: str | Message | ForeignMessage | Json, *, agent: str | None = None,
        format: str | None = None, key: str | None = None, labels: Mapping[str, str] | None = None,
    ) -> int:  # fmt: skip
        """Post a message to the inbox of a session; its number there. Durable on return.

        The holder takes it in at the end of its step. Without a holder, a `Worker` that has the session's
        agent opens the session. `agent` names the agent to use; then a missing session is created, with these
        `labels`. Messages with the same `key` are taken in once.
        """
        name = None if agent is None else check_name("agent", agent)
        found = as_message(message, format)
        content = await self._engine.pack_message(found)
        item = message_item(found, content, key=key, agent=name)
        return await _submit(self._engine, session_id(session), item, name, check_labels(labels or {}))

    async def cancel(self, session: str, *, by: str = "", reason: str = "") -> int:
        """Ask the run of a session to stop. Durable on return."""
        return await self._post(session, encode_item(InboxCancel(by=by, reason=reason)))

    @async_items
    async def in_doubt(self) -> AsyncIterator[Doubt]:
        """Iterate over the calls in doubt of all sessions: issued, and their outcome is unknown.

        A call of a deleted session has an `operation`: one of scope `global`, or the key of an effect that a
        fork shares. Answer it with `resolve_operation`.
        """
        async for head in self._list(HeadFilter(in_doubt=True), None, _log_damaged):
            try:
                doubts = await self._engine.call(open_doubts, self._engine, head.session)
            except (Corrupt, NotFound) as error:
                log.warning("session %s is left out of the list: %s", head.session, error)
                continue
            for doubt in doubts:
                yield doubt
        for doubt in await self._engine.call(gone_doubts, self._engine):
            yield doubt

    async def resolve(
        self,
        session: str,
        call: str | int,
        verdict: Verdict,
        *,
        by: str,
        note: str = "",
        result: Json = None,
    ) -> Answered:
        """Say what became of a call in doubt: `landed` (with its result), `not_landed` or `gave_up`.

        The verdict and `by` are recorded, by the holder of the session, or here if there is none.
        """
        return await resolve(self, session_id(session), call, verdict, by, note, result)

    async def resolve_operation(
        self, operation: str, verdict: OperationVerdict, *, by: str, note: str = "", result: Json = None
    ) -> Answered:
        """Say what became of an operation whose session was deleted while it was in doubt.

        `operation` is a `global` one, or the key of an effect that forks of that session share: `in_doubt`
        lists it, and a call that it blocks names it. The verdict and `by` are recorded with the claim.
        `landed`: every session gets the result; `not_landed`: the next session runs it.
        """
        return await resolve_operation(self._engine, operation, verdict, by, note, result)

    async def approve(
        self, session: str, call: str | int, *, by: str, args: Json = None, note: str = ""
    ) -> Answered:
        """Approve a call that waits, perhaps with corrected arguments. Both versions are recorded."""
        id = session_id(session)
        return await decide(self, id, call, by, note, approved=True, args=args)

    async def refuse(self, session: str, call: str | int, *, by: str, reason: str = "") -> Answered:
        """Refuse a call that waits. The model is told the reason."""
        id = session_id(session)
        return await decide(self, id, call, by, reason, approved=False, args=None)

    async def _post(self, session: str, item: bytes) -> int:
        return await self._engine.call(self._engine.driver.post, session_id(session), item)

    @async_items
    async def tail(self, session: str, *, after: int = 0, follow: bool = True) -> AsyncGenerator[Entry, None]:
        """Iterate over the entries of a session as they become durable.

        Ends after the last entry; with `follow`, when the session is deleted, even if another one is created
        under its id. A caller that stops earlier closes the iterator (`aclosing`).
        """
        id = session_id(session)
        journal = await self._engine.call(Journal, self._engine.driver, id)
        pause_s = TAIL_POLL_S
        while True:
            entries = await self._engine.call(_page, journal, after)
            if entries is None:
                return
            for entry in entries:
                after = entry.seq
                yield entry
            if entries:
                pause_s = TAIL_POLL_S
            elif not follow:
                return
            else:
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, TAIL_POLL_MAX_S)

    # -- listings -----------------------------------------------------------------------------------

    @async_items
    async def sessions(
        self,
        *,
        status: SessionStatus | None = None,
        parent: str | None = None,
        label: Mapping[str, str] | None = None,
        interrupted: bool | None = None,
        on_damaged: Callable[[SessionId, HoldfastError], object] | None = None,
    ) -> AsyncIterator[Head]:
        """Iterate over sessions in the order of their ids.

        `interrupted`: the last run has no end and no live holder. A session that is too damaged to list is
        left out: `on_damaged` is called with its id and the error, which is logged by default.
        """
        if status is not None and status not in get_args(SessionStatus):
            raise BadInput(f"no such status: {status!r}")
        wanted = HeadFilter(
            status=status,
            parent=None if parent is None else session_id(parent),
            labels=check_labels(label or {}),
            open_run=True if interrupted else None,
        )
        async for head in self._list(wanted, interrupted, on_damaged or _log_damaged):
            yield head

    async def _list(
        self,
        wanted: HeadFilter,
        interrupted: bool | None,
        on_damaged: Callable[[SessionId, HoldfastError], object],
    ) -> AsyncIterator[Head]:
        after: SessionId | None = None
        while True:
            tips = await self._engine.call(self._engine.driver.list_tips, wanted, after, PAGE_ROWS)
            for tip, head in await self._engine.call(self._heads, tips, wanted, interrupted):
                if isinstance(head, Head):
                    yield head
                else:
                    on_damaged(tip.session, head)
            if len(tips) < PAGE_ROWS:
                return
            after = tips[-1].session

    def _heads(
        self, tips: Iterable[Tip], wanted: HeadFilter, interrupted: bool | None
    ) -> list[tuple[Tip, Head | HoldfastError]]:
        found: list[tuple[Tip, Head | HoldfastError]] = []
        for tip in tips:
            try:
                head = self._find_head(tip)
                if wanted.matches(head) and interrupted in (None, self._is_interrupted(head)):
                    found.append((tip, head))
            except NotFound:
                continue  # Deleted since.
            except (Corrupt, NewerFormat) as error:
                found.append((tip, error))
        return found

    def _find_head(self, tip: Tip) -> Head:
        if tip.damage is not None:
            raise tip.damage
        return tip.head or Journal(self._engine.driver, tip.session).fold().facts.head

    def _is_interrupted(self, head: Head) -> bool:
        return head.open_run is not None and not self._is_held(head)

    @async_items
    async def runs(self, *, session: str | None = None, parent: str | None = None) -> AsyncIterator[RunInfo]:
        """Iterate over runs, oldest first: of one session, of one parent run, or all. Filters combine."""
        id = None if session is None else session_id(session)
        after: RunCursor | None = None
        while True:
            rows = await self._engine.call(self._engine.driver.list_runs, id, after, PAGE_ROWS)
            for run in await self._engine.call(partial(_read_runs, self._engine, rows, id)):
                if parent is None or (run.parent is not None and run.parent.run == parent):
                    yield run
            if len(rows) < PAGE_ROWS:
                return
            after = rows[-1].cursor

    @async_items
    async def workers(self) -> AsyncIterator[WorkerInfo]:
        """Iterate over the workers of the store, each as it last described itself."""
        for one in await self._engine.call(list_workers, self._engine):
            yield one

    # -- blobs ---------------------------------------------------------------------------------------

    async def put_blob(
        self,
        data: BlobData,
        *,
        media_type: str = "application/octet-stream",
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Blob:
        """Store bytes, a file or a stream under their digest. Durable on return.

        Equal bytes are stored once, with their first description. `collect_blobs` removes a blob that no
        session refers to: show it in a message, as `store.media(blob)`.
        """
        context = BlobContext(media_type=media_type, file_name=name, metadata=dict(metadata or {}))
        return await put_blob(self._engine, data, context)

    def media(self, blob: Blob) -> Media:
        """Make a message block that shows the blob, without reading it."""
        return as_media(blob, self._engine.blobs)

    @asynccontextmanager
    async def open_blob(self, reference: str) -> AsyncIterator[OpenBlob]:
        """Read a blob, in parts or as a whole: `async with store.open_blob(reference) as blob`.

        `reference` is `media+sha256://<hex>` or the digest alone. Raises `NotFound` if it is missing, and
        `Corrupt` at the end if its bytes do not match the digest.
        """
        yield await open_blob(self._engine, reference)

    async def find_blob_url(self, reference: str) -> str | None:
        """Find a URL for reading the blob from elsewhere; None if the blob is missing or has no URL.

        `blob_urls` makes it, or it is a signed URL of the object store that is the home.
        """
        return await self._engine.blobs.link(get_digest(reference))

    @async_items
    async def read_blob(self, reference: str) -> AsyncIterator[bytes]:
        """Iterate over the bytes of a blob, in parts."""
        async with self.open_blob(reference) as blob:
            async for part in blob:
                yield part

    @async_items
    async def blobs(self, *, sessions: bool = False) -> AsyncIterator[Blob]:
        """Iterate over all blobs in the order of their digests.

        With `sessions`, each names the sessions that refer to it; this reads every journal of the store.
        """
        referring = (await self._engine.call_home(References(self._engine).find)).of if sessions else {}
        after: str | None = None
        while True:
            page = await self._engine.call_home(self._engine.home.list_blobs, after, PAGE_ROWS)
            for one in page:
                after = one.digest
                yield list_blob(one, referring.get(one.digest, ()))
            if len(page) < PAGE_ROWS:
                return

    async def collect_blobs(
        self, *, grace_s: float = BLOB_GRACE_S, dry_run: bool = True, alone: bool = False
    ) -> Collected:
        """Find blobs that no session, version, fork or inbox refers to; with `dry_run=False`, remove them.

        Blobs that were put within the last `grace_s` stay. A grace below half an hour needs `alone=True`: no
        other process has the store open. Fails at an unreadable line, and if the home belongs to another
        store.
        """
        return await self._engine.call_home(
            partial(collect, self._engine, grace_s=grace_s, dry_run=dry_run, alone=alone)
        )

    # -- removing -----------------------------------------------------------------------------------

    async def clean(
        self, session: str, *, transcript: bool = True, checkpoints: bool = True, wait_s: float = 0
    ) -> Literal["deleted", "cleaned"]:
        """Erase the contents of messages and results, drop all versions, or (both) delete the session.

        Digests replace erased contents. Contents that a fork refers to stay, and so does the ledger unless
        the session is deleted.
        """
        async with self.session(session, wait_s=wait_s, create=False) as opened:
            if transcript and checkpoints:
                await run_to_end(lambda: delete(self._engine, opened))
                return "deleted"
            if transcript:
                await run_to_end(lambda: erase(self._engine, opened))
            if checkpoints:
                for one in opened.checkpoints:
                    await opened.drop(one.version)
            return "cleaned"

    async def delete(self, session: str, *, wait_s: float = 0) -> None:
        """Delete a session. Its forks keep the entries that they share; its id can be used again at once."""
        await self.clean(session, wait_s=wait_s)


def _log_damaged(session: SessionId, error: HoldfastError) -> None:
    log.warning("session %s is left out of the list: %s", session, error)


def _page(journal: Journal, after: int) -> list[Entry] | None:
    return journal.page(after, PAGE_ROWS)


async def _submit(
    engine: Engine, session: SessionId, item: bytes, agent: str | None, labels: Mapping[str, str]
) -> int:
    """Post the item; its number. With an `agent`, create a missing session."""
    while True:
        try:
            return await engine.call(engine.driver.post, session, item)
        except NotFound as missing:
            if agent is None:
                raise NotFound(
                    f"no session {session!r}; submit(…, agent=…) makes one for an agent to work on"
                ) from missing
        # A crash in between leaves an empty session, which the next submission uses.
        await engine.call(_make_session, engine, session, agent, dict(labels))


def _make_session(engine: Engine, session: SessionId, agent: str, labels: dict[str, str]) -> None:
    state = SessionState(session)
    opened = SessionOpened(id=session, uid=fresh_uid(), labels=labels, agent=agent)
    entry = state.append(opened, engine.now())
    # A conflict means that another process has just made the session, which is as good.
    engine.committer.commit_now(make_append([entry], after=None, head=replace(state.facts.head)))


def _read_runs(engine: Engine, rows: Sequence[RunChunks], of: SessionId | None) -> list[RunInfo]:
    """Decode runs: of one session, or of all but those that are damaged. Blocks."""
    runs: list[RunInfo] = []
    if of is not None and rows:
        try:
            Journal(engine.driver, of)  # `Corrupt` if it is that of another session.
        except NotFound:
            return []
    for row in rows:
        try:
            runs.append(_read_run(engine, row))
        except Corrupt as error:
            if of is not None:
                raise
            log.warning("a run is left out of the list: %s", error)
    return runs


def _read_run(engine: Engine, row: RunChunks) -> RunInfo:
    session = row.cursor.session
    where = f"session {session!r}"
    started = _find_of_run(row.started, row.run, (RunStarted,), where)
    body = started.body
    assert isinstance(body, RunStarted)
    run = RunInfo(
        run=row.run,
        session=session,
        started_at=started.at,
        agent=body.agent,
        model=body.model,
        parent=body.parent,
        continues=body.continues,
        config=body.config,
        trace=body.trace,
    )
    if row.ended is not None:
        ended = _find_of_run(row.ended, row.run, RUN_ENDS, where)
        run.status, run.ended_at = RUN_ENDS[type(ended.body)][0], ended.at
        run.reason = getattr(ended.body, "reason", "")
    else:
        facts = Journal(engine.driver, session).fold().facts
        lease = facts.head.lease
        live = lease is not None and engine.heartbeat.judge(lease.holder).alive
        open_here = run.run in facts.runs and facts.runs[run.run].status == "running"
        run.status = "running" if live and open_here else "interrupted"
    return run


def _find_of_run(page: Page, run: str, kinds: Container[type[Body]], where: str) -> Entry:
    """The last entry of a page that is of one of these kinds and of this run."""
    found = [one for one in open_page(page, where) if one.run == run and type(one.body) in kinds]
    if not found:
        raise Corrupt(where, f"run {run!r} neither begins nor ends where the store says so")
    return found[-1]
