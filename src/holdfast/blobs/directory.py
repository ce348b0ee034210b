"""Blobs as files in a directory: the code that a `dir:` store and a `dir:PATH` home share, and that home.

A blob is two files. One has the bytes; the other, `<digest>.info`, says that they are whole, and its time is
when they were put last. A home apart from any store looks like this:

root/
  <2 characters>/<digest>            the bytes; or wherever a key function says
  .holdfast/
    home.json                        {format, store}: whose home it is, once something was put
    lock                             held while one of these changes
    blobs/<2 characters>/<digest>.info   {key, context}, without which the blob is not there
    keys/<sha256 of the key>         {key, digest}: the blob that a key function chose this path for
    tmp/                             files on their way to their place
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import BadInput, BadUrl, Corrupt, NewerFormat
from ..limits import BLOB_PART_BYTES
from ..system import files
from ..system.clock import utc_now
from ..system.file_locks import FileLock
from ..system.files import (
    child_path,
    clear_leftovers,
    find_bytes,
    list_names,
    make_directory,
    move,
    put,
    sync_directory,
    touch,
    translated,
    written,
)
from .chunking import checked_in, checked_out, even_parts
from .home import BlobContext, ListedBlob, NoHome, StoredBlob
from .keys import OWN, KeyFunction, choose_key, clash, digest_key
from .metadata import check_context, check_digest

FORMAT = 1

_INFO = ".info"


class BlobPath(NamedTuple):
    """Where the bytes of a blob lie. The time of `mark`, which may be the bytes themselves, is when the path
    was taken; a path without a mark is free."""

    digest: str
    path: Path
    mark: Path

    def clear(self) -> None:
        """Remove the bytes. The mark goes last: until then `sweep` finds by it what is left."""
        files.remove(self.path, missing_ok=True)
        files.remove(self.mark, missing_ok=True)


class DigestPaths:
    """Bytes lie at `<2 characters>/<digest>`, where those of no other blob can."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, digest: str, info: bytes) -> BlobPath:
        """The path of the blob with this info."""
        path = self._root / digest[:2] / digest
        return BlobPath(digest, path, mark=path)

    def take(self, place: BlobPath, is_blob: Callable[[BlobPath], bool]) -> None:
        """Mark the path, unless it is another blob's, and make its directory. The caller has the lock."""
        make_directory(place.path.parent)

    def list_taken(self) -> Iterator[BlobPath]:
        """Every path that is not free."""
        for folder in list_names(self._root):
            for name in list_names(self._root / folder) if len(folder) == 2 else ():
                if len(name) == 64:
                    yield self.find(name, b"")


