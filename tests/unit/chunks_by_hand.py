"""Chunks of a journal put together by the description of the format alone, without the codec."""

import base64
import hashlib
import json
from typing import Any, NamedTuple

from holdfast.core.codec import Chunk


class EntryByHand(NamedTuple):
    """An entry of a chunk. `run`: if it is not that of the chunk; empty for none."""

    kind: str
    body: Any
    must: bool = False
    details: Any = None
    content: Any = None
    run: str | None = None


def chunk(
    seq: int,
    *entries: EntryByHand,
    after: str,
    run: str | None = None,
    offsets_us: list[int] | None = None,
    v: int = 2,
) -> Chunk:
    """A chunk that begins with entry `seq` and follows the one with the sum `after`."""
    facts: dict[str, Any] = {"v": v, "seq": seq, "at": "2026-11-15T19:29:38.123456Z"}
    if run is not None:
        facts["run"] = run
    facts["step"] = 1
    if offsets_us is not None:
        facts["us"] = offsets_us
    facts["entries"] = [_entry_facts(one) for one in entries]
    details = _part([one.details for one in entries], b"d", facts, "details")
    said = _part([one.content for one in entries], b"s", facts, "said")
    facts["salt"] = text(bytes(range(12)))
    data = compact(facts)
    return Chunk(
        seq=seq + len(entries) - 1,
        sum=text(hashlib.sha256(after.encode() + data).digest()),
        facts=data,
        details=details,
        said=said,
    )


def entry(kind: str, body: Any, **more: Any) -> EntryByHand:
    """An entry of a chunk."""
    return EntryByHand(kind, body, **more)


def _entry_facts(one: EntryByHand) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": one.kind}
    if one.must:
        facts["must"] = True
    facts["body"] = one.body
    if one.run is not None:
        facts["run"] = one.run
    return facts


def _part(values: list[Any], salt: bytes, facts: dict[str, Any], name: str) -> bytes | None:
    """Details or said, whose digest is written into the facts."""
    if all(value is None for value in values):
        return None
    elements = [compact(None if value is None else [text(salt * 12), value]) for value in values]
    facts[name] = text(hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in elements)).digest())
    return b"[%b]" % b",".join(elements)


def compact(value: Any) -> bytes:
    """JSON without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def text(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unpack(data: str) -> bytes:
    """The bytes of base64url without padding."""
    return base64.urlsafe_b64decode(data + "=" * (-len(data) % 4))


def digest(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()
