"""The store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from ..blobs import blob as async_blobs
from ..blobs.blob import Blob, BlobData, Collected
from ..blobs.home import BlobHome
from ..blobs.public_urls import PublicUrls
from ..core.diff import Diff
from ..core.entries import Entry, Parent, SessionStatus, Verdict
from ..core.fold import Checkpoint, RunInfo
from ..core.head import Head
from ..core.session_state import Overview, SessionState
from ..core.values import Codec
from ..drivers.url import StoreAddress
from ..errors import HoldfastError
from ..ids import SessionId
from ..limits import BLOB_GRACE_S, INLINE_BYTES, LEASE_TERM_S, LINGER_S, RESULT_CHARS
from ..messages import ForeignMessage, Json, Media, Message
from ..session.cadence import Cadence
from ..session.effect_claims import OperationVerdict
from ..store import store as async_store
from ..store.approvals import Answered, Doubt
from ..store.work_queue import WorkerInfo
from .loop import Loop, start_loop
from .session import Session


@contextmanager
def open_store(
    url: StoreAddress | None = None,
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
) -> Iterator[Store]:
    """The store that `url` names, as in `holdfast.open_store`: `with blocking.open_store(…) as store`."""
    opening = async_store.open_store(
        url,
        blobs=blobs,
        blob_urls=blob_urls,
        create=create,
        schema=schema,
        lease_s=lease_s,
        linger_s=linger_s,
        codecs=codecs,
        inline_bytes=inline_bytes,
        result_chars=result_chars,
    )
    with start_loop() as loop, loop.inside(opening) as store:
        yield Store(loop, store)


class OpenBlob:
    """A blob to be read: `for part in blob`, once; `blob.read()` gives all of it."""

    def __init__(self, loop: Loop, blob: async_blobs.OpenBlob) -> None:
        self._loop, self._blob, self.blob = loop, blob, blob.blob

    def __iter__(self) -> Iterator[bytes]:
        return self._loop.iterate(aiter(self._blob))

    def read(self) -> bytes:
        """All of it, checked."""
        return self._loop.wait(self._blob.read())


class Store:
    """`holdfast.Store` without an event loop. Threads may share it."""

    def __init__(self, loop: Loop, store: async_store.Store) -> None:
        self._loop, self._store = loop, store

    @property
    def loop(self) -> Loop:
        """The event loop that does the work; for the layers above."""
        return self._loop

    @property
    def as_async(self) -> async_store.Store:
        """The store itself; for the layers above."""
        return self._store

    @contextmanager
    def session(
        self,
        id: str,
        *,
        wait_s: float = 0,
        cadence: Cadence = "step",
        labels: Mapping[str, str] | None = None,
        parent: Parent | None = None,
        create: bool = True,
    ) -> Iterator[Session]:
        """Open a session, or make it: `with store.session("order-42") as session`."""
        opening = self._store.session(
            id, wait_s=wait_s, cadence=cadence, labels=labels, parent=parent, create=create
        )
        with self._loop.inside(opening) as session:
            yield Session(self._loop, session)

    def put_blob(
        self,
        data: BlobData,
        *,
        media_type: str = "application/octet-stream",
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Blob:
        """Keep bytes, a file or a stream under their digest."""
        return self._loop.wait(
            self._store.put_blob(data, media_type=media_type, name=name, metadata=metadata)
        )

    def media(self, blob: Blob) -> Media:
        """A block for a message that shows the blob, without reading it."""
        return self._store.media(blob)

    @contextmanager
    def open_blob(self, reference: str) -> Iterator[OpenBlob]:
        """Read a blob, in parts or as a whole: `with store.open_blob(reference) as blob`."""
        with self._loop.inside(self._store.open_blob(reference)) as found:
            yield OpenBlob(self._loop, found)

    def read_blob(self, reference: str) -> Iterator[bytes]:
        """The bytes of a blob, in parts."""
        return self._loop.iterate(self._store.read_blob(reference))

    def blobs(self, *, sessions: bool = False) -> Iterator[Blob]:
        """All blobs; with `sessions`, who refers to each."""
        return self._loop.iterate(self._store.blobs(sessions=sessions))

    def collect_blobs(
        self, *, grace_s: float = BLOB_GRACE_S, dry_run: bool = True, alone: bool = False
    ) -> Collected:
        """Find blobs that nobody refers to; with `dry_run=False`, remove them."""
        return self._loop.wait(self._store.collect_blobs(grace_s=grace_s, dry_run=dry_run, alone=alone))

    def load(self, session: str, version: int | None = None) -> SessionState:
        """The state of a session now, or at a version."""
        return self._loop.wait(self._store.load(session, version))

    def head(self, session: str) -> Head:
        """What listings say of a session."""
        return self._loop.wait(self._store.head(session))

    def is_held(self, head: Head) -> bool:
        """Whether somebody who may be alive drives the session."""
        return self._loop.wait(self._store.is_held(head))

    def overview(self, session: str) -> Overview:
        """A session at a glance."""
        return self._loop.wait(self._store.overview(session))

    def checkpoints(self, session: str) -> Iterator[Checkpoint]:
        """The versions of a session, oldest first."""
        return self._loop.iterate(self._store.checkpoints(session))

    def drop(self, session: str, version: int, *, wait_s: float = 0) -> None:
        """No longer offer a version."""
        self._loop.wait(self._store.drop(session, version, wait_s=wait_s))

    def diff(self, session: str, a: int, b: int) -> Diff:
        """What changed from version `a` to version `b`."""
        return self._loop.wait(self._store.diff(session, a, b))

    def fork(
        self,
        session: str,
        *,
        version: int | None = None,
        into: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SessionId:
        """A new session that starts from a version of another; its id."""
        return self._loop.wait(self._store.fork(session, version=version, into=into, labels=labels))

    def submit(
        self,
        session: str,
        message: str | Message | ForeignMessage | Json,
        *,
        agent: str | None = None,
        format: str | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> int:
        """Send a message to a session, whoever holds it; its number in the inbox."""
        return self._loop.wait(
            self._store.submit(session, message, agent=agent, format=format, key=key, labels=labels)
        )

    def cancel(self, session: str, *, by: str = "", reason: str = "") -> int:
        """Ask whoever drives the session to stop."""
        return self._loop.wait(self._store.cancel(session, by=by, reason=reason))

    def in_doubt(self) -> Iterator[Doubt]:
        """Calls of all sessions that were issued and of which nobody knows the outcome; those of deleted
        sessions have an `operation`."""
        return self._loop.iterate(self._store.in_doubt())

    def resolve(
        self,
        session: str,
        call: str | int,
        verdict: Verdict,
        *,
        by: str,
        note: str = "",
        result: Json = None,
    ) -> Answered:
        """Say what became of a call in doubt: `landed` (with its result), `not_landed` or `gave_up`."""
        return self._loop.wait(self._store.resolve(session, call, verdict, by=by, note=note, result=result))

    def resolve_operation(
        self, operation: str, verdict: OperationVerdict, *, by: str, note: str = "", result: Json = None
    ) -> Answered:
        """Say what became of a `global` operation whose session was deleted in the middle of it."""
        return self._loop.wait(
            self._store.resolve_operation(operation, verdict, by=by, note=note, result=result)
        )

    def approve(
        self, session: str, call: str | int, *, by: str, args: Json = None, note: str = ""
    ) -> Answered:
        """Agree to a call that waits, perhaps with corrected arguments."""
        return self._loop.wait(self._store.approve(session, call, by=by, args=args, note=note))

    def refuse(self, session: str, call: str | int, *, by: str, reason: str = "") -> Answered:
        """Do not agree to a call that waits; the model is told why."""
        return self._loop.wait(self._store.refuse(session, call, by=by, reason=reason))

    def tail(self, session: str, *, after: int = 0, follow: bool = True) -> Iterator[Entry]:
        """The entries of a session as they become durable."""
        return self._loop.iterate(self._store.tail(session, after=after, follow=follow))

    def sessions(
        self,
        *,
        status: SessionStatus | None = None,
        parent: str | None = None,
        label: Mapping[str, str] | None = None,
        interrupted: bool | None = None,
        on_damaged: Callable[[SessionId, HoldfastError], object] | None = None,
    ) -> Iterator[Head]:
        """Sessions in the order of their ids. Damaged ones are left out, and told to `on_damaged`."""
        return self._loop.iterate(
            self._store.sessions(
                status=status, parent=parent, label=label, interrupted=interrupted, on_damaged=on_damaged
            )
        )

    def runs(self, *, session: str | None = None, parent: str | None = None) -> Iterator[RunInfo]:
        """Runs, oldest first."""
        return self._loop.iterate(self._store.runs(session=session, parent=parent))

    def workers(self) -> Iterator[WorkerInfo]:
        """Who works on the store's sessions, with what they last told of themselves."""
        return self._loop.iterate(self._store.workers())

    def find_blob_url(self, reference: str) -> str | None:
        """A URL at which the world can read the blob, if there is one."""
        return self._loop.wait(self._store.find_blob_url(reference))

    def clean(
        self, session: str, *, transcript: bool = True, checkpoints: bool = True, wait_s: float = 0
    ) -> Literal["deleted", "cleaned"]:
        """Erase what was said, drop all versions, or (both) delete the session."""
        return self._loop.wait(
            self._store.clean(session, transcript=transcript, checkpoints=checkpoints, wait_s=wait_s)
        )

    def delete(self, session: str, *, wait_s: float = 0) -> None:
        """Remove a session."""
        self._loop.wait(self._store.delete(session, wait_s=wait_s))