class BlobFiles(ABC):
    """The blobs of a directory. Infos are in `infos`; bytes are where `paths` says."""

    name: str

    def __init__(self, root: Path, infos: Path, scratch: Path, lock: Path, paths: DigestPaths) -> None:
        self._root, self._infos, self._scratch, self._lock, self._paths = root, infos, scratch, lock, paths

    @abstractmethod
    def _encode_info(self, digest: str, context: BlobContext) -> bytes:
        """The content of the blob's info, or `BadInput` if the home cannot hold the context."""

    @abstractmethod
    def _decode_info(self, info: bytes, digest: str) -> BlobContext:
        """The context in the info, or `Corrupt`."""

    @abstractmethod
    def _check_root(self) -> None:
        """Refuse a directory that is no longer what was opened."""

    @abstractmethod
    def _record_owner(self, owner: str) -> None:
        """Record the id of the store that refers to the blobs, if none is recorded. Durable."""

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        info = self._encode_info(check_digest(digest), context)
        arriving = checked_in(digest, even_parts(parts, BLOB_PART_BYTES))
        with translated(self._root):
            self._check_root()
            self._record_owner(owner)
        path = self._info_path(digest)
        with translated(path), FileLock(self._lock):
            if self._put_again(digest, path):
                return
        # The lock is not held while the bytes arrive, which may take long.
        with written(self._scratch, arriving) as temporary, translated(path), FileLock(self._lock):
            if not self._put_again(digest, path):
                # The first context stays, if only the bytes are gone.
                info = find_bytes(path) or info
                place = self._paths.find(digest, info)
                self._paths.take(place, self._is_blob)
                move(temporary, place.path)
                make_directory(path.parent)
                put(path, [info], self._scratch)
                files.set_changed_at(path, utc_now())

    def _put_again(self, digest: str, info_path: Path) -> bool:
        """Whether the blob is there; then it counts as put now.

        Its new time is not synced. It spares the blob until an entry refers to it; if the power fails before
        that, the writer does not live to write the entry.
        """
        info = find_bytes(info_path)
        if info is None or not files.exists(self._paths.find(digest, info).path):
            return False
        files.set_changed_at(info_path, utc_now())
        return True

    def find(self, digest: str) -> StoredBlob | None:
        with translated(self._root):
            self._check_root()
            info = find_bytes(self._info_path(check_digest(digest)))
            if info is None:
                return None
            data = self._paths.find(digest, info).path
            size = _size(data)
        context = self._decode_info(info, digest)
        return StoredBlob(context, size, checked_out(digest, _read_parts(data), self.name))

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        with translated(self._root):
            self._check_root()
            return self._list(after, limit)

    def _list(self, after: str | None, limit: int) -> list[ListedBlob]:
        blobs: list[ListedBlob] = []
        for folder in sorted(list_names(self._infos)):
            if after is not None and folder < after[:2]:
                continue
            names = [name for name in list_names(self._infos / folder) if name.endswith(_INFO)]
            for digest in sorted(name.removesuffix(_INFO) for name in names):
                if len(blobs) >= limit:
                    return blobs
                if after is None or digest > after:
                    blobs += self._find_listed(digest)
        return blobs

    def _find_listed(self, digest: str) -> list[ListedBlob]:
        """One blob, or none if it was removed meanwhile."""
        path = self._info_path(digest)
        info = find_bytes(path)
        with suppress(FileNotFoundError):
            if info is not None:
                size = _size(self._paths.find(digest, info).path)
                return [ListedBlob(digest, size, files.changed_at(path), self._decode_info(info, digest))]
        return []

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        """First the info, without which there is no blob. Durable."""
        path = self._info_path(check_digest(digest))
        with translated(self._root):
            self._check_root()
            with FileLock(self._lock):
                info = find_bytes(path)
                if info is None or files.changed_at(path) >= put_before:
                    return False
                files.remove(path)
                sync_directory(path.parent)
                self._paths.find(digest, info).clear()
                return True

    def sweep(self, *, begun_before: datetime) -> int:
        """Remove bytes without an info: a writer died between the two."""
        with translated(self._root):
            self._check_root()
            clear_leftovers(self._scratch)
            return sum(self._sweep(place, begun_before) for place in self._paths.list_taken())

    def _sweep(self, place: BlobPath, begun_before: datetime) -> bool:
        if self._is_blob(place):
            return False
        with FileLock(self._lock), suppress(FileNotFoundError):
            if not self._is_blob(place) and files.changed_at(place.mark) < begun_before:
                place.clear()
                return True
        return False

    def _is_blob(self, place: BlobPath) -> bool:
        info = find_bytes(self._info_path(place.digest))
        return info is not None and self._paths.find(place.digest, info) == place

    def _info_path(self, digest: str) -> Path:
        return child_path(self._infos / digest[:2], digest, _INFO)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return files.stat(path).st_size
    return 0


def _read_parts(path: Path) -> Iterator[bytes]:
    with translated(path), files.open_binary(path, buffering=0) as file:
        while part := file.read(BLOB_PART_BYTES):
            yield part


# -- a home apart from any store -----------------------------------------------------------------------


class _KeyedInfo(msgspec.Struct):
    key: str
    context: BlobContext


class _TakenKey(msgspec.Struct):
    key: str
    digest: str


class _HomeFile(msgspec.Struct):
    format: int
    store: str | None = None


