"""The store as applications see it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Literal, get_args

import anyio
from anyio import to_thread

from ..blobs.blob import Blob, BlobData, Collected, OpenBlob, as_media, list_blob, open_blob, put_blob
from ..blobs.home import BlobContext, BlobHome
from ..blobs.home_url import OpenHome, find_home
from ..blobs.public_urls import PublicUrls, check_urls
from ..content.encode import Sizes
from ..content.references import get_digest
from ..core.codec import open_line, parse
from ..core.diff import Diff, compare
from ..core.entries import Entry, InboxCancel, Parent, RunStarted, SessionOpened, SessionStatus, Verdict
from ..core.fold import RUN_ENDS, Checkpoint, RunInfo
from ..core.head import Head
from ..core.session_state import Overview, SessionState
from ..core.values import Codec
from ..drivers.contract import Append, Driver, HeadFilter, RunCursor, RunLines, Tip
from ..drivers.url import OpenDriver, Place, find_driver
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
from ..session.lease import append_to
from ..session.session import Session
from ..system.aio import run_to_end
from ..telemetry import look
from .approvals import Answered, Doubt, decide, gone_doubts, open_doubts, resolve, resolve_operation
from .blob_gc import References, collect
from .deletion import delete, erase
from .work_queue import WorkerInfo, list_workers

log = logging.getLogger("holdfast")


def open_store(
    url: Place | None = None,
    *,
    blobs: str | BlobHome | None = None,
    blob_urls: PublicUrls | None = None,
    create: bool = True,
    schema: str | None = None,
    lease_s: float = LEASE_TERM_S,
    linger_s: float = LINGER_S,
    codecs: Iterable[Codec] = (),
    inline_bytes: int | None = INLINE_BYTES,
    result_chars: int | None = RESULT_CHARS,
) -> Store:
    """The store that `url` names: `memory:`, `dir:PATH`, `sqlite:PATH` or `postgresql://…`; or a `Path`
    (SQLite), a `psycopg_pool.ConnectionPool` (PostgreSQL), a driver.

    Without a URL, `HOLDFAST_STORE` is read. Use it as `async with open_store(…) as store`. `blobs` is the
    home of large content (`s3://bucket/prefix`, or what `open_home` gave), by default the store's own;
    `blob_urls` says how the world reaches it. With `create=False`, a missing store is `NotFound`. `schema` is
    where PostgreSQL has the tables (`holdfast`). `lease_s` is how long a silent process is believed alive;
    `linger_s` how long a line that nobody waits for may stay in memory. Binary content of `inline_bytes` or
    more, and the text of a tool's result beyond `result_chars`, is kept as a blob; None keeps all of it in
    the journal.
    """
    if lease_s <= 0 or linger_s < 0:
        raise BadInput(f"lease_s={lease_s} must be positive and linger_s={linger_s} not negative")
    sizes = Sizes(inline_bytes=inline_bytes, result_chars=result_chars)
    if blob_urls is not None:
        check_urls(blob_urls)
    open_driver = find_driver(url, create=create, schema=schema)
    open_home = find_home(blobs, create=create)
    make = partial(
        Engine, blob_urls=blob_urls, lease_s=lease_s, linger_s=linger_s, codecs=codecs, sizes=sizes
    )
    return Store(lambda: _open_both(open_driver, open_home), lambda driver, home: make(driver, home=home))


def _open_both(open_driver: OpenDriver, open_home: OpenHome) -> tuple[Driver, BlobHome]:
    look()  # In this thread: the first look reads files.
    driver = open_driver()
    try:
        return driver, open_home(driver)
    except BaseException:
        driver.close()
        raise


def _close_both(opened: tuple[Driver, BlobHome]) -> None:
    driver, home = opened
    home.close()
    driver.close()


class Store:
    """Many sessions in one place. Made by `open_store`."""

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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what is left and let go. Safe to call twice."""
        if self._opened is not None:
            await self._opened.close()

    @property
    def _engine(self) -> Engine:
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
        """Open a session, or make it: `async with store.session("order-42") as session`.

        Takes the lease; `LeaseHeld` says who has it if that is somebody else who may be alive, after
        `wait_s`. `labels` and `parent` are for a session that is new.
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
        """The state of a session now, or at a version. Needs no lease and changes nothing."""
        return await self._engine.call(self._load, session_id(session), version)

    def _load(self, session: SessionId, version: int | None) -> SessionState:
        while True:
            journal = Journal(self._engine.driver, session, self._engine.blobs)
            state = latest = journal.fold()
            if version is not None:
                state = journal.fold(latest.get_checkpoint(version).seq)
            # A version of a fork may be its origin's.
            if version is None or journal.is_there():
                break
        state.decoder = self._engine.values
        return state

    async def head(self, session: str) -> Head:
        """What listings say of a session, without folding it."""
        return await self._engine.call(self._head, session_id(session))

    def _head(self, session: SessionId) -> Head:
        tip = self._engine.driver.find_tip(session)
        if tip is None:
            raise NotFound(f"no session {session!r}")
        return self._find_head(tip)

    async def is_held(self, head: Head) -> bool:
        """Whether somebody who may be alive drives the session."""
        return await self._engine.call(self._is_held, head)

    def _is_held(self, head: Head) -> bool:
        return head.lease is not None and self._engine.heartbeat.judge(head.lease.holder).alive

    async def overview(self, session: str) -> Overview:
        """A session at a glance, without reading its whole transcript."""
        id = session_id(session)
        journal = await self._engine.call(Journal, self._engine.driver, id, self._engine.blobs)
        return await self._engine.call(journal.overview)

    async def checkpoints(self, session: str) -> AsyncIterator[Checkpoint]:
        """The versions of a session, oldest first."""
        for one in (await self.load(session)).checkpoints:
            yield one

    async def drop(self, session: str, version: int, *, wait_s: float = 0) -> None:
        """No longer offer a version. Resuming and the other versions are not harmed."""
        async with self.session(session, wait_s=wait_s, create=False) as opened:
            await opened.drop(version)

    async def diff(self, session: str, a: int, b: int) -> Diff:
        """What changed from version `a` to version `b`."""
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
        """A new session that starts from a version (the latest) of another; its id.

        History is shared, not copied. What the origin spent, ran and was sent stays the origin's.
        """
        target = None if into is None else session_id(into)
        return await self._engine.call(
            fork, self._engine, session_id(session), version, target, check_labels(labels or {})
        )

    # -- others than the holder ---------------------------------------------------------------------

    async def submit(
        self, session: str, message: str | Message | ForeignMessage | Json, *, agent: str | None = None,
        format: str | None = None, key: str | None = None, labels: Mapping[str, str] | None = None,
    ) -> int:  # fmt: skip
        """Send a message to a session, whoever holds it; its number in the inbox. Durable on return.

        The holder takes it in at the end of its step; if there is none, a `Worker` that knows the session's
        agent takes it up. `agent` names another one. Only then is a session made that does not exist, with
        these `labels`. Equal keys are one submission.
        """
        name = None if agent is None else check_name("agent", agent)
        found = as_message(message, format)
        content = await self._engine.pack_message(found)
        item = message_item(found, content, key=key, agent=name)
        return await _submit(self._engine, session_id(session), item, name, check_labels(labels or {}))

    async def cancel(self, session: str, *, by: str = "", reason: str = "") -> int:
        """Ask whoever drives the session to stop. Durable on return."""
        return await self._post(session, encode_item(InboxCancel(by=by, reason=reason)))

    async def in_doubt(self) -> AsyncIterator[Doubt]:
        """Calls of all sessions that were issued and of which nobody knows the outcome.

        Those of deleted sessions have an `operation`: one of scope `global`, or the key of an effect that a
        fork shares. Say what became of it with `resolve_operation`.
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

        On record with who said so. Whoever holds the session takes it in; nobody needs to.
        """
        return await resolve(self, session_id(session), call, verdict, by, note, result)

    async def resolve_operation(
        self, operation: str, verdict: OperationVerdict, *, by: str, note: str = "", result: Json = None
    ) -> Answered:
        """Say what became of a `global` operation whose session was deleted in the middle of it, or of an
        effect that forks of that session share, by its key.

        A result that is blocked by one names it, and `in_doubt` lists it. On record with the claim, with who
        said so. `landed`: every session gets the result; `not_landed`: the next one does it.
        """
        return await resolve_operation(self._engine, operation, verdict, by, note, result)

    async def approve(
        self, session: str, call: str | int, *, by: str, args: Json = None, note: str = ""
    ) -> Answered:
        """Agree to a call that waits, perhaps with corrected arguments. Both are on record."""
        id = session_id(session)
        return await decide(self, id, call, by, note, approved=True, args=args)

    async def refuse(self, session: str, call: str | int, *, by: str, reason: str = "") -> Answered:
        """Do not agree to a call that waits; the model is told why."""
        id = session_id(session)
        return await decide(self, id, call, by, reason, approved=False, args=None)

    async def _post(self, session: str, item: bytes) -> int:
        return await self._engine.call(self._engine.driver.post, session_id(session), item)

    async def tail(self, session: str, *, after: int = 0, follow: bool = True) -> AsyncGenerator[Entry, None]:
        """The entries of a session as they become durable, from any process.

        Without `follow` it ends after those that are there; with it, when the session is deleted: a new one
        of the same id is another session. A caller that stops earlier closes it (`aclosing`).
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

    async def sessions(
        self,
        *,
        status: SessionStatus | None = None,
        parent: str | None = None,
        label: Mapping[str, str] | None = None,
        interrupted: bool | None = None,
        on_damaged: Callable[[SessionId, HoldfastError], object] | None = None,
    ) -> AsyncIterator[Head]:
        """Sessions in the order of their ids. `interrupted`: the last run has no end and nobody drives it.

        A damaged session of which nothing can be told is left out, and hides no other: `on_damaged` is called
        with its id and what is wrong; without it, that is logged.
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

    async def runs(self, *, session: str | None = None, parent: str | None = None) -> AsyncIterator[RunInfo]:
        """Runs, oldest first; of one session, of one parent run, or of all. Filters combine."""
        id = None if session is None else session_id(session)
        after: RunCursor | None = None
        while True:
            rows = await self._engine.call(self._engine.driver.list_runs, id, after, PAGE_ROWS)
            for run in await self._engine.call(
                partial(_read_runs, self._engine, rows, strict=id is not None)
            ):
                if parent is None or (run.parent is not None and run.parent.run == parent):
                    yield run
            if len(rows) < PAGE_ROWS:
                return
            after = rows[-1].cursor

    async def workers(self) -> AsyncIterator[WorkerInfo]:
        """Who works on the store's sessions, with what they last told of themselves."""
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
        """Keep bytes, a file or a stream under their digest. Durable on return.

        Equal bytes are stored once, and the first description wins. A blob that nobody refers to is collected
        some day: show it in a message, as `store.media(blob)`.
        """
        context = BlobContext(media_type=media_type, file_name=name, metadata=dict(metadata or {}))
        return await put_blob(self._engine, data, context)

    def media(self, blob: Blob) -> Media:
        """A block for a message that shows the blob, without reading it."""
        return as_media(blob, self._engine.blobs)

    @asynccontextmanager
    async def open_blob(self, reference: str) -> AsyncIterator[OpenBlob]:
        """Read a blob, in parts or as a whole: `async with store.open_blob(reference) as blob`.

        `reference` is `media+sha256://<hex>` or the digest alone. `NotFound` if it is not there, `Corrupt` at
        the end if its bytes are others by now.
        """
        yield await open_blob(self._engine, reference)

    async def find_blob_url(self, reference: str) -> str | None:
        """A URL at which the world can read the blob; None if it is not there, or there is none for it.

        What `blob_urls` says, or a signed URL where the home is an object store.
        """
        return await self._engine.blobs.link(get_digest(reference))

    async def read_blob(self, reference: str) -> AsyncIterator[bytes]:
        """The bytes of a blob, in parts."""
        async with self.open_blob(reference) as blob:
            async for part in blob:
                yield part

    async def blobs(self, *, sessions: bool = False) -> AsyncIterator[Blob]:
        """All blobs in the order of their digests; with `sessions`, who refers to each: every journal of the
        store is read for that."""
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

        What was put within the last `grace_s` stays. A grace below half an hour is for a store that nobody
        else has open, which `alone` says. A line that cannot be read stops it, and so does a home that is
        another store's.
        """
        return await self._engine.call_home(
            partial(collect, self._engine, grace_s=grace_s, dry_run=dry_run, alone=alone)
        )

    # -- removing -----------------------------------------------------------------------------------

    async def clean(
        self, session: str, *, transcript: bool = True, checkpoints: bool = True, wait_s: float = 0
    ) -> Literal["deleted", "cleaned"]:
        """Erase what messages and results said, drop all versions, or (both) delete the session.

        Digests stay in place of what was erased. Bodies that a fork refers to stay, and so does the ledger
        of a session that lives on.
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
        """Remove a session. Lines that a fork shares stay for the fork; the id is free at once."""
        await self.clean(session, wait_s=wait_s)


