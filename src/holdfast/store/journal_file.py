"""Sessions as a file of JSON lines, journals byte for byte: written by an export, read by an import.

    {"sum":"…","store":{"format":1,"id":"…","asked":["order-42"]}}
    {"sum":"…","session":{…}}                  a session; the lines after it belong to it
    {"sum":"…","chunk":{"sum":"…","facts":{…},"details":[…],"said":[…]}}
    {"sum":"…","keyframe":{…}}                 and {"item":{"number":3,"item":"…"}}
    {"sum":"…","claim":["key","record"]}       and {"holder":["id","heartbeat"]}
    {"sum":"…","blob":{…}}                     and {"part":"base64"}, where blobs are in the file
    {"sum":"…","end":{"lines":17}}

The `sum` of a line is the SHA-256 of the sum before it and of what follows it in the line: so a line that
was edited, left out or moved is found. Blobs are in the file, in a folder beside it, or in the `.tar` that
has both.
"""

from __future__ import annotations

import hashlib
import tarfile
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ..blobs.chunking import checked_out, even_parts
from ..blobs.home import BlobContext, StoredBlob
from ..content.references import find_digests
from ..core.codec import Chunk
from ..core.pages import span_of
from ..drivers.contract import InboxRow, hidden_name
from ..engine.engine import Engine
from ..errors import BadInput, Corrupt, NewerFormat, NotFound
from ..ids import HolderId, SessionId, session_id
from ..limits import BATCH_BYTES_MAX, BLOB_PART_BYTES, READ_CHUNKS
from ..system import files
from .copy_source import CopySource, SourceSession, list_named_holders

T = TypeVar("T")
FORMAT: Final = 1
_JOURNAL: Final = "journal.jsonl"
_BLOBS: Final = "blobs"
_BLOCK: Final = 512
_SUM_CHARS: Final = 43


class ExportedFile(Struct, frozen=True, kw_only=True):
    """What was written."""

    path: Path
    sessions: tuple[SessionId, ...]
    entries: int
    blobs: int
    lost_blobs: tuple[str, ...] = ()
    """The digests of blobs that the store lacks, or that are damaged."""


class _StoreLine(Struct):
    format: int
    id: str
    asked: tuple[str, ...] = ()


class _ChunkLine(Struct):
    sum: str
    facts: Raw
    details: Raw | UnsetType = UNSET
    said: Raw | UnsetType = UNSET


class _ItemLine(Struct):
    number: int
    item: str


class _BlobLine(Struct):
    digest: str
    size: int
    media_type: str
    file_name: str | None = None
    metadata: dict[str, str] = {}

    @property
    def context(self) -> BlobContext:
        return BlobContext(media_type=self.media_type, file_name=self.file_name, metadata=self.metadata)


class _EndLine(Struct):
    lines: int


class _Line(Struct):
    """What stands in a line: one of these."""

    store: _StoreLine | None = None
    session: SourceSession | None = None
    chunk: _ChunkLine | None = None
    keyframe: Raw | UnsetType = UNSET
    item: _ItemLine | None = None
    claim: tuple[str, str] | None = None
    holder: tuple[HolderId, str] | None = None
    blob: _BlobLine | None = None
    part: str | None = None
    end: _EndLine | None = None


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(_Line).decode


def _sum_of(before: str, content: bytes) -> str:
    digest = hashlib.sha256(before.encode() + content).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


# -- writing -------------------------------------------------------------------------------------------


