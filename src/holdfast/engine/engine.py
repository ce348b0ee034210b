"""What all sessions of an open store share: the driver, its threads, the committer and the heartbeat."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeVar, TypeVarTuple

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from msgspec import Struct

from ..blobs.home import BlobHome
from ..blobs.public_urls import PresignedUrls, PublicUrls, check_home
from ..content.encode import Given, PackedResult, Sizes, is_light, pack_light, pack_light_result
from ..core.session_state import SessionState
from ..core.values import Codec, Values
from ..drivers.contract import Driver
from ..errors import Closed, HoldfastError
from ..ids import SessionId
from ..limits import BLOB_THREADS, INLINE_BYTES, LEASE_TERM_S, LINGER_S, RESULT_CHARS, STORE_THREADS
from ..messages import AnyMessage
from ..system import processes, threads
from ..system.aio import run_to_end
from ..system.clock import Instant, boot_id, boot_s, utc_now
from .blob_cache import BlobCache
from .committer import Channel, Committer, HomeLoop
from .heartbeat import Heartbeat

log = logging.getLogger("holdfast")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_SIZES: Final = Sizes(inline_bytes=INLINE_BYTES, result_chars=RESULT_CHARS)


class HeldHere(Struct, frozen=True):
    """A resource that this process holds: with which fence, and in which event loop."""

    fence: int
    home: HomeLoop


class Engine:
    """An open store. Blocking calls to the driver run in threads of its own."""

    def __init__(
        self,
        driver: Driver,
        *,
        home: BlobHome | None = None,
        blob_urls: PublicUrls | None = None,
        lease_s: float = LEASE_TERM_S,
        linger_s: float = LINGER_S,
        codecs: Iterable[Codec] = (),
        sizes: Sizes = _SIZES,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.driver = driver
        self.home: BlobHome = home or driver.blobs
        if blob_urls is not None:
            check_home(blob_urls, self.home)
        self.blobs = BlobCache(self.home, blob_urls or PresignedUrls(), driver.store_id, sizes)
        self.committer = Committer(driver, linger_s=linger_s)
        self.channels: dict[SessionId, Channel] = {}
        """Of the sessions that are open here."""
        self.left: dict[SessionId, Channel] = {}
        """Of sessions that were left while their last lines could not be written: they are tried again."""
        self.registering = threads.Lock()
        """Held while one is put there."""
        self.snapshots: weakref.WeakSet[SessionState] = weakref.WeakSet()
        """States that callers have, and that may have messages to read: they outlive the store."""
        self.holds: dict[str, HeldHere] = {}
        """Resources that are held here, or about to be."""
        self.heartbeat = Heartbeat(
            driver, term_s=lease_s, on_posted=self._note_posted, sessions=lambda: list(self.channels)
        )
        self.values = Values(codecs)
        self.extensions: dict[type, object] = {}
        """Objects that the layers above keep with the open store, by their class."""
        self.now = now
        self.is_busy: Callable[[], bool] = lambda: False
        """Whether a tool that could not be stopped still runs. Set by the ledger."""
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        """What the layers above still have to write when all that was handed over is settled."""
        self._threads: RunVar[anyio.CapacityLimiter] = RunVar(f"holdfast_store_threads_{id(self)}")
        self._blob_threads: RunVar[anyio.CapacityLimiter] = RunVar(f"holdfast_blob_threads_{id(self)}")
        self._closing = False
        self._ended = threads.Event()
        self._closed = False
        self._calling = threads.Condition()
        self._calls = 0
        """Calls of the driver's functions that have not returned, those of cancelled callers among them."""
        self._left = False
        _engines.add(self)

    def instant(self) -> Instant:
        """Now, by clocks that no person sets. Where nothing names the boot, they are this process's alone."""
        boot = boot_id() or self.heartbeat.holder
        return Instant(boot=boot, boot_s=boot_s(), server_s=self.driver.server_s())

    async def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a blocking function of the driver's in a thread.

        A caller that is cancelled does not wait for it, as its deadline could pass long before a server
        answers; the thread goes on. What must not be left half done is called by `run_to_end`, what must not
        get lost by `call_or_undo`.
        """
        self.check_open()
        limiter = _limiter(self._threads, STORE_THREADS)
        return await to_thread.run_sync(
            self._counted, function, *args, limiter=limiter, abandon_on_cancel=True
        )

    async def call_home(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a function that reads or writes blobs in a thread. It may take long."""
        self.check_open()
        limiter = _limiter(self._blob_threads, BLOB_THREADS)
        # Another home may take very long, and does not end when the driver is closed.
        run = self._counted if self.home is self.driver.blobs else _run
        return await to_thread.run_sync(run, function, *args, limiter=limiter, abandon_on_cancel=True)

    def check_open(self) -> None:
        """Raise `Closed` if the store was closed, or if this is a forked child of the process."""
        if self._closed:
            raise Closed("the store was closed, or was opened in the parent of this process: open it here")

    def _counted(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call it, unless the driver is about to be closed; it is closed when all calls have returned."""
        with self._calling:
            if self._left and not self._calls:
                raise Closed("the store was closed")
            self._calls += 1
        try:
            return function(*args)
        finally:
            with self._calling:
                self._calls -= 1
                self._calling.notify_all()

    # -- contents, and the blobs that they refer to ---------------------------------------------------

    async def pack_message(self, message: AnyMessage) -> bytes:
        """The message as it is stored; what is large in it is a blob, and durable."""
        content = pack_light(message, self.blobs.sizes)
        return content if content is not None else await self.call_home(self.blobs.pack_message, message)

    async def pack_value(self, value: object) -> bytes:
        """User state as it is stored; what is large in it is a blob, and durable."""
        content = self.values.encode(value)
        if is_light(content, self.blobs.sizes):
            return content
        return await self.call_home(self.blobs.pack_value, content)

    async def pack_result(self, given: Given) -> PackedResult:
        """A tool's result as it is stored; what is large in it is a blob, and durable."""
        packed = pack_light_result(given, self.blobs.sizes)
        return packed if packed is not None else await self.call_home(self.blobs.pack_result, given)

    async def call_or_undo(self, function: Callable[[*Ts], T], undo: Callable[[T], None], *args: *Ts) -> T:
        """Run a blocking function whose result must not get lost: if the caller is cancelled meanwhile (the
        thread runs on), `undo` is given what it returned."""
        return await run_or_undo(self.call, function, lambda late: self._counted(undo, late), *args)

    def is_open(self, session: SessionId) -> bool:
        """Whether the session is open in this process, in an event loop that has not ended."""
        channel = self.channels.get(session)
        return channel is not None and not channel.is_abandoned

    def set_aside(self, session: SessionId) -> Channel | None:
        """What a session that was left here has still to write, if any: also one whose event loop has ended
        before it was left."""
        # In a forked child, a lock of the parent's event loop, which is asked below, may stay locked.
        self.check_open()
        with self.registering:
            channel = self.channels.get(session)
            if channel is not None and channel.is_abandoned:
                channel.closed = Closed(f"session {session!r}: the event loop that it was open in has ended")
                del self.channels[session]
                self.left[session] = channel
            return self.left.get(session)

    def _note_posted(self, posted: Mapping[SessionId, int]) -> None:
        for session, number in posted.items():
            channel = self.channels.get(session)
            if channel is not None:
                channel.posted = max(channel.posted, number)

    async def close(self) -> None:
        """Write what is left, say goodbye, let go. Safe to call twice, and at once."""
        # No lock of an event loop: it may be closed in another one than it was opened in.
        with self.registering:
            is_first, self._closing = not self._closing, True
        if not is_first:
            await anyio.to_thread.run_sync(self._ended.wait, abandon_on_cancel=True)
            return
        try:
            await run_to_end(self._close)
        finally:
            self._ended.set()

    async def _close(self) -> None:
        try:
            await to_thread.run_sync(self.committer.close)
            for write_rest in self.on_close:
                await write_rest()
            await to_thread.run_sync(self._read_snapshots)
        finally:
            await to_thread.run_sync(self._let_go)
            self._closed = True

    def _read_snapshots(self) -> None:
        for state in list(self.snapshots):
            try:
                state.read_transcript()
            except HoldfastError as error:
                log.debug("session %r: its messages could not be read: %s", state.facts.head.session, error)

    def forget_in_child(self) -> None:
        """A forked child has no right to what its parent opened."""
        self._closed = self._closing = True
        # Another thread may have been in the middle of something at the moment of the fork.
        self.registering, self._ended = threads.Lock(), threads.Event()
        self._ended.set()

    def _let_go(self) -> None:
        self.heartbeat.end(busy=self.is_busy())
        with self._calling:
            self._left = True
            self._calling.wait_for(lambda: not self._calls)
        self.home.close()
        self.driver.close()


def _run(function: Callable[[*Ts], T], *args: *Ts) -> T:
    return function(*args)


async def run_or_undo(
    call: Callable[[Callable[[], T]], Awaitable[T]],
    function: Callable[[*Ts], T],
    undo: Callable[[T], None],
    *args: *Ts,
) -> T:
    """Have `call` run a blocking function in a thread. If the caller is cancelled meanwhile, the thread runs
    on, and `undo` is given what it returned."""
    lock = threads.Lock()
    given: list[T] = []
    abandoned = False

    def run() -> T:
        result = function(*args)
        with lock:
            given.append(result)
            late = abandoned
        if late:
            undo_late(result)
        return result

    def undo_late(result: T) -> None:
        try:
            undo(result)
        except HoldfastError as error:
            log.warning("what a cancelled caller had asked for was done, and could not be undone: %s", error)

    try:
        return await call(run)
    except BaseException:
        with lock:
            abandoned = True
            result = given[:]
        if result:
            threads.Thread(target=undo_late, args=(result[0],)).start()
        raise


def _limiter(kept: RunVar[anyio.CapacityLimiter], threads: int) -> anyio.CapacityLimiter:
    """One for each event loop that uses the store."""
    try:
        return kept.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(threads)
        kept.set(limiter)
        return limiter


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_in_child() -> None:
    for engine in list(_engines):
        engine.forget_in_child()


processes.register_at_fork(after_in_child=_forget_in_child)
