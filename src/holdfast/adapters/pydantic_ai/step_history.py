"""Which messages of a history are stored already. Only the others are serialised at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from hashlib import blake2b
from types import NoneType
from typing import Any, Final

import msgspec
from msgspec import Struct
from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from ...content.extract import Piece, Swap, put_back
from ...content.lazy import BlobReader, Shared
from ...content.references import MARK
from .step_fold import Snapshot, Steps

_UNEQUAL: Final = (b'"media_type"', b'"identifier"')
"""What stands in messages with fields that their own comparison leaves out."""


class _StoredMessage(Struct, frozen=True):
    """A message as it was stored. The copy is ours: a caller may go on changing what it gave."""

    fields: dict[str, Any]
    usage: dict[str, Any] | None
    data: bytes
    """What stands in the journal."""
    digest: bytes | None
    """Of its JSON, if equality does not see all of it."""

    @classmethod
    def of(cls, message: ModelMessage, swap: Swap) -> _StoredMessage:
        plain, fields = dump(message), _copy(message.__dict__)
        usage = fields["usage"].__dict__ if fields.get("usage") is not None else None
        blind = any(mark in plain for mark in _UNEQUAL)
        return cls(fields, usage, pack(plain, swap), _digest(plain) if blind else None)

    def is_same(self, given: ModelMessage) -> bool:
        """Field by field, as they compare messages themselves (`kind` tells them apart); where that leaves
        something out, as JSON."""
        if self.fields != given.__dict__:
            return False
        return self.digest is None or _digest(dump(given)) == self.digest


class Delta(Struct, frozen=True):
    """What a history adds to an earlier one."""

    base: Snapshot | None
    keep: int
    own: Sequence[bytes]
    pieces: tuple[Piece, ...]
    """The blobs that `own` refers to."""


class Histories:
    """The last history of each run, to compare the next one with."""

    def __init__(self, steps: Steps, inline_bytes: int | None) -> None:
        self._steps, self._inline_bytes = steps, inline_bytes
        self._last: dict[str, tuple[int, list[_StoredMessage]]] = {}
        """By run: as which of its snapshots it was stored, and the messages."""

    def add(self, run_id: str, messages: Sequence[ModelMessage]) -> Delta:
        """What of these is new. They are remembered as the run's next snapshot."""
        run = self._steps.find(run_id)
        stored = [] if run is None else run.snapshots
        place, kept = self._last.get(run_id, (0, []))
        swap = Swap(self._inline_bytes)
        if stored and place == len(stored) and not stored[-1].erased:
            base: Snapshot | None = stored[-1]
            keep = _count_same(kept, messages)
            fresh = [_StoredMessage.of(message, swap) for message in messages[keep:]]
        else:
            # Stored by another process, or by another run of the conversation.
            fresh = [_StoredMessage.of(message, swap) for message in messages]
            base, keep = self._find_base([one.data for one in fresh])
            kept, fresh = fresh, fresh[keep:]
        self._last[run_id] = len(stored) + 1, [*kept[:keep], *fresh]
        return Delta(base, keep, [one.data for one in fresh], tuple(swap.pieces.values()))

    def list_needed(self, run_id: str) -> list[Snapshot]:
        """The snapshots whose messages `add` looks at."""
        run = self._steps.find(run_id)
        stored = [] if run is None else run.snapshots
        place, _ = self._last.get(run_id, (0, []))
        is_known = stored and place == len(stored) and not stored[-1].erased
        return [] if is_known else self._steps.list_recent()

    def forget(self, run_id: str) -> None:
        """Drop the last history of a run: it was not stored."""
        self._last.pop(run_id, None)

    def _find_base(self, messages: Sequence[bytes]) -> tuple[Snapshot | None, int]:
        """The stored history that has most of these at its beginning, and how many."""
        best, most = None, 0
        for one in self._steps.list_recent():
            same = 0
            for ours, theirs in zip(messages, one.list_messages(), strict=False):
                if ours != theirs:
                    break
                same += 1
            if same > most:
                best, most = one, same
        return best, most


def _count_same(kept: Sequence[_StoredMessage], messages: Sequence[ModelMessage]) -> int:
    """How many messages at the beginning are as they were."""
    given = [message.__dict__ for message in messages[: len(kept)]]
    for one, said in zip(kept, given, strict=False):
        # Their comparison of usages takes longer than all the rest: spare it for those that are equal.
        usage = said.get("usage")
        if usage is not None:
            one.fields["usage"] = usage if usage.__dict__ == one.usage else None
    # All at once first: nearly always, nothing has changed, and this is done for every step.
    if [one.fields for one in kept[: len(given)]] == given and all(one.digest is None for one in kept):
        return len(given)
    same = 0
    for one, message in zip(kept, messages, strict=False):
        if not one.is_same(message):
            break
        same += 1
    return same


def _copy(value: Any) -> Any:
    """A deep copy of what is a tree, for it could be dumped; `deepcopy` takes many times as long."""
    cls = value.__class__
    if cls in _ATOMS:
        return value
    if cls is list:
        return [_copy(one) for one in value]
    if cls is dict:
        return {_copy(key): _copy(one) for key, one in value.items()}
    if _is_plain(cls):
        made = object.__new__(cls)
        made.__dict__.update(_copy(value.__dict__))
        return made
    return deepcopy(value)


@cache
def _is_plain(cls: type) -> bool:
    """Whether it is a dataclass of pydantic-ai with nothing but fields, and can be copied by them."""
    theirs = cls.__module__.partition(".")[0] == "pydantic_ai"
    slotted = any("__slots__" in vars(one) for one in cls.__mro__)
    return theirs and is_dataclass(cls) and not slotted


_ATOMS: Final = frozenset({str, int, float, bool, NoneType, bytes, datetime})


def _digest(plain: bytes) -> bytes:
    return blake2b(plain, digest_size=16).digest()


def dump(message: ModelMessage) -> bytes:
    """One message as JSON: without nulls and zeros of its usage, if that gives back the very same message."""
    whole = ModelMessagesTypeAdapter.dump_json([message])
    short = ModelMessagesTypeAdapter.dump_json(
        [message], exclude_none=True, exclude={0: _find_zeros(message)}
    )
    try:
        same = ModelMessagesTypeAdapter.dump_json(ModelMessagesTypeAdapter.validate_json(short)) == whole
    except ValidationError:
        same = False
    return (short if same else whole)[1:-1]


def _find_zeros(message: ModelMessage) -> dict[str, set[str]]:
    """What its usage has not counted: most of a dozen fields. A cost of zero is known, and stays."""
    usage = getattr(message, "usage", None)
    if not is_dataclass(usage):
        return {}
    names = {one.name for one in fields(usage)} - {"cost"}
    return {"usage": {name for name in names if not getattr(usage, name, True)}}


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

    def __init__(self, place: BlobReader) -> None:
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