class _Writer:
    """Makes the lines of a file. `keep` is given the blobs that are not in it."""

    def __init__(
        self, source: CopySource, asked: Sequence[str], keep: Callable[[str, BinaryIO, int], None] | None
    ) -> None:
        self._source, self._asked, self._keep = source, asked, keep
        self._sum, self._lines = "", 0
        self._digests: set[str] = set()
        self.entries = self.blobs = 0
        self.lost: list[str] = []

    def iter_lines(self) -> Iterator[bytes]:
        source = self._source
        header = _StoreLine(format=FORMAT, id=source.store_id, asked=tuple(self._asked))
        yield self._line("store", _encode(header))
        for session in source.sessions:
            yield from self._iter_session(session)
        claims = source.list_claims()
        for key, record in claims:
            self._digests |= find_digests(record.encode())
            yield self._line("claim", _encode((key, record)))
        for holder in list_named_holders(source.sessions, claims):
            beat = source.find_beat(holder)
            if beat is not None:
                yield self._line("holder", _encode((holder, beat.decode())))
        for digest in sorted(self._digests):
            yield from self._iter_blob(digest)
        yield self._line("end", _encode(_EndLine(lines=self._lines + 1)))

    def _line(self, kind: str, value: bytes) -> bytes:
        content = b'"%b":%b' % (kind.encode(), value)
        self._sum, self._lines = _sum_of(self._sum, content), self._lines + 1
        return b'{"sum":"%b",%b}\n' % (self._sum.encode(), content)

    def _iter_session(self, session: SourceSession) -> Iterator[bytes]:
        yield self._line("session", _encode(replace(session, inbox=())))
        for chunks in self._source.iter_chunks(session, session.seq - session.entries):
            for chunk in chunks:
                yield self._line("chunk", _encode_chunk(chunk))
                for part in (chunk.facts, chunk.details, chunk.said):
                    self._digests |= find_digests(part or b"")
        self.entries += session.entries
        keyframe = self._source.find_keyframe(session)
        if keyframe is not None and b"\n" not in keyframe:
            yield self._line("keyframe", keyframe)
        for row in session.inbox:
            self._digests |= find_digests(row.item)
            yield self._line("item", _encode(_ItemLine(number=row.number, item=row.item.decode())))

    def _iter_blob(self, digest: str) -> Iterator[bytes]:
        found = self._source.find_blob(digest)
        with files.temporary_file() as spool:
            try:
                if found is not None:
                    spool.writelines(found.parts)
            except Corrupt:
                found = None
            if found is None:
                self.lost.append(digest)
                return
            self.blobs += 1
            spool.seek(0)
            context = found.context
            line = _BlobLine(
                digest=digest,
                size=found.size,
                media_type=context.media_type,
                file_name=context.file_name,
                metadata=dict(context.metadata),
            )
            yield self._line("blob", _encode(line))
            if self._keep is not None:
                self._keep(digest, spool, found.size)
                return
            for part in _read_parts(spool, found.size):
                yield self._line("part", _encode(b64encode(part).decode()))


def _encode_chunk(chunk: Chunk) -> bytes:
    """A chunk with its parts as they are stored."""
    parts = [b'"sum":%b,"facts":%b' % (_encode(chunk.sum), chunk.facts)]
    if chunk.details is not None:
        parts.append(b'"details":%b' % chunk.details)
    if chunk.said is not None:
        parts.append(b'"said":%b' % chunk.said)
    return b"{%b}" % b",".join(parts)


def _read_parts(file: BinaryIO, size: int) -> Iterator[bytes]:
    left = size
    while left and (part := file.read(min(left, BLOB_PART_BYTES))):
        left -= len(part)
        yield part


