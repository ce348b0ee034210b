"""Pins, and what becomes of deleted sessions. All of it needs the store's lock.

A pin is durable before its fork's first commit, so a crash can leave a pin without a fork: a pin counts only
while its fork is there, as a session or hidden. A session is deleted by one rename, after which no one
takes it for a session; the rest can be finished by the next process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ...errors import Corrupt
from ...ids import SessionId, fresh_uid
from ...system import files
from ...system.files import child_path, discard, find_bytes, list_names, make_directory, move, put
from ..contract import Pin
from .folder import Identity, SessionFolder
from .layout import Layout

_DELETED_MAX = 1000
"""Deletions that are remembered. A writer asks when its session's folder is gone."""


class _PinFile(msgspec.Struct):
    fork: SessionId
    seq: int


_decode = msgspec.json.Decoder(_PinFile).decode


class Forks:
    """The pins, hidden sessions and trash of one store. `lives` tells whether a session with a uid exists."""

    def __init__(self, layout: Layout, lives: Callable[[SessionId, str], bool]) -> None:
        self._layout, self._lives = layout, lives

    def has_origin(self, pin: Pin) -> bool:
        """Whether the session to fork from is still that one."""
        return self._lives(pin.origin, pin.uid)

    def pin(self, pin: Pin, fork: SessionId, uid: str) -> None:
        """Keep the origin's chunks for the fork. Durable."""
        folder = self._pins(pin.uid)
        make_directory(folder)
        data = msgspec.json.encode(_PinFile(fork, pin.seq)) + b"\n"
        put(child_path(folder, uid), [data], self._layout.scratch)

    def find_last_pinned(self, uid: str) -> int | None:
        """The last entry that a fork of this session needs, or None if there is no fork. Drops stale pins."""
        folder = self._pins(uid)
        needed: list[int] = []
        for name in list_names(folder):
            found = self._read_pin(folder / name)
            if self._lives(found.fork, name) or files.exists(self._hidden(name).path):
                needed.append(found.seq)
            else:
                files.remove(folder / name, missing_ok=True)
        if not needed and files.exists(folder):
            discard(folder)
        return max(needed, default=None)

    def remove(self, folder: SessionFolder, identity: Identity) -> None:
        """Delete a session whose lock is held: it is gone when this returns, even after a power cut."""
        last_pinned = self.find_last_pinned(identity.uid)
        self._note_deleted(identity.uid)
        if last_pinned is None:
            self._throw_away(folder)
        else:
            hidden = self._hidden(identity.uid)
            move(folder.path, hidden.path)
            self._trim(hidden, identity.uid)

    def was_deleted(self, uid: str) -> bool:
        """Whether a session whose folder is gone was deleted, and not moved by something else."""
        return uid.encode() in (find_bytes(self._layout.deleted) or b"").split()

    def _note_deleted(self, uid: str) -> None:
        """Write down that it was deleted, for writers that have not noticed yet. Durable."""
        deleted = [*(find_bytes(self._layout.deleted) or b"").split()[1 - _DELETED_MAX :], uid.encode()]
        put(self._layout.deleted, [b"".join(b"%b\n" % one for one in deleted)], self._layout.scratch)

    def needs_tidying(self) -> bool:
        """Whether a process was interrupted while deleting. Needs no lock."""
        if list_names(self._layout.trash):
            return True
        return any(self._is_unfinished(uid) for uid in list_names(self._layout.hidden))

    def tidy(self) -> None:
        """Finish what a process was interrupted in."""
        for name in list_names(self._layout.trash):
            self._empty(SessionFolder(self._layout.trash / name, self._layout.scratch))
        for uid in list_names(self._layout.hidden):
            if self._is_unfinished(uid):
                self._trim(self._hidden(uid), uid)

    def _is_unfinished(self, uid: str) -> bool:
        return files.exists(self._hidden(uid).lock) or not list_names(self._pins(uid))

    def _trim(self, hidden: SessionFolder, uid: str) -> None:
        """Remove what no fork needs: the chunks after the last pinned one, or everything."""
        last = self.find_last_pinned(uid)
        if last is None:
            self._throw_away(hidden)
            return
        extent = hidden.journal.find_extent(locked=True)
        if extent and extent.seq > last:
            hidden.journal.rewrite({}, self._layout.scratch, last=last)
        hidden.strip()

    def _throw_away(self, folder: SessionFolder) -> None:
        trash = self._layout.trash / f"{folder.path.name[:200]}-{fresh_uid()}"
        move(folder.path, trash)
        self._empty(SessionFolder(trash, self._layout.scratch))

    def _empty(self, trash: SessionFolder) -> None:
        """Remove what was thrown away, after its pin: the pin is known only here."""
        identity = trash.find_identity()
        if identity and identity.pin:
            self._unpin(identity.pin.uid, identity.uid)
        discard(trash.path)

    def _unpin(self, origin: str, fork: str) -> None:
        files.remove(child_path(self._pins(origin), fork), missing_ok=True)
        hidden = self._hidden(origin)
        if files.exists(hidden.path):
            self._trim(hidden, origin)

    def _read_pin(self, path: Path) -> _PinFile:
        try:
            return _decode(find_bytes(path) or b"")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(str(path), f"not a pin ({error})") from error

    def _pins(self, uid: str) -> Path:
        return child_path(self._layout.pins, uid)

    def _hidden(self, uid: str) -> SessionFolder:
        return SessionFolder(child_path(self._layout.hidden, uid), self._layout.scratch)
