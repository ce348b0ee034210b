"""Blobs as applications see them: put, opened, listed."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..content.lazy import BlobReader, BlobSource, blob_media
from ..content.references import SCHEME, Reference, digest_of, get_digest
from ..errors import BadInput, NotFound
from ..ids import SessionId
from ..limits import BLOB_PART_BYTES, PAGE_ROWS
from ..messages import Media
from ..system import files
from .home import BlobContext, ListedBlob

if TYPE_CHECKING:
    from ..engine.engine import Engine

BlobData: TypeAlias = bytes | Path | Iterable[bytes] | AsyncIterable[bytes]
"""Bytes, a file, or parts as they come."""


class Blob(Struct, frozen=True, kw_only=True):
    """Bytes under their digest, and what is known of them."""

    digest: str
    size: int
    media_type: str
    name: str | None = None
    metadata: Mapping[str, str] = {}
    put_at: datetime | None = None
    """When it was last put, in a listing."""
    sessions: tuple[SessionId, ...] = ()
    """Who refers to it, in a listing."""

    @property
    def reference(self) -> str:
        """`media+sha256://<hex>`."""
        return f"{SCHEME}//{self.digest}"


class Collected(Struct, frozen=True, kw_only=True):
    """What a collection found: blobs that no session refers to, and how many there are of the others."""

    orphans: tuple[Blob, ...]
    """Removed, or to be removed if it was a dry run."""
    removed: bool
    referred: int
    recent: int
    """No session refers to them, but they were put within the grace."""
    sessions: int
    uploads: int = 0
    """Uploads that had died, and were cleared away."""

    @property
    def size(self) -> int:
        """Bytes of the orphans."""
        return sum(one.size for one in self.orphans)


class OpenBlob:
    """A blob to be read: `async for part in blob`, once; `await blob.read()` gives all of it."""

    def __init__(self, engine: Engine, blob: Blob, parts: Iterator[bytes]) -> None:
        self._engine, self._parts, self.blob = engine, parts, blob

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            part = await self._engine.call_home(_next, self._parts)
            if part is None:
                return
            yield part

    async def read(self) -> bytes:
        """All of it, checked."""
        return await self._engine.call_home(b"".join, self._parts)


def _next(parts: Iterator[bytes]) -> bytes | None:
    return next(parts, None)


def describe(digest: str, size: int, context: BlobContext) -> Blob:
    """A blob as applications see it."""
    return Blob(
        digest=digest,
        size=size,
        media_type=context.media_type,
        name=context.file_name,
        metadata=context.metadata,
    )


def list_blob(one: ListedBlob, sessions: Iterable[SessionId]) -> Blob:
    """A blob of a listing, and who refers to it."""
    found = describe(one.digest, one.size, one.context)
    return replace(found, put_at=one.put_at, sessions=tuple(sorted(sessions)))


def as_media(blob: Blob, source: BlobSource) -> Media:
    """A block that shows the blob, without its bytes in memory."""
    place = BlobReader("", source, where="a blob that was put by hand")
    return blob_media(Media(media_type=blob.media_type, name=blob.name), Reference(blob.digest), place)


async def open_blob(engine: Engine, reference: str) -> OpenBlob:
    """The blob, or `NotFound`."""
    digest = get_digest(reference)
    found = await engine.call_home(engine.blobs.get, digest)
    return OpenBlob(engine, describe(digest, found.size, found.context), found.parts)


async def put_blob(engine: Engine, data: BlobData, context: BlobContext) -> Blob:
    """Keep bytes as a blob. Durable on return; never all in memory, unless they were given so."""
    if isinstance(data, bytes):
        given = data
        return await engine.call_home(_put, engine, digest_of(given), len(given), lambda: (given,), context)
    if isinstance(data, Path):
        return await engine.call_home(_put_file, engine, data, context)
    with files.temporary_file() as spool:
        if isinstance(data, AsyncIterable):
            async for part in data:
                await engine.call_home(spool.write, part)
        else:
            await engine.call_home(spool.writelines, data)
        return await engine.call_home(_put_spooled, engine, spool, context)


def _put_file(engine: Engine, path: Path, context: BlobContext) -> Blob:
    try:
        with files.open_binary(path) as file:
            return _put_spooled(engine, file, context)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error


def _put_spooled(engine: Engine, file: BinaryIO, context: BlobContext) -> Blob:
    """Once for the digest, once for the home."""
    actual, size = sha256(), 0
    for part in _parts(file):
        actual.update(part)
        size += len(part)
    return _put(engine, actual.hexdigest(), size, partial(_parts, file), context)


def _parts(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while part := file.read(BLOB_PART_BYTES):
        yield part


def _put(
    engine: Engine, digest: str, size: int, parts: Callable[[], Iterable[bytes]], context: BlobContext
) -> Blob:
    engine.blobs.put(digest, parts, context)
    return describe(digest, size, context)


def iter_blobs(engine: Engine) -> Iterator[ListedBlob]:
    """All blobs of the home, in the order of their digests. Blocks."""
    after: str | None = None
    while True:
        page = engine.home.list_blobs(after, PAGE_ROWS)
        yield from page
        if len(page) < PAGE_ROWS:
            return
        after = page[-1].digest