def write_file(
    source: CopySource,
    path: Path,
    *,
    asked: Sequence[str] = (),
    blob_folder: Path | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> ExportedFile:
    """Write a file, whole or not at all: one `.tar` with everything, or JSON lines with the blobs in them or
    in a folder. Blocks. `goes_on` is asked from time to time whether the caller still waits."""
    if files.lexists(path):
        raise BadInput(f"{path} exists already; name a file that does not")
    if not files.is_dir(path.parent):
        raise NotFound(f"there is no directory {path.parent}")
    if path.suffix == ".tar":
        if blob_folder is not None:
            raise BadInput("a .tar has its blobs inside: leave out the folder")
        with files.temporary_file() as blobs, files.temporary_file() as lines:
            tar = _Tar(blobs)
            writer = _Writer(source, asked, tar.add)
            lines.writelines(_while(goes_on, writer.iter_lines()))
            files.put(path, _while(goes_on, tar.iter_bytes(lines)), path.parent)
    else:
        folder = None if blob_folder is None else _BlobFolder(blob_folder)
        writer = _Writer(source, asked, None if folder is None else folder.add)
        files.put(path, _while(goes_on, writer.iter_lines()), path.parent)
    return ExportedFile(
        path=path,
        sessions=tuple(session.id for session in source.sessions if not session.is_hidden),
        entries=writer.entries,
        blobs=writer.blobs,
        lost_blobs=tuple(writer.lost),
    )


def _while(goes_on: Callable[[], bool], parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        if not goes_on():
            raise BadInput("the export was cancelled")
        yield part


class _BlobFolder:
    """A folder with a file for each blob."""

    def __init__(self, path: Path) -> None:
        self._path = path
        files.make_tree(path)

    def add(self, digest: str, data: BinaryIO, size: int) -> None:
        """Durable, under the digest as its name."""
        files.put(self._path / digest, _read_parts(data, size), self._path)


class _Tar:
    """Puts a `.tar` together: the lines first, then the blobs, which were added while the lines were made."""

    def __init__(self, blobs: BinaryIO) -> None:
        self._blobs = blobs

    def add(self, digest: str, data: BinaryIO, size: int) -> None:
        self._blobs.writelines(_member(f"{_BLOBS}/{digest}", _read_parts(data, size), size))

    def iter_bytes(self, lines: BinaryIO) -> Iterator[bytes]:
        size = lines.tell()
        lines.seek(0)
        yield from _member(_JOURNAL, _read_parts(lines, size), size)
        end = self._blobs.tell()
        self._blobs.seek(0)
        yield from _read_parts(self._blobs, end)
        yield bytes(2 * _BLOCK)


def _member(name: str, parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.GNU_FORMAT)
    yield from parts
    yield bytes(-size % _BLOCK)


# -- reading -------------------------------------------------------------------------------------------


class _Stretch(NamedTuple):
    """Bytes of a file, from `start` to `end`."""

    path: Path
    start: int
    end: int


class FileSource:
    """The sessions in a file. Every line is checked before anything of it is used."""

    def __init__(self, engine: Engine, path: Path, blob_folder: Path | None = None) -> None:
        """Read it once. Blocks. `Corrupt` names the line that is not as it was written."""
        self._engine, self._path, self._folder = engine, path, blob_folder
        self._store = _StoreLine(format=0, id="")
        self._sessions: list[SourceSession] = []
        self._chunks: dict[str, _Stretch] = {}
        self._keyframes: dict[str, bytes] = {}
        self._claims: list[tuple[str, str]] = []
        self._beats: dict[HolderId, bytes] = {}
        self._blobs: dict[str, _BlobLine] = {}
        self._data: dict[str, _Stretch] = {}
        """Where blobs are: lines of parts, a file, or a member of a `.tar`."""
        self._members: Mapping[str, _Stretch] = {}
        lines = self._find_lines()
        with files.open_binary(path) as file:
            self._read(file, lines)

    def _find_lines(self) -> _Stretch:
        try:
            size = files.stat(self._path).st_size
            with files.open_binary(self._path) as file:
                if file.read(1) == b"{":
                    return _Stretch(self._path, 0, size)
                file.seek(0)
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    self._members = {
                        one.name: _Stretch(self._path, one.offset_data, one.offset_data + one.size)
                        for one in tar
                    }
        except FileNotFoundError as error:
            raise NotFound(f"there is no file {self._path}") from error
        except OSError as error:
            raise BadInput(f"{self._path} cannot be read: {error.strerror}") from error
        except tarfile.TarError as error:
            raise BadInput(f"{self._path} is neither an export of holdfast nor a .tar with one") from error
        if _JOURNAL not in self._members:
            raise BadInput(f"{self._path} has no {_JOURNAL}: it is no export of holdfast")
        return self._members[_JOURNAL]

    def _read(self, file: BinaryIO, lines: _Stretch) -> None:
        sum, number, offset = "", 0, lines.start
        file.seek(offset)
        line = _Line()
        while offset < lines.end:
            data, number = file.readline(lines.end - offset), number + 1
            try:
                if line.end is not None:
                    raise ValueError("it comes after the end")
                sum, line = self._check(data, sum)
                self._note(line, _Stretch(self._path, offset, offset + len(data)))
                if line.end is not None and line.end.lines != number:
                    raise ValueError(f"{line.end.lines} lines were written")
            except (ValueError, LookupError, msgspec.DecodeError, RecursionError) as error:
                why = f"it is not as it was written ({error})"
                raise Corrupt(str(self._path), why, line=number) from error
            offset += len(data)
        if line.end is None:
            raise Corrupt(str(self._path), "what comes last is missing", line=number + 1)

    def _check(self, data: bytes, before: str) -> tuple[str, _Line]:
        start, sum, content = data[:8], data[8 : 8 + _SUM_CHARS], data[10 + _SUM_CHARS : -2]
        if start != b'{"sum":"' or data[8 + _SUM_CHARS : 10 + _SUM_CHARS] != b'",' or data[-2:] != b"}\n":
            raise ValueError("it is no line of an export")
        if not before and content.startswith(b'"store":'):
            self._refuse_newer(content)
        if sum.decode("ascii", "replace") != _sum_of(before, content):
            raise ValueError("its sum does not follow from the line before it and its content")
        return sum.decode(), _decode(b"{%b}" % content)

    def _refuse_newer(self, content: bytes) -> None:
        found = _decode(b"{%b}" % content).store
        if found is not None and found.format > FORMAT:
            raise NewerFormat(f"{self._path} has format {found.format}; this holdfast reads {FORMAT}")

    def _note(self, line: _Line, place: _Stretch) -> None:
        if line.store is not None:
            self._store = line.store
        elif line.session is not None:
            session_id(line.session.id)
            if line.session.name not in (line.session.id, hidden_name(line.session.uid)):
                raise ValueError(f"{line.session.name!r} is no name of the session")
            self._sessions.append(line.session)
            self._chunks[line.session.uid] = place._replace(start=place.end)
        elif line.chunk is not None:
            uid = self._sessions[-1].uid
            self._chunks[uid] = self._chunks[uid]._replace(end=place.end)
        elif isinstance(line.keyframe, Raw):
            self._keyframes[self._sessions[-1].uid] = bytes(line.keyframe)
        elif line.item is not None:
            last = self._sessions[-1]
            row = InboxRow(line.item.number, line.item.item.encode())
            self._sessions[-1] = replace(last, inbox=(*last.inbox, row))
        elif line.claim is not None:
            self._claims.append(line.claim)
        elif line.holder is not None:
            self._beats[line.holder[0]] = line.holder[1].encode()
        elif line.blob is not None:
            self._blobs[line.blob.digest] = line.blob
            self._data[line.blob.digest] = place._replace(start=place.end)
        elif line.part is not None:
            digest = next(reversed(self._blobs))
            self._data[digest] = self._data[digest]._replace(end=place.end)

    # -- what a copy reads -----------------------------------------------------------------------------

    @property
    def store_id(self) -> str:
        return self._store.id

    @property
    def asked(self) -> Sequence[str]:
        """The sessions that the export was asked for; none if it is a whole store."""
        return self._store.asked

    @property
    def sessions(self) -> Sequence[SourceSession]:
        return self._sessions

    async def call(self, function: Callable[[], T]) -> T:
        return await self._engine.call(function)

    def find_sum(self, session: SourceSession, seq: int) -> str | None:
        chunks = (chunk for part in self.iter_chunks(session, seq - 1) for chunk in part)
        first = next(chunks, None)
        return first.sum if first is not None and first.seq == seq else None

    def iter_chunks(self, session: SourceSession, after: int) -> Iterator[Sequence[Chunk]]:
        batch: list[Chunk] = []
        size = 0
        for line in self._iter_lines(self._chunks[session.uid]):
            assert line.chunk is not None
            facts, details, said = line.chunk.facts, line.chunk.details, line.chunk.said
            chunk = Chunk(
                span_of(bytes(facts), f"session {session.id!r}").last,
                line.chunk.sum,
                bytes(facts),
                bytes(details) if isinstance(details, Raw) else None,
                bytes(said) if isinstance(said, Raw) else None,
            )
            if chunk.seq <= after:
                continue
            batch.append(chunk)
            size += chunk.size
            if size >= BATCH_BYTES_MAX or len(batch) == READ_CHUNKS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def find_keyframe(self, session: SourceSession) -> bytes | None:
        return self._keyframes.get(session.uid)

    def list_claims(self) -> Sequence[tuple[str, str]]:
        return self._claims

    def find_beat(self, holder: HolderId) -> bytes | None:
        return self._beats.get(holder)

    def find_blob(self, digest: str) -> StoredBlob | None:
        blob = self._blobs.get(digest)
        if blob is None:
            return None
        inside = self._data[digest]
        parts: Iterator[bytes]
        if inside.end > inside.start or not blob.size:
            parts = (b64decode(line.part or "") for line in self._iter_lines(inside))
        else:
            place = self._find_blob_file(digest)
            if place is None:
                return None
            parts = _read_stretch(place)
        where = str(self._path)
        return StoredBlob(
            blob.context, blob.size, checked_out(digest, even_parts(parts, BLOB_PART_BYTES), where)
        )

    def _find_blob_file(self, digest: str) -> _Stretch | None:
        member = self._members.get(f"{_BLOBS}/{digest}")
        if member is not None or self._folder is None:
            return member
        path = files.child_path(self._folder, digest)
        return _Stretch(path, 0, files.stat(path).st_size) if files.exists(path) else None

    def _iter_lines(self, place: _Stretch) -> Iterator[_Line]:
        with files.open_binary(place.path) as file:
            file.seek(place.start)
            while file.tell() < place.end:
                data = file.readline()
                yield _decode(b"{%b}" % data[10 + _SUM_CHARS : -2])


def _read_stretch(place: _Stretch) -> Iterator[bytes]:
    with files.open_binary(place.path) as file:
        file.seek(place.start)
        yield from _read_parts(file, place.end - place.start)
