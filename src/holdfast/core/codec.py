"""Entries as bytes: the chunks of a journal, and the chain that ties them together.

A chunk is a run of entries in three parts, each one line of JSON:

    facts    {"v":2,"seq":7,"at":"2026-11-15T19:29:38.123456Z","run":"a-1b2c3d4e","step":2,"us":[0,41],
              "entries":[{"kind":"message.added","body":{…}},…],"details":"…","said":"…","salt":"…"}
    details  [["salt",{…}],null]     for each entry, the fields of its body that can be erased
    said     [["salt",{…}],null]     for each entry, its content

    digest   = sha256(sha256(element) ‖ …) over the elements of details or said; it stands in the facts
    sum      = sha256(sum of the chunk before ‖ facts)

So the chain can be checked without what was said, and opening a session need not read it. An erased element
is `{"erased": sha256 of the element}`: the chain holds, and without the salt the digest says nothing about
what was there. Binary values are base64url without padding. `docs/format.md` draws it all.

`checkpoint.taken` and a keyframe end a chunk. What is committed together is one chunk or several.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, get_args

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import BadInput, Corrupt
from ..limits import CHUNK_BYTES, LINE_BYTES_MAX
from ..messages import OWN, Role
from ..system import processes, randomness
from .entries import (
    DETAILS,
    KIND_OF,
    KINDS,
    MUST,
    AdapterBody,
    Body,
    CheckpointTaken,
    Entry,
    InboxTaken,
    LeaseReleased,
    LeaseRenewed,
    LeaseTaken,
    MessageAdded,
    UnknownBody,
    body_class,
    without_words,
)

VERSION: Final = 2
"""Version of the format. A reader refuses chunks of a higher version."""

GENESIS: Final = ""
"""The sum that the first chunk of a journal follows."""


class NewEntry(Struct, frozen=True, gc=False):
    """An entry that is not in a chunk yet, and its encoded parts."""

    entry: Entry
    facts: bytes
    details: bytes | None
    content: bytes | None
    size: int
    """Its bytes, about."""


class Chunk(Struct, frozen=True, gc=False):
    """A chunk as it is stored. `seq` is that of its last entry; parts that are empty are None."""

    seq: int
    sum: str
    facts: bytes
    details: bytes | None = None
    said: bytes | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.facts) + len(self.details or b"") + len(self.said or b"")


class Page(Struct, frozen=True, gc=False):
    """Chunks that follow each other, as they were read: each part of theirs joined by newlines.

    In `details` and `said`, an empty part is `null`. `said` is None if it was not read.
    """

    count: int
    sums: bytes
    facts: bytes
    details: bytes
    said: bytes | None

    def __len__(self) -> int:
        return self.count

    @classmethod
    def of(cls, chunks: Sequence[Chunk], *, said: bool) -> Page:
        """The page of these chunks."""
        return cls(
            count=len(chunks),
            sums=b"\n".join([chunk.sum.encode() for chunk in chunks]),
            facts=b"\n".join([chunk.facts for chunk in chunks]),
            details=b"\n".join([chunk.details or _NULL for chunk in chunks]),
            said=b"\n".join([chunk.said or _NULL for chunk in chunks]) if said else None,
        )

    def part(self, start: int, stop: int | None = None) -> Page:
        """Some of the chunks."""
        return Page(
            count=len(range(self.count)[start:stop]),
            sums=_lines(self.sums, start, stop),
            facts=_lines(self.facts, start, stop),
            details=_lines(self.details, start, stop),
            said=None if self.said is None else _lines(self.said, start, stop),
        )


def _lines(joined: bytes, start: int, stop: int | None) -> bytes:
    return b"\n".join(joined.split(b"\n")[start:stop])


EMPTY_PAGE: Final = Page(0, b"", b"", b"", b"")

_NULL: Final = b"null"
_NULL_DIGEST: Final = sha256(_NULL).digest()
_MICROSECOND: Final = timedelta(microseconds=1)
_encode = msgspec.json.Encoder().encode
# All decoders are made at import, not at first use: two threads that make msgspec inspect the same class for
# the first time at the same moment crash the interpreter.
_decoders: dict[str, Callable[[bytes | Raw], Body]] = {
    kind: msgspec.json.Decoder(cls).decode for kind, cls in KINDS.items()
}


def _details_class(body: type[Body]) -> type[Struct]:
    """A class of the details of a body: the same fields, each of which may be missing."""
    types = {one.name: one.type for one in msgspec.structs.fields(body)}
    fields = [(name, types[name] | msgspec.UnsetType, msgspec.UNSET) for name in DETAILS[body]]
    return msgspec.defstruct(f"{body.__name__}Details", fields, frozen=True)


_details_decoders: dict[type[Body], Callable[[bytes | Raw], Any]] = {
    body: msgspec.json.Decoder(_details_class(body)).decode for body in DETAILS
}
_DEFAULTS: dict[type[Body], dict[str, Any]] = {
    body: {
        one.name: one.default_factory() if one.default_factory is not msgspec.NODEFAULT else one.default
        for one in msgspec.structs.fields(body)
        if one.name in DETAILS[body]
    }
    for body in DETAILS
}


def _to_base64(data: bytes) -> bytes:
    return b2a_base64(data, newline=False).translate(_URLSAFE, b"=")


_URLSAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URLSAFE = bytes.maketrans(b"-_", b"+/")


def _from_text(text: str) -> bytes:
    # Padding that is not needed does no harm.
    return a2b_base64(text.encode("ascii").translate(_FROM_URLSAFE) + b"==")


def _timestamp(at: datetime) -> bytes:
    # Always six digits, so that the text sorts as the time does.
    stamp = _encode(at)
    return stamp if at.microsecond else b'%b.000000Z"' % stamp[:-2]


def timestamp(at: datetime) -> str:
    """A time as it stands in a chunk; the text sorts as the time does."""
    return _timestamp(at)[1:-1].decode()


class _Salts:
    """Random salts as text, made in bulk: each call to the operating system releases the interpreter lock."""

    BYTES = 12
    MANY = 256

    def __init__(self) -> None:
        self._ready: list[bytes] = []
        # A child process must not use the same salts as its parent.
        processes.register_at_fork(after_in_child=self._ready.clear)

    def take(self) -> bytes:
        try:
            return self._ready.pop()
        except IndexError:
            # Three bytes are four characters, so the text can be cut where the bytes are.
            text, size = _to_base64(randomness.urandom(self.MANY * self.BYTES)), self.BYTES * 4 // 3
            self._ready.extend(text[at : at + size] for at in range(0, len(text), size))
            return self._ready.pop()


_take_salt = _Salts().take


# -- writing -------------------------------------------------------------------------------------------


def encode_body(body: Body) -> bytes:
    """A body as JSON, details included, or `BadInput`."""
    try:
        if body.__class__ in KIND_OF:
            return _encode(body)
        if isinstance(body, UnknownBody):
            return bytes(body.data)
        return _encode(body.data if isinstance(body, AdapterBody) else body)
    except (TypeError, UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{type(body).__name__} cannot be written as JSON: {error}") from error


_TRUSTED: Final[frozenset[type[Body]]] = frozenset({LeaseTaken, LeaseRenewed, LeaseReleased})
"""Bodies without a value that an application gave: they are read back as they are."""

_ROLES: Final[tuple[str, ...]] = get_args(Role)


def _is_trusted(body: Body) -> bool:
    """Whether a body is read back as it is: it has only values that the library made or checked."""
    if isinstance(body, MessageAdded):
        is_plain = body.role in _ROLES and body.format == OWN and body.inbox is None and body.key is None
        return is_plain and not body.parts and not body.title
    if isinstance(body, CheckpointTaken):
        return body.name is None
    return body.__class__ in _TRUSTED


def _read_back(body: Body, kind: str, data: bytes) -> Body:
    """A body with this JSON as it will be read; `BadInput` if it could not be."""
    if _is_trusted(body):
        return body
    try:
        return _decode_body(kind, data)
    except msgspec.DecodeError as error:
        raise BadInput(f"this cannot be recorded as {kind}: {error}") from error


def check(body: Body, content: bytes | None, *, kind: str | None = None) -> None:
    """Raise `BadInput` if `encode_entry` would."""
    _read_back(body, KIND_OF[type(body)] if kind is None else kind, encode_body(body))
    if content is not None:
        _check_content(content)


def _check_content(content: bytes) -> None:
    if not content or b"\n" in content:
        raise BadInput("the content of an entry is JSON in one line")
    if len(content) > LINE_BYTES_MAX:
        raise BadInput(f"an entry of {len(content):,} bytes is over the limit of {LINE_BYTES_MAX:,}")


def _start_of(kind: str, must: bool) -> bytes:
    return b'{"kind":"%b",%b"body":' % (kind.encode(), b'"must":true,' if must else b"")


_STARTS = {cls: (kind, cls in MUST, _start_of(kind, cls in MUST)) for cls, kind in KIND_OF.items()}


def encode_entry(
    body: Body,
    seq: int,
    at: datetime,
    run: str | None,
    step: int,
    content: bytes | None = None,
    *,
    kind: str | None = None,
) -> NewEntry:
    """Make an entry and encode its parts. `kind` is for bodies of adapters."""
    cls = body.__class__
    if kind is None:
        kind, must, start = _STARTS[cls]
    else:
        must = cls in MUST
        start = _start_of(kind, must)
    data = encode_body(body)
    body = _read_back(body, kind, data)
    details = None
    if cls in DETAILS and not (isinstance(body, MessageAdded) and not body.title):
        data, details = _take_out_details(body, data)
    facts = b"%b%b}" % (start, data)
    size = len(facts)
    if details is not None:
        size += len(details)
    raw: Raw | None = None
    if content is not None:
        _check_content(content)
        raw = Raw(content)
        size += len(content)
    entry = Entry(seq=seq, at=at, run=run, step=step, kind=kind, must=must, body=body, content=raw)
    return NewEntry(entry, facts, details, content, size)


def _take_out_details(body: Body, data: bytes) -> tuple[bytes, bytes | None]:
    """The body without its details, and the details."""
    if isinstance(body, InboxTaken):
        bare = without_words(body.item)
        if bare == body.item:
            return data, None
        return _encode(replace(body, item=bare)), _encode({"item": body.item})
    defaults = _DEFAULTS[body.__class__]
    words = {name: value for name in defaults if (value := getattr(body, name)) != defaults[name]}
    if not words:
        return data, None
    return _encode(replace(body, **defaults)), _encode(words)


def seal(entries: Sequence[NewEntry], after: str, *, ends: int | None = None) -> list[Chunk]:
    """The chunks of these entries, which follow the chunk with the sum `after`.

    A chunk ends with each checkpoint, at entry `ends` (of a keyframe), and where it becomes too large.
    """
    chunks: list[Chunk] = []
    start = size = 0
    for stop, new in enumerate(entries, 1):
        size += new.size
        entry = new.entry
        if entry.body.__class__ is CheckpointTaken or size >= CHUNK_BYTES or entry.seq == ends:
            chunks.append(_seal_one(entries[start:stop], after))
            start, size, after = stop, 0, chunks[-1].sum
    if start < len(entries):
        chunks.append(_seal_one(entries[start:], after))
    return chunks


def _seal_one(part: Sequence[NewEntry], after: str) -> Chunk:
    """Put a chunk together, by hand: this is done for every commit, and ids and kinds need no escaping."""
    first, last = part[0].entry, part[-1].entry
    assert last.seq - first.seq == len(part) - 1
    assert last.step == first.step  # Only a checkpoint begins a step, and it ends a chunk.
    run, at = last.run, first.at
    entries, offsets, details, said = [], [], [], []
    for new in part:
        entry = new.entry
        entries.append(new.facts if entry.run == run else _with_run(new))
        offsets.append((entry.at - at) // _MICROSECOND)
        details.append(new.details)
        said.append(new.content)
    joined_details, details_digest = _join(details, b"details")
    joined_said, said_digest = _join(said, b"said")
    facts = b'{"v":%d,"seq":%d,"at":%b,%b"step":%d,%b"entries":[%b]%b%b,"salt":"%b"}' % (
        VERSION,
        first.seq,
        _timestamp(at),
        b"" if run is None else b'"run":"%b",' % run.encode(),
        first.step,
        # Microseconds after the first entry; left out if all were made at once.
        b'"us":%b,' % _encode(offsets) if any(offsets) else b"",
        b",".join(entries),
        details_digest,
        said_digest,
        _take_salt(),
    )
    return Chunk(last.seq, sum_of(facts, after), facts, joined_details, joined_said)


def _with_run(new: NewEntry) -> bytes:
    """The facts of an entry whose run is not that of its chunk."""
    return b'%b,"run":"%b"}' % (new.facts[:-1], (new.entry.run or "").encode())


def _join(parts: Sequence[bytes | None], name: bytes) -> tuple[bytes | None, bytes]:
    """The parts of the entries as one array, and the member of the facts that has its digest."""
    if parts.count(None) == len(parts):
        return None, b""
    elements, digests = [], []
    for part in parts:
        if part is None:
            elements.append(_NULL)
            digests.append(_NULL_DIGEST)
        else:
            element = b'["%b",%b]' % (_take_salt(), part)
            elements.append(element)
            digests.append(sha256(element).digest())
    digest = _to_base64(sha256(b"".join(digests)).digest())
    return b"[%b]" % b",".join(elements), b',"%b":"%b"' % (name, digest)


def sum_of(facts: bytes, after: str) -> str:
    """The `sum` of a chunk with these facts that follows `after`."""
    return _to_base64(sha256(after.encode() + facts).digest()).decode()


# -- reading -------------------------------------------------------------------------------------------


class Erased(Struct, frozen=True, gc=False):
    """An element of details or of what was said that was erased: its digest."""

    erased: str


Element = tuple[str, Raw] | Erased | None
"""An element of details or said, with its salt."""

decode_elements = msgspec.json.Decoder(list[Element] | None).decode_lines
"""Arrays of elements, one a line; None for a part that is empty."""

_decode_raw_elements = msgspec.json.Decoder(list[Raw]).decode


def digest_of_elements(elements: Iterable[Element]) -> str:
    """The digest that stands in the facts of a chunk. `ValueError` for nonsense."""
    digests = []
    for one in elements:
        if one is None:
            digests.append(_NULL_DIGEST)
        elif isinstance(one, Erased):
            digest = _from_text(one.erased)
            # Digests of other lengths could stand for elements at other places.
            if len(digest) != len(_NULL_DIGEST):
                raise ValueError("an erased element without its digest")
            digests.append(digest)
        else:
            digests.append(sha256(b'["%b",%b]' % (one[0].encode(), one[1])).digest())
    return _to_base64(sha256(b"".join(digests)).digest()).decode()


def _decode_body(kind: str, data: bytes | Raw) -> Body:
    decode = _decoders.get(kind)
    if decode is not None:
        return decode(data)
    if body_class(kind) is AdapterBody:
        return AdapterBody(data=msgspec.json.decode(data))
    return UnknownBody(data=Raw(bytes(data)))


def read_body(kind: str, data: Raw) -> Body:
    """The body of an entry, without its details; `UnknownBody` if it is of a newer version."""
    try:
        return _decode_body(kind, data)
    except msgspec.ValidationError:
        return UnknownBody(data=data.copy())


def with_details(body: Body, details: Raw) -> Body:
    """The body with its details; `UnknownBody` if they are of a newer version."""
    decode = _details_decoders.get(body.__class__)
    if decode is None:
        return body  # Of a newer version.
    try:
        found = decode(details)
    except msgspec.ValidationError:
        return UnknownBody(data=Raw(encode_body(body)))
    given = {
        name: value
        for name in DETAILS[body.__class__]
        if (value := getattr(found, name)) is not msgspec.UNSET
    }
    return replace(body, **given)


def erase(part: bytes | None, places: Iterable[int], where: str) -> bytes | None:
    """Details, or what was said, of a chunk without the elements at these places: their digests instead."""
    chosen = set(places)
    if part is None or part == _NULL or not chosen:
        return part
    try:
        elements = [bytes(one) for one in _decode_raw_elements(part)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(where, f"what was said cannot be read ({error})") from error
    for place, element in enumerate(elements):
        if place in chosen and element[:1] == b"[":
            elements[place] = b'{"erased":"%b"}' % _to_base64(sha256(element).digest())
    return b"[%b]" % b",".join(elements)
