"""Bytes on their way: cut to one size, and checked against their digest when all have passed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from ..errors import BadInput, Corrupt


def even_parts(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in parts of `size`; only the last one may be shorter, and none is empty."""
    left = bytearray()
    for part in parts:
        view = memoryview(part)
        while view:
            taken = view[: size - len(left)]
            left += taken
            view = view[len(taken) :]
            if len(left) == size:
                yield bytes(left)
                left.clear()
    if left:
        yield bytes(left)


def checked_in(digest: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Pass the parts on; `BadInput` in place of an end if they have another digest."""
    actual = hashlib.sha256()
    for part in parts:
        actual.update(part)
        yield part
    if actual.hexdigest() != digest:
        raise BadInput(f"these bytes have the SHA-256 {actual.hexdigest()}, not {digest}; nothing was stored")


def checked_out(digest: str, parts: Iterable[bytes], home: str) -> Iterator[bytes]:
    """Pass the parts on; `Corrupt` in place of an end if they have another digest."""
    actual, size = hashlib.sha256(), 0
    for part in parts:
        actual.update(part)
        size += len(part)
        yield part
    if actual.hexdigest() != digest:
        raise Corrupt(
            f"blob {digest} in {home}", f"its {size} bytes have the SHA-256 {actual.hexdigest()} by now"
        )