def _log_damaged(session: SessionId, error: HoldfastError) -> None:
    log.warning("session %s is left out of the list: %s", session, error)


def _page(journal: Journal, after: int) -> list[Entry] | None:
    return journal.page(after, PAGE_ROWS)


async def _submit(
    engine: Engine, session: SessionId, item: bytes, agent: str | None, labels: Mapping[str, str]
) -> int:
    """Post the item; its number. Who names an agent has the session made."""
    while True:
        try:
            return await engine.call(engine.driver.post, session, item)
        except NotFound as missing:
            if agent is None:
                raise NotFound(
                    f"no session {session!r}; submit(…, agent=…) makes one for an agent to work on"
                ) from missing
        # If the process dies in between, there is an empty session: submitting again goes on with it.
        await engine.call(_make_session, engine, session, agent, dict(labels))


def _make_session(engine: Engine, session: SessionId, agent: str, labels: dict[str, str]) -> None:
    state = SessionState(session)
    sealed = append_to(state, SessionOpened(uid=fresh_uid(), labels=labels, agent=agent), engine)
    head = state.facts.head
    item = Append(
        session=session,
        after=None,
        first_seq=sealed.entry.seq,
        lines=(sealed.line,),
        kinds=(sealed.entry.kind,),
        head=head,
    )
    engine.committer.commit_now(item)  # Whoever else made it meanwhile made it just as well.


