"""All that one session has: its journal, its identity, the two caches beside it, its inbox and its lock."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from ...core.head import Head
from ...errors import Corrupt
from ...system import files
from ...system.file_locks import FileLock
from ...system.files import discard, find_bytes, list_names, put, sync_directory, touch, write_all
from ..contract import Pin, Tip
from .inbox import Inbox
from .journal import JournalFile, Least

_log = logging.getLogger("holdfast")


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What tells a session from an earlier one with the same id, and a fork's hold on its origin."""

    uid: str
    first_seq: int
    pin: Pin | None = None


class _HeadFile(msgspec.Struct):
    digest: str
    head: msgspec.Raw


_decode_identity = msgspec.json.Decoder(Identity).decode
_decode_head_file = msgspec.json.Decoder(_HeadFile).decode
_decode_head = msgspec.json.Decoder(Head).decode


class SessionFolder:
    """The directory of one session, which may or may not exist."""

    def __init__(self, path: Path, scratch: Path, *, whole: bool = False) -> None:
        """`whole`: a session as it was left, not what is kept of one that was deleted."""
        self.path, self._scratch = path, scratch
        self.lock = path / "lock"
        find_least = self._find_least if whole else None
        self.journal = JournalFile(path / "journal.jsonl", self.lock, self._find_first_seq, find_least)
        self.inbox = Inbox(path / "inbox")
        self._identity = path / "session.json"
        self._head = path / "head.json"
        self._keyframe = path / "keyframe.json"

    def held(self, *, wait_s: float | None = None) -> FileLock:
        """Hold the session's lock, for a block. False if there is no such directory."""
        return FileLock(self.lock, wait_s=wait_s, of=self.journal.path)

    @contextmanager
    def made(self, *, wait_s: float | None = None) -> Iterator[bool]:
        """The same, of a directory that is made if there is none."""
        there = False
        while not there:
            self._make()
            with self.held(wait_s=wait_s) as there:
                if there:
                    yield there

    def _make(self) -> None:
        with suppress(FileExistsError):
            files.mkdir(self.path)
        # Missing again if the session is being deleted right now: then the next round makes it.
        with suppress(FileNotFoundError):
            if not files.exists(self.journal.path):
                touch(self.lock)

    def begin(self, identity: Identity) -> None:
        """Prepare for the first commit, which must not become durable before this is. Needs the lock."""
        touch(self.journal.path)
        put(self._identity, [_encode(identity)], self._scratch)
        sync_directory(self.path.parent)

    def find_identity(self) -> Identity | None:
        """Who the session is, or None if there is none."""
        data = find_bytes(self._identity)
        if data is None:
            return None
        try:
            return _decode_identity(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Corrupt(str(self._identity), f"not the identity of a session ({error})") from error

    def get_identity(self) -> Identity:
        """Who the session is, which must exist."""
        identity = self.find_identity()
        if identity is None:
            raise Corrupt(str(self._identity), "it is missing")
        return identity

    def _find_first_seq(self) -> int | None:
        identity = self.find_identity()
        return identity.first_seq if identity else None

    def _find_least(self) -> Least | None:
        """What the journal must hold at least: a head is written when its entry is durable, never before."""
        identity, head = self.find_identity(), self.find_head()
        if identity is None:
            return None
        if head is None:
            return Least(identity.uid, 0, "")
        if (head.session, head.uid) != (self.path.name, identity.uid):
            raise Corrupt(
                str(self._head),
                f"it is that of session {head.session!r} (uid {head.uid}); the folder is of another one",
            )
        return Least(identity.uid, head.seq, head.sum)

    def find_head(self) -> Head | None:
        """The cached head, if it is whole. It may be that of an earlier entry."""
        try:
            found = _decode_head_file(find_bytes(self._head) or b"")
            if found.digest != _digest(found.head):
                return None
            return _decode_head(found.head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def write_head(self, head: Head) -> None:
        """Cache the head. Needs the lock.

        In place and without a sync, which is cheap. A reader may meet it half-written: the digest tells.
        """
        raw = msgspec.json.encode(head)
        data = b'{"digest":"%b","head":%b}\n' % (_digest(raw).encode(), raw)
        with self._cache_only(self._head):
            fd = files.open(self._head, files.O_WRONLY | files.O_CREAT | files.O_CLOEXEC, 0o666)
            try:
                write_all(fd, data)
                files.truncate(fd, len(data))
            finally:
                files.close(fd)

    def find_waiting(self, tip: Tip) -> datetime | None:
        """When the oldest inbox item came that was not taken in, if there is one."""
        if tip.head is None or tip.posted <= tip.head.taken:
            return None
        return self.inbox.find_arrival(tip.head.taken)

    def find_keyframe(self) -> bytes | None:
        """The last keyframe."""
        return find_bytes(self._keyframe)

    def write_keyframe(self, keyframe: bytes) -> None:
        """Replace the keyframe. Needs the lock. Its name is not synced: the one before it will do as well."""
        with self._cache_only(self._keyframe):
            put(self._keyframe, [keyframe], self._scratch, sync_name=False)

    def drop_taken(self, upto: int) -> None:
        """Forget inbox items up to this number. Needs the lock."""
        with self._cache_only(self.inbox.path):
            self.inbox.drop(upto)

    @contextmanager
    def _cache_only(self, path: Path) -> Iterator[None]:
        """The commit is durable by now: what fails beside it costs time later, and nothing else."""
        try:
            yield
        except OSError as error:
            _log.warning("%s could not be updated (%s); nothing is lost", path, error)

    def drop_copies(self) -> None:
        """Remove what may hold a copy of the journal's content: keyframe, head, cut-off bytes. Durable."""
        for name in list_names(self.path):
            if name in (self._keyframe.name, self._head.name) or name.startswith("torn-"):
                files.remove(self.path / name)
        sync_directory(self.path)

    def strip(self) -> None:
        """Keep only the journal and the identity. The lock goes last: until then this is unfinished."""
        for name in list_names(self.path):
            if name not in (self.journal.path.name, self._identity.name, self.lock.name):
                discard(self.path / name)
        files.remove(self.lock, missing_ok=True)


def _encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _digest(raw: bytes | msgspec.Raw) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]
