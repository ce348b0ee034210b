"""Heartbeats: one for each process, kept by a thread of its own, and proof that a process has ended.

A holder's record says when it last beat, by the clock of which boot, and where its kernel lock is. The lock
proves death: it is released by the kernel when the process ends, however it ends. It grants nothing.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from ..drivers.contract import Beat, Driver
from ..errors import Closed, Corrupt, HoldfastError
from ..ids import HolderId, SessionId, fresh_uid
from ..limits import BEATS_PER_TERM, LEASE_TERM_S
from ..system import files, processes, threads
from ..system.clock import boot_id, boot_s

log = logging.getLogger("holdfast")


class Duty(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker works on, told with its heartbeat."""

    agents: tuple[str, ...]
    concurrency: int
    since: datetime
    labels: dict[str, str] = {}
    draining: bool = False


class HeartbeatRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A heartbeat. `boot` names the clock of `beat_s`; `lock` is the path of the kernel lock."""

    holder: HolderId
    name: str
    boot: str | None = None
    beat_s: float
    term_s: float
    lock: str | None = None
    duty: Duty | None = None


_decode = msgspec.json.Decoder(HeartbeatRecord).decode


def read_heartbeat(holder: HolderId, beat: Beat) -> HeartbeatRecord:
    """What a heartbeat says, or `Corrupt`."""
    where = f"heartbeat of holder {holder!r}"
    try:
        record = _decode(beat.record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(where, f"it cannot be read ({error})") from error
    if record.holder != holder:
        raise Corrupt(where, f"it is that of holder {record.holder!r}")
    if record.lock is not None and Path(record.lock).name != holder:
        raise Corrupt(where, f"{record.lock!r} is no lock of this holder")
    return record


class Life(Struct, frozen=True):
    """What is known of a holder. `left_s` is None when only watching it will tell. `ended`: there is proof
    that its process has ended, so nothing that it began is still under way."""

    alive: bool
    left_s: float | None = None
    name: str = ""
    ended: bool = False


class Heartbeat:
    """This process as a holder, and its view of the others."""

    def __init__(
        self,
        driver: Driver,
        *,
        term_s: float = LEASE_TERM_S,
        on_posted: Callable[[Mapping[SessionId, int]], None],
        sessions: Callable[[], list[SessionId]],
    ) -> None:
        self._driver, self._term_s = driver, term_s
        self._on_posted, self._sessions = on_posted, sessions
        self.holder = HolderId(fresh_uid())
        self.name = f"{processes.host_name()}:{processes.pid()}"
        self._started = threads.Lock()
        self._thread: threads.Thread | None = None
        self._stop = threads.Event()
        self._ended = False
        self._kernel_lock: _KernelLock | None = None
        self._valid_until_s = 0.0
        self._duty: Duty | None = None
        self._watched: dict[HolderId, tuple[bytes, float]] = {}

    # -- being alive ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Beat for the first time: durable before any lease names this holder."""
        with self._started:
            if self._ended:
                raise Closed("the store was closed")
            if self._thread is not None:
                return
            self._kernel_lock = self._kernel_lock or _KernelLock.take(self.holder)
            self._beat()
            self._thread = threads.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause_s = self._term_s / BEATS_PER_TERM
        while not self._stop.wait(pause_s):
            try:
                self._beat()
                pause_s = self._term_s / BEATS_PER_TERM
            except Exception as error:  # Any error: a process that stops beating loses its leases.
                log.warning("a heartbeat failed: %s", error)
                pause_s = min(1.0, self._term_s / BEATS_PER_TERM)

    def _beat(self) -> None:
        now = boot_s()
        record = HeartbeatRecord(
            holder=self.holder,
            name=self.name,
            boot=boot_id(),
            beat_s=now,
            term_s=self._term_s,
            lock=self._kernel_lock.path if self._kernel_lock else None,
            duty=self._duty,
        )
        posted = self._driver.beat(self.holder, msgspec.json.encode(record), self._sessions())
        self._valid_until_s = now + self._term_s
        self._on_posted(posted)

    @property
    def left_s(self) -> float:
        """How long others will still take this process for alive without another heartbeat."""
        return self._valid_until_s - boot_s()

    def renew(self) -> None:
        """Beat now, after a silence."""
        if self._ended:
            raise Closed("the store was closed")
        self._beat()

    def announce(self, duty: Duty | None) -> None:
        """Tell others at once what this process works on, and with every heartbeat from now on."""
        self._duty = duty
        self.begin()
        self._beat()

    def end(self, *, busy: bool) -> None:
        """Stop beating, and say so, unless something that was begun is still under way (`busy`)."""
        self._stop.set()
        with self._started:
            self._ended = True
            if self._thread is not None:
                self._thread.join()
            if busy:
                return  # The kernel lock stays until the process ends.
            lock, self._kernel_lock = self._kernel_lock, None
            try:
                if self._thread is not None:
                    self._driver.retire(self.holder)
            except HoldfastError as error:
                # A process that cannot retire is found dead instead, by its lock.
                log.warning("the store cannot be told that this process is done with it: %s", error)
                if lock:
                    lock.let_go()
                return
            if lock:
                lock.release()

    # -- judging others ------------------------------------------------------------------------------

    def judge(self, holder: HolderId) -> Life:
        """Whether this holder may still be alive."""
        if holder == self.holder:
            return Life(True, self.left_s, self.name)
        return self.judge_by(holder, self._driver.find_beat(holder))

    def judge_by(self, holder: HolderId, beat: Beat | None) -> Life:
        """The same of another holder with this heartbeat."""
        if beat is None:
            # A holder beats before it takes a lease, and is forgotten only when it has ended.
            return Life(False, ended=True)
        record = read_heartbeat(holder, beat)
        here = record.boot is not None and record.boot == boot_id()
        if here and record.lock is not None and _KernelLock.is_free(record.lock, holder):
            with suppress(HoldfastError):  # A reader without the right to write can look all the same.
                # The record first: without its lock, it could not be told from a living one's.
                self._driver.retire(holder)
                _KernelLock.discard(record.lock)
            return Life(False, name=record.name, ended=True)
        if beat.age_s is not None:
            left_s = record.term_s - beat.age_s
        elif here:
            left_s = record.beat_s + record.term_s - boot_s()
        else:
            return self._watch(record, beat.record)
        return Life(left_s > 0, left_s, record.name)

    def _watch(self, record: HeartbeatRecord, data: bytes) -> Life:
        """No clock in common: it is gone once we have seen it silent for a whole term ourselves."""
        seen, since = self._watched.get(record.holder, (b"", 0.0))
        now = boot_s()
        if seen != data:
            self._watched[record.holder] = data, now
            return Life(True, None, record.name)
        return Life(now - since < record.term_s, None, record.name)


