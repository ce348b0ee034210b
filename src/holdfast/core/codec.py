"""Entries as lines of JSON, and the chain that ties them together.

    {"v":1,"seq":7,"at":"2026-11-15T19:29:38.123456Z","run":"a-1b2c3d4e","step":2,"kind":"message.added",
     "body":{…},"content":{…},"salt":"…","sum":"…"}

    salt      = 12 random bytes, for the content; the body's is the first 12 bytes of sha256(salt ‖ "body")
    digest    = sha256(salt ‖ content), or nothing in a line without content
    envelope  = [v,seq,at,run,step,kind,must] as JSON without blanks
    sum       = sha256(sum of entry seq-1 ‖ digest ‖ envelope ‖ sha256(body's salt ‖ body))

Body and content enter as the bytes that stand in the line. An erased line has `"erased": digest` in place of
the content, and `"body_salt"` in place of the salt: the chain holds, and without the salt the digest says
nothing about what was there. Binary values are base64url without padding. `docs/format.md` draws it all.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import BadInput, Corrupt, NewerFormat
from ..limits import LINE_BYTES_MAX
from ..system import processes, randomness
from .entries import KIND_OF, KINDS, MUST, AdapterBody, Body, Entry, UnknownBody, body_class

VERSION: Final = 1
"""Version of the line format. A reader refuses lines of a higher version."""

GENESIS: Final = ""
"""The sum that the first entry of a journal follows."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A stored line; fields with their default value are left out."""

    v: int
    seq: int
    at: str
    run: str | None = None
    step: int = 0
    kind: str
    must: bool = False
    body: Raw
    content: Raw | UnsetType = UNSET
    salt: str = ""
    body_salt: str = ""
    erased: str = ""
    sum: str


class Sealed(Struct, frozen=True, gc=False):
    """An entry, the line that holds it, and the line's `sum`."""

    entry: Entry
    line: bytes
    sum: str


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(Line).decode
# All decoders are made at import, not at first use: two threads that make msgspec inspect the same class for
# the first time at the same moment crash the interpreter.
_decoders: dict[str, Callable[[bytes | Raw], Body]] = {
    kind: msgspec.json.Decoder(cls).decode for kind, cls in KINDS.items()
}


def _to_base64(data: bytes) -> bytes:
    return b2a_base64(data, newline=False).translate(_URLSAFE, b"=")


_URLSAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URLSAFE = bytes.maketrans(b"-_", b"+/")


def _from_text(text: str) -> bytes:
    # Padding that is not needed does no harm.
    return a2b_base64(text.encode("ascii").translate(_FROM_URLSAFE) + b"==")


def _timestamp(at: datetime) -> str:
    # Always six digits, so that the text sorts as the time does.
    stamp = _encode(at).decode()
    return stamp if at.microsecond else f'{stamp[:-2]}.000000Z"'