_encode = msgspec.json.Encoder().encode
_decode_info = msgspec.json.Decoder(_KeyedInfo).decode
_decode_taken = msgspec.json.Decoder(_TakenKey).decode
_decode_home = msgspec.json.Decoder(_HomeFile).decode


class DirectoryHome(BlobFiles):
    """A directory of blobs, apart from any store."""

    def __init__(self, root: Path, *, key: KeyFunction | None = None, create: bool = True) -> None:
        files.require_locks("a dir: home of blobs")
        self.name = f"dir:{root}"
        self._key_function = key
        own = root / OWN
        self._file = own / "home.json"
        paths = _KeyPaths(root, own / "tmp", self.name)
        super().__init__(root, own / "blobs", own / "tmp", own / "lock", paths)
        with translated(root):
            if not files.exists(self._lock):
                self._make(create)
            self._check_format()
            make_directory(self._scratch)
            clear_leftovers(self._scratch)

    def _make(self, create: bool) -> None:
        if files.exists(self._root) and not files.is_dir(self._root):
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

    def _encode_info(self, digest: str, context: BlobContext) -> bytes:
        return _encode(_KeyedInfo(choose_key(self._key_function, digest, check_context(context)), context))

    def _decode_info(self, info: bytes, digest: str) -> BlobContext:
        return _read_info(info, digest, self.name).context

    def _check_root(self) -> None:
        pass  # A home that was moved away is found empty, and every `put` makes what it needs.

    def find_owner(self) -> str | None:
        with translated(self._root):
            return self._check_format()

    def _record_owner(self, owner: str) -> None:
        if self._check_format() is None:
            with FileLock(self._lock):
                if self._check_format() is None:
                    put(self._file, [_encode(_HomeFile(FORMAT, owner)) + b"\n"], self._scratch)

    def _check_format(self) -> str | None:
        """The id of the home's store, if this version can read the home."""
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
            info = find_bytes(self._info_path(check_digest(digest)))
        return _read_info(info, digest, self.name).key if info is not None else None

    def sign(self, digest: str, *, valid_s: float) -> str | None:
        return None

    def close(self) -> None:
        pass  # Nothing stays open between two calls.


class _KeyPaths(DigestPaths):
    """Bytes lie where the info says. A path other than that by digest has a mark that names its blob."""

    def __init__(self, root: Path, scratch: Path, home: str) -> None:
        super().__init__(root)
        self._marks, self._scratch, self._home = root / OWN / "keys", scratch, home

    def find(self, digest: str, info: bytes) -> BlobPath:
        key = _read_info(info, digest, self._home).key if info else digest_key(digest)
        if key == digest_key(digest):
            return super().find(digest, info)
        name = hashlib.sha256(key.encode()).hexdigest()
        return BlobPath(digest, self._root / key, self._marks / name)

    def take(self, place: BlobPath, is_blob: Callable[[BlobPath], bool]) -> None:
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
        put(place.mark, [_encode(_TakenKey(key, place.digest))], self._scratch)

    def _find_obstacle(self, place: BlobPath) -> str | None:
        """Why no blob can lie at the path."""
        if not Path(files.real_path(place.path.parent)).is_relative_to(files.real_path(self._root)):
            return "a link leads from there out of the directory"
        above = (path for path in place.path.parents if path.is_relative_to(self._root))
        if files.is_dir(place.path) or any(files.exists(path) and not files.is_dir(path) for path in above):
            return "no key may lie below another"
        if files.lexists(place.path) and not files.exists(place.mark):
            return "something is there already that is no blob"
        return None

    def list_taken(self) -> Iterator[BlobPath]:
        yield from super().list_taken()
        for name in list_names(self._marks):
            marked = find_bytes(self._marks / name)
            if marked is not None:
                taken = _decode_taken(marked)
                yield BlobPath(taken.digest, self._root / taken.key, self._marks / name)


def _read_info(info: bytes, digest: str, home: str) -> _KeyedInfo:
    try:
        return _decode_info(info)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"blob {digest} in {home}", f"its description cannot be read ({error})") from error