class _KernelLock:
    """A locked file on this machine. A process that can lock it has proof that the holder's process ended."""

    _held: weakref.WeakSet[_KernelLock] = weakref.WeakSet()

    def __init__(self, path: str, handle: int) -> None:
        self.path, self._handle = path, handle
        self._held.add(self)

    @classmethod
    def take(cls, holder: HolderId) -> _KernelLock | None:
        """None where no such lock can be had, or where it would prove nothing."""
        boot, user = boot_id(), processes.user_id()
        if boot is None or user is None or not files.has_locks():
            return None
        try:
            directory = files.temporary_directory() / f"holdfast-{user}"
            with suppress(FileExistsError):
                files.mkdir(directory, 0o700)
            if files.stat(directory).st_uid != user or files.is_remote(directory):
                return None
            path = directory / holder
            handle = files.open(path, files.O_RDWR | files.O_CREAT | files.O_EXCL, 0o600)
        except OSError as error:
            log.debug("no kernel lock: %s", error)
            return None
        # Locked first, then written, and only then named in a heartbeat.
        files.lock(handle, wait=False)
        files.write_all(handle, f"{boot}\n{holder}\n".encode())
        return cls(str(path), handle)

    @staticmethod
    def is_free(path: str, holder: HolderId) -> bool:
        """Proof of death. A file that is missing or says something else proves nothing."""
        try:
            handle = files.open(path, files.O_RDONLY)
        except (OSError, ValueError):
            return False
        try:
            # Shared, so that several who look at the same moment do not take each other for the holder.
            files.lock(handle, shared=True, wait=False)
            return files.read(handle, 1000).decode() == f"{boot_id()}\n{holder}\n"
        except (OSError, UnicodeDecodeError):
            return False
        finally:
            files.close(handle)

    @staticmethod
    def discard(path: str) -> None:
        """Remove the lock's file: its holder is forgotten."""
        with suppress(OSError):
            files.remove(path)

    def release(self) -> None:
        with suppress(OSError):
            files.remove(self.path)
        self.let_go()

    def let_go(self) -> None:
        """Leave it to be found."""
        files.close(self._handle)
        self._held.discard(self)

    @classmethod
    def forget_in_child(cls) -> None:
        """A forked child must not keep its parent's lock: it would outlive the parent in it."""
        for lock in list(cls._held):
            files.close(lock._handle)
        cls._held.clear()


processes.register_at_fork(after_in_child=_KernelLock.forget_in_child)