class _Salts:
    """Random salts, each with the body's salt and its text, made in bulk: each call to the operating system
    releases the interpreter lock."""

    BYTES = 12
    MANY = 256

    def __init__(self) -> None:
        self._ready: list[tuple[bytes, bytes, bytes]] = []
        # A child process must not use the same salts as its parent.
        processes.register_at_fork(after_in_child=self._ready.clear)

    def take(self) -> tuple[bytes, bytes, bytes]:
        try:
            return self._ready.pop()
        except IndexError:
            self._ready.extend(self._make(randomness.urandom(self.MANY * self.BYTES)))
            return self._ready.pop()

    def _make(self, data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
        text, size = _to_base64(data), self.BYTES
        for start in range(0, len(data), size):
            salt = data[start : start + size]
            # Three bytes are four characters, so the text can be cut where the bytes are.
            yield salt, _body_salt(salt), text[start * 4 // 3 : (start + size) * 4 // 3]


_take_salt = _Salts().take


def encode_body(body: Body) -> bytes:
    """A body as JSON, or `BadInput`."""
    try:
        if body.__class__ in KIND_OF:
            return _encode(body)
        if isinstance(body, UnknownBody):
            return bytes(body.data)
        return _encode(body.data if isinstance(body, AdapterBody) else body)
    except (TypeError, UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{type(body).__name__} cannot be written as JSON: {error}") from error


def write_body(body: Body, kind: str) -> tuple[bytes, Body]:
    """A body as JSON, and as it will be read; `BadInput` if it could not be read back."""
    data = encode_body(body)
    try:
        decode = _decoders.get(kind)
        return data, _decode_body(kind, data) if decode is None else decode(data)
    except msgspec.DecodeError as error:
        raise BadInput(f"this cannot be recorded as {kind}: {error}") from error


def check(body: Body, content: bytes | None, *, kind: str | None = None) -> None:
    """Raise `BadInput` if `seal` would."""
    write_body(body, KIND_OF[type(body)] if kind is None else kind)
    if content is not None:
        _check_content(content)


def _check_content(content: bytes) -> None:
    if b"\n" in content:
        raise BadInput("the content of an entry is JSON in one line")
    if len(content) > LINE_BYTES_MAX:
        raise BadInput(f"an entry of {len(content):,} bytes is over the limit of {LINE_BYTES_MAX:,}")


class _Shape(Struct, frozen=True, gc=False):
    """The parts that all lines of a kind share."""

    kind: str
    must: bool
    envelope_end: str
    start_end: str

    @classmethod
    def of(cls, kind: str, must: bool) -> _Shape:
        word, said = ("true", ',"must":true') if must else ("false", "")
        return cls(kind, must, f',"{kind}",{word}]', f',"kind":"{kind}"{said},"body":')


_SHAPES = {cls: _Shape.of(kind, cls in MUST) for cls, kind in KIND_OF.items()}


def seal(
    body: Body,
    seq: int,
    at: datetime,
    run: str | None,
    step: int,
    after: str,
    content: bytes | None = None,
    *,
    kind: str | None = None,
) -> Sealed:
    """Make the entry that follows the one with the sum `after`.

    The line is put together by hand, because this is done for every entry: ids and kinds need no escaping.
    """
    shape = _SHAPES[type(body)] if kind is None else _Shape.of(kind, type(body) in MUST)
    # The body as a reader will decode it.
    data, body = write_body(body, shape.kind)
    stamp = _timestamp(at)
    named = "null" if run is None else f'"{run}"'
    envelope = f"[{VERSION},{seq},{stamp},{named},{step}{shape.envelope_end}"
    ran = "" if run is None else f',"run":{named}'
    start = f'{{"v":{VERSION},"seq":{seq},"at":{stamp}{ran},"step":{step}{shape.start_end}'
    salt, body_salt, salt_text = _take_salt()
    said = digest = b""
    raw: Raw | None = None
    if content is not None:
        _check_content(content)
        digest = sha256(salt + content).digest()
        said, raw = b',"content":' + content, Raw(content)
    fact = sha256(body_salt + data).digest()
    sum = _to_base64(sha256(b"".join((after.encode(), digest, envelope.encode(), fact))).digest())
    line = b"".join((start.encode(), data, said, b',"salt":"', salt_text, b'","sum":"', sum, b'"}'))
    entry = Entry(
        seq=seq, at=at, run=run, step=step, kind=shape.kind, must=shape.must, body=body, content=raw
    )
    return Sealed(entry, line, sum.decode())


def parse(line: bytes | str, where: str, *, seq: int | None = None) -> Line:
    """The line's fields, or `Corrupt`; `NewerFormat` for lines that this version cannot read.

    `seq` is the expected one, for the error.
    """
    try:
        parsed = _decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(where, f"not a line of a journal ({error})", seq=seq) from error
    if parsed.v > VERSION:
        raise NewerFormat(f"{where}: entry {parsed.seq} has format {parsed.v}; this holdfast reads {VERSION}")
    return parsed


def _body_salt(salt: bytes) -> bytes:
    return sha256(salt + b"body").digest()[:12]


def _digest(line: Line, salt: bytes) -> bytes:
    if line.content is not UNSET:
        return sha256(salt + memoryview(line.content)).digest()
    return _from_text(line.erased)


def _body_digest(line: Line, salt: bytes) -> bytes:
    body_salt = _from_text(line.body_salt) if line.body_salt else _body_salt(salt)
    return sha256(body_salt + memoryview(line.body)).digest()


def sum_of(line: Line, after: str, where: str) -> str:
    """The `sum` that the line must have when it follows `after`."""
    try:
        salt = _from_text(line.salt)
        digest, fact = _digest(line, salt), _body_digest(line, salt)
    except (ValueError, Base64Error) as error:
        raise Corrupt(where, "its salt or digest is not base64", seq=line.seq) from error
    envelope = _encode((line.v, line.seq, line.at, line.run, line.step, line.kind, line.must))
    return _to_base64(sha256(after.encode() + digest + envelope + fact).digest()).decode()


def _decode_body(kind: str, data: bytes | Raw) -> Body:
    decode = _decoders.get(kind)
    if decode is not None:
        return decode(data)
    if body_class(kind) is AdapterBody:
        return AdapterBody(data=msgspec.json.decode(data))
    return UnknownBody(data=Raw(bytes(data)))


def open_line(line: Line, where: str) -> Entry:
    """The entry in a parsed line."""
    body: Body
    try:
        try:
            body = _decode_body(line.kind, line.body)
        except msgspec.ValidationError:
            # Valid JSON with an unknown value: a newer version wrote it.
            body = UnknownBody(data=line.body.copy())
        at = datetime.fromisoformat(line.at)
        if at.tzinfo is None:
            raise ValueError(f"{line.at} is a time without a zone")
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Corrupt(where, f"not an entry of kind {line.kind} ({error})", seq=line.seq) from error
    return Entry(
        seq=line.seq,
        at=at,
        run=line.run,
        step=line.step,
        kind=line.kind,
        must=line.must,
        body=body,
        content=None if line.content is UNSET else line.content,
        erased=bool(line.erased),
    )


class Chain:
    """Reads lines in order and detects gaps, altered lines and torn tails.

    `seq` and `sum` are those of the last accepted line.
    """

    def __init__(self, where: str, seq: int = 0, sum: str = GENESIS) -> None:
        self.where, self.seq, self.sum = where, seq, sum

    def check(self, line: bytes | str) -> Line:
        """Accept the next line, or raise `Corrupt` and accept nothing."""
        parsed = parse(line, self.where, seq=self.seq + 1)
        if parsed.seq != self.seq + 1:
            raise Corrupt(self.where, f"expected entry {self.seq + 1}, found entry {parsed.seq}")
        if parsed.sum != sum_of(parsed, self.sum, self.where):
            raise Corrupt(
                self.where, "its sum does not follow from the line before it and its content", seq=parsed.seq
            )
        self.seq, self.sum = parsed.seq, parsed.sum
        return parsed

    def read(self, lines: Iterable[bytes | str]) -> Iterable[Entry]:
        """The entries of the lines, each checked."""
        for line in lines:
            yield open_line(self.check(line), self.where)


def erase(line: bytes, where: str) -> bytes:
    """The line without its content: a digest in place of content and salt, and the same `sum`."""
    parsed = parse(line, where)
    if parsed.content is UNSET:
        return line
    try:
        salt = _from_text(parsed.salt)
    except (ValueError, Base64Error) as error:
        raise Corrupt(where, "its salt is not base64", seq=parsed.seq) from error
    digest, body_salt = _to_base64(_digest(parsed, salt)).decode(), _to_base64(_body_salt(salt)).decode()
    return _encode(
        msgspec.structs.replace(parsed, content=UNSET, salt="", body_salt=body_salt, erased=digest)
    )
