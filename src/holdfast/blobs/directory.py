"""`dir:PATH`: files in a directory, for the processes of one machine.

root/
  <2 characters>/<digest>            the bytes; or wherever a key function says
  .holdfast/
    home.json                        {format, store}: whose home it is, once something was put
    lock                             held while one of these changes
    blobs/<2 characters>/<digest>.info   {key, context}, without which the blob is not there; its time is
                                     when the blob was put last
    keys/<sha256 of the key>         {key, digest}: for whom a key function chose a place
    tmp/                             files on their way to their place
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ..drivers.directory.blobs import Blobs, ByDigest, Place
from ..errors import BadInput, BadUrl, Corrupt, NewerFormat
from ..limits import BLOB_PART_BYTES
from ..system.file_locks import Held
from ..system.files import (
    clear_leftovers,
    find_bytes,
    list_names,
    make_directory,
    put,
    sync_directory,
    touch,
    translated,
)
from .chunking import checked_in, checked_out, even_parts
from .home import BlobContext, ListedBlob, NoHome, StoredBlob
from .keys import OWN, KeyFunction, choose_key, clash, digest_key
from .metadata import check_context, check_digest

FORMAT = 1


class _Info(msgspec.Struct):
    key: str
    context: BlobContext


class _Taken(msgspec.Struct):
    key: str
    digest: str


class _HomeFile(msgspec.Struct):
    format: int
    store: str | None = None


_encode = msgspec.json.Encoder().encode
_decode_info = msgspec.json.Decoder(_Info).decode
_decode_taken = msgspec.json.Decoder(_Taken).decode
_decode_home = msgspec.json.Decoder(_HomeFile).decode


class DirectoryHome:
    """A directory of blobs, apart from any store."""

    def __init__(self, root: Path, *, key: KeyFunction | None = None, create: bool = True) -> None:
        self.name = f"dir:{root}"
        self._root, self._key_function = root, key
        own = root / OWN
        self._file, self._lock, self._scratch = own / "home.json", own / "lock", own / "tmp"
        with translated(root):
            if not self._lock.exists():
                self._make(create)
            self._check_format()
            make_directory(self._scratch)
            clear_leftovers(self._scratch)
        self._blobs = Blobs(own / "blobs", self._scratch, self._lock, _ByKey(root, self._scratch, self.name))

    def _make(self, create: bool) -> None:
        if self._root.exists() and not self._root.is_dir():
            raise BadUrl(f"{self._root} is a file; a dir: home needs a directory")
        if set(list_names(self._root)) - {OWN}:
            raise BadUrl(
                f"{self._root} is not empty and is no home of blobs ({OWN} is missing). "
                "Name an empty directory, or one that does not exist yet."
            )
        if not create:
            raise NoHome(f"there is no home of blobs at {self._root}")
        make_directory(self._lock.parent)
        touch(self._lock)
        sync_directory(self._lock.parent)

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        key = choose_key(self._key_function, check_digest(digest), check_context(context))
        arriving = checked_in(digest, even_parts(parts, BLOB_PART_BYTES))
        self._record_owner(owner)
        self._blobs.put(digest, arriving, _encode(_Info(key, context)))

    def find(self, digest: str) -> StoredBlob | None:
        with translated(self._root):
            found = self._blobs.find(check_digest(digest))
        if found is None:
            return None
        context = _read_info(found.info, digest, self.name).context
        return StoredBlob(context, found.size, checked_out(digest, found.parts, self.name))

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        with translated(self._root):
            rows = self._blobs.list_rows(after, limit)
        return [
            ListedBlob(row.digest, row.size, row.put_at, _read_info(row.info, row.digest, self.name).context)
            for row in rows
        ]

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        with translated(self._root):
            return self._blobs.remove(check_digest(digest), put_before)

    def sweep(self, *, begun_before: datetime) -> int:
        with translated(self._root):
            clear_leftovers(self._scratch)
            return self._blobs.sweep(begun_before)

    def find_owner(self) -> str | None:
        with translated(self._root):
            return self._check_format()

    def _record_owner(self, owner: str) -> None:
        with translated(self._root):
            if self._check_format() is None:
                with Held(self._lock):
                    if self._check_format() is None:
                        put(self._file, [_encode(_HomeFile(FORMAT, owner)) + b"\n"], self._scratch)

    def _check_format(self) -> str | None:
        """Whose the home is, if it is one that this version can read."""
        data = find_bytes(self._file)
        if data is None:
            return None
        try:
            found = _decode_home(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(str(self._file), f"not what a home of blobs begins with ({error})") from error
        if found.format > FORMAT:
            raise NewerFormat(
                f"{self._file}: this home of blobs has format {found.format}; this holdfast reads {FORMAT}. "
                "Upgrade holdfast."
            )
        return found.store

    def find_key(self, digest: str) -> str | None:
        with translated(self._root):
            found = self._blobs.find(check_digest(digest))
        return _read_info(found.info, digest, self.name).key if found else None

    def sign(self, digest: str, *, valid_s: float) -> str | None:
        return None

    def close(self) -> None:
        pass  # Nothing stays open between two calls.


class _ByKey(ByDigest):
    """Bytes lie where the info says. A place other than that by digest has a mark: whose it is."""

    def __init__(self, root: Path, scratch: Path, home: str) -> None:
        super().__init__(root)
        self._marks, self._scratch, self._home = root / OWN / "keys", scratch, home

    def find(self, digest: str, info: bytes) -> Place:
        key = _read_info(info, digest, self._home).key if info else digest_key(digest)
        if key == digest_key(digest):
            return super().find(digest, info)
        name = hashlib.sha256(key.encode()).hexdigest()
        return Place(digest, self._root / key, self._marks / name)

    def take(self, place: Place, is_blob: Callable[[Place], bool]) -> None:
        if place.mark == place.path:
            super().take(place, is_blob)
            return
        key = place.path.relative_to(self._root).as_posix()
        if why := self._find_obstacle(place):
            raise BadInput(
                f"the key function gives {key!r} to blob {place.digest} in {self._home}, but {why}"
            )
        marked = find_bytes(place.mark)
        other = _decode_taken(marked).digest if marked else place.digest
        if other != place.digest and is_blob(place._replace(digest=other)):
            raise clash(key, place.digest, other, self._home)
        make_directory(place.path.parent)
        make_directory(self._marks)
        put(place.mark, [_encode(_Taken(key, place.digest))], self._scratch)

    def _find_obstacle(self, place: Place) -> str | None:
        """Why the place can be no blob's."""
        if not place.path.parent.resolve().is_relative_to(self._root.resolve()):
            return "a link leads from there out of the directory"
        above = (path for path in place.path.parents if path.is_relative_to(self._root))
        if place.path.is_dir() or any(path.exists() and not path.is_dir() for path in above):
            return "no key may lie below another"
        if os.path.lexists(place.path) and not place.mark.exists():
            return "something is there already that is no blob"
        return None

    def list_taken(self) -> Iterator[Place]:
        yield from super().list_taken()
        for name in list_names(self._marks):
            marked = find_bytes(self._marks / name)
            if marked is not None:
                taken = _decode_taken(marked)
                yield Place(taken.digest, self._root / taken.key, self._marks / name)


def _read_info(info: bytes, digest: str, home: str) -> _Info:
    try:
        return _decode_info(info)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"blob {digest} in {home}", f"its description cannot be read ({error})") from error
