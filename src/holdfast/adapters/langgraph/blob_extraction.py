"""Large binary content, cut out of what the serializer wrote and put back byte for byte.

Two messages that show the same picture are two elements; the picture in them is one blob. It is found in
msgpack by the heads that stand before long bytes and texts, however deep they are nested. A text counts if it
is base64, or a data URL, and is kept as the bytes that it says. What merely looks like such a head costs
nothing but a blob: all that is done with the pieces is to put them together again.

Bytes of another form (as they are, or encrypted) are kept as a whole.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ...content.extract import Swap
from ...content.references import Reference, get_digest, parse_reference

_encode = msgspec.json.Encoder().encode
_HEAD: Final = re.compile(rb"[\xc6\xdb].{4}|[\xc5\xda].{2}", re.DOTALL)
"""Before bytes and before text, with their length in four bytes or in two. What is shorter stays inline."""
_TEXTS: Final = frozenset(b"\xda\xdb")


def cut_text(text: str, swap: Swap) -> bytes | None:
    """The node of a text that is large binary content; None if it is none."""
    reference = _take_text(text, swap)
    return None if reference is None else b'["u",' + _encode(reference) + b"]"


def cut_bytes(form: str, data: bytes, swap: Swap) -> bytes | None:
    """The node of what the serializer wrote; None if there is nothing to cut out."""
    if not swap.is_large(len(data)):
        return None
    if form != "msgpack":
        return _node(form, [["b", _take(data, swap)]])
    parts: list[Any] = []
    done = 0
    for is_text, start, stop in _spans(data, swap):
        found = _take_text(data[start:stop].decode("ascii", "replace"), swap) if is_text else None
        if is_text and found is None:
            continue
        parts.append(b64encode(data[done:start]).decode())
        parts.append(["b", _take(data[start:stop], swap)] if found is None else ["t", found])
        done = stop
    return _node(form, [*parts, b64encode(data[done:]).decode()]) if parts else None


def join_bytes(parts: list[Any], read: Callable[[str], bytes]) -> bytes:
    """What was cut into these parts."""
    return b"".join(_join(part, read) for part in parts)


def join_text(reference: str, read: Callable[[str], bytes]) -> str:
    """The text that was cut out."""
    found = parse_reference(reference)
    assert found is not None, reference
    return str(found.put_back(read(found.digest)))


def iter_digests(node: list[Any]) -> Iterator[str]:
    """The blobs that a node refers to."""
    if node[0] == "u":
        yield get_digest(node[1])
    elif node[0] == "c":
        yield from (get_digest(part[1]) for part in node[2] if isinstance(part, list))


def _join(part: Any, read: Callable[[str], bytes]) -> bytes:
    if isinstance(part, str):
        return b64decode(part)
    kind, reference = part
    return read(get_digest(reference)) if kind == "b" else join_text(reference, read).encode()


def _node(form: str, parts: list[Any]) -> bytes:
    return b'["c",' + _encode(form) + b"," + _encode(parts) + b"]"


def _take(data: bytes, swap: Swap) -> str:
    return str(Reference(swap.take(data)))


def _take_text(text: str, swap: Swap) -> str | None:
    if not swap.is_large(len(text) * 3 // 4):
        return None
    stored = swap.result(text)
    return None if parse_reference(stored) is None else stored


def _spans(data: bytes, swap: Swap) -> Iterator[tuple[bool, int, int]]:
    """Where long bytes and texts stand: whether it is a text, and its two ends."""
    place = 0
    while (head := _HEAD.search(data, place)) is not None:
        start = head.end()
        stop = start + int.from_bytes(head[0][1:], "big")
        if stop <= len(data) and swap.is_large(stop - start):
            yield head[0][0] in _TEXTS, start, stop
            place = stop
        else:
            place = head.start() + 1