def _read_runs(engine: Engine, rows: Iterable[RunLines], *, strict: bool) -> list[RunInfo]:
    """What the lines tell of each run. Without `strict`, those of damaged sessions are left out. Blocks."""
    runs: list[RunInfo] = []
    for row in rows:
        try:
            runs.append(_read_run(engine, row))
        except Corrupt as error:
            if strict:
                raise
            log.warning("a run is left out of the list: %s", error)
    return runs


def _read_run(engine: Engine, row: RunLines) -> RunInfo:
    session = row.cursor.session
    where = f"session {session!r}"
    started = open_line(parse(row.started, where), where)
    body = started.body
    if not isinstance(body, RunStarted):
        raise Corrupt(where, "it begins no run", seq=started.seq)
    run = RunInfo(
        run=started.run or "",
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
        ended = open_line(parse(row.ended, where), where)
        if type(ended.body) not in RUN_ENDS:
            raise Corrupt(where, "it ends no run", seq=ended.seq)
        run.status, run.ended_at = RUN_ENDS[type(ended.body)][0], ended.at
        run.reason = getattr(ended.body, "reason", "")
    else:
        facts = Journal(engine.driver, session).fold().facts
        lease = facts.head.lease
        live = lease is not None and engine.heartbeat.judge(lease.holder).alive
        open_here = run.run in facts.runs and facts.runs[run.run].status == "running"
        run.status = "running" if live and open_here else "interrupted"
    return run
