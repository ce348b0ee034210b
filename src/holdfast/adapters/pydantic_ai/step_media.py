"""Files in the messages of histories: kept as blobs when they are stored, and put back when they are read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...content.extract import Swap, put_back
from ...content.lazy import Place, Shared
from ...content.references import MARK

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode


def pack(message: bytes, swap: Swap) -> bytes:
    """A message, as JSON, as it is stored. What is large in it is a piece of `swap` by then."""
    if MARK not in message and not swap.is_large(len(message)):
        return message
    packed = _encode(swap.message(_decode(message)))
    return packed if MARK in packed else message


class Unpacking:
    """Messages as they were, each blob read once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._read: dict[str, Shared] = {}

    def unpack(self, messages: Iterable[bytes]) -> list[bytes]:
        """The messages; `LostBlob` if a file of theirs cannot be had. Blocks."""
        return [
            _encode(put_back(_decode(message), self._get)) if MARK in message else message
            for message in messages
        ]

    def _get(self, digest: str) -> bytes:
        known = self._read.get(digest) or self._read.setdefault(digest, self._place.share(digest))
        return known.data
