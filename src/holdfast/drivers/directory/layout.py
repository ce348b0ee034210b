"""Where everything lies under the root, and how a root is made and recognised."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...errors import BadUrl, Corrupt, NewerFormat, NotFound
from ...ids import SessionId, fresh_uid
from ...system import files
from ...system.file_locks import FileLock
from ...system.files import child_path, list_names, make_directory, put, touch

FORMAT = 2

_STORE_FILE = "holdfast.json"

# Made before the store's file is: a crash in between must not leave a directory that is refused.
_MADE_FIRST = {"lock", "tmp"}


class _StoreFile(msgspec.Struct):
    format: int
    id: str = ""


_decode = msgspec.json.Decoder(_StoreFile).decode


class Layout:
    """The paths of one store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store_file = root / _STORE_FILE
        self.lock = root / "lock"
        self.sessions = root / "sessions"
        self.hidden = root / "hidden"
        self.pins = root / "pins"
        self.claims = root / "claims"
        self.holders = root / "holders"
        self.blobs = root / "blobs"
        self.scratch = root / "tmp"
        self.trash = root / "trash"
        self.deleted = root / "deleted"

    def folder(self, session: SessionId) -> Path:
        """The directory of the session, or of a hidden one's chunks."""
        if session.startswith("~"):
            return child_path(self.hidden, session[1:])
        return child_path(self.sessions, session)


def open_root(root: Path, *, create: bool, read_only: bool = False) -> tuple[Layout, str]:
    """The paths and the id of the store at `root`, which is made if it is missing and `create` says so.

    With `read_only`, nothing is made.
    """
    layout = Layout(root)
    if not files.exists(layout.store_file):
        _refuse_foreign(root)
        if not create:
            raise NotFound(f"there is no store at {root}")
        _make(layout)
    id = read_id(layout.store_file)
    if read_only:
        return layout, id
    if not files.exists(layout.lock):
        touch(layout.lock)
    if _ignores_case(layout):
        raise BadUrl(_CASE.format(root=root))
    for folder in (layout.sessions, layout.hidden, layout.pins, layout.claims, layout.holders, layout.blobs):
        make_directory(folder)
    for folder in (layout.scratch, layout.trash):
        make_directory(folder)
    return layout, id


_CASE = (
    "{root}: this file system takes A and a for the same name, but session ids differ by case. "
    "Use another file system, or sqlite: instead."
)


def _refuse_foreign(root: Path) -> None:
    if files.exists(root) and not files.is_dir(root):
        raise BadUrl(f"{root} is a file; a dir: store needs a directory")
    # Looked for once more after the listing: another process may have made the store just now.
    if set(list_names(root)) - _MADE_FIRST and not files.exists(root / _STORE_FILE):
        raise BadUrl(
            f"{root} is not empty and is not a holdfast store ({_STORE_FILE} is missing). "
            "Name an empty directory, or one that does not exist yet."
        )


def _make(layout: Layout) -> None:
    make_directory(layout.scratch)
    touch(layout.lock)
    with FileLock(layout.lock):
        # Two processes may have come here at once; there is one store, with one id.
        if files.exists(layout.store_file):
            return
        _refuse_foreign(layout.root)
        if _ignores_case(layout):
            files.remove(layout.lock)
            files.rmdir(layout.scratch)
            raise BadUrl(_CASE.format(root=layout.root))
        put(layout.store_file, [_encode(_StoreFile(FORMAT, fresh_uid()))], layout.scratch)


def _ignores_case(layout: Layout) -> bool:
    return files.exists(layout.lock.with_name("LOCK"))


def _encode(found: _StoreFile) -> bytes:
    return msgspec.json.encode(found) + b"\n"


def read_id(path: Path) -> str:
    """The id of the store that this file begins."""
    try:
        found = _decode(files.read_bytes(path))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(str(path), f"not what a store begins with ({error})") from error
    if found.format > FORMAT:
        raise NewerFormat(
            f"{path}: the store has format {found.format}; this holdfast reads {FORMAT}. Upgrade holdfast."
        )
    if found.format < FORMAT:
        raise BadUrl(
            f"{path}: the store has format {found.format}, of a holdfast before its first release; this one "
            f"reads {FORMAT}. Nothing was changed. Name another directory, or read this one with the "
            "holdfast that wrote it."
        )
    return found.id
