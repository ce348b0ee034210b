"""Decode many stored lines at once, for readers that need only some kinds of entries.

`codec` decodes one line. Here, lines stay joined in one buffer and are decoded together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain, pairwise
from typing import Annotated, Any, Protocol, Union, overload

import msgspec
from msgspec import Meta, Raw

from ..errors import Corrupt
from ..limits import OPEN_LINES
from ..messages import Message
from .codec import VERSION, open_line, parse
from .entries import KINDS, Body


class Lines(Sequence[bytes]):
    """Lines joined by newlines, which are split on first access."""

    def __init__(self, joined: bytes, count: int) -> None:
        self.joined, self._count = joined, count

    @cached_property
    def _apart(self) -> list[bytes]:
        return self.joined.split(b"\n")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._apart)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return self._apart[index]

    def __eq__(self, other: object) -> bool:
        return self._apart == list(other) if isinstance(other, Sequence) else NotImplemented


class Opened(Protocol):
    """A decoded line: an `Entry`, or one of the structs that an `Opener` returns."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def body(self) -> Body | Raw: ...
    @property
    def content(self) -> Raw | Message | None: ...


# No class statement: each of the many subclasses would resolve the names of its types again.
_EveryLine = msgspec.defstruct(
    "_EveryLine",
    [
        ("v", Annotated[int, Meta(le=VERSION)]),
        ("seq", int),
        ("at", datetime),
        ("run", str | None, None),
        ("step", int, 0),
        ("must", bool, False),
        ("salt", str, ""),
        ("body_salt", str, ""),
        ("erased", str, ""),
        ("sum", str),
    ],
    kw_only=True,
    gc=False,
)


def line_type(bodies: Mapping[str, Any], contents: Mapping[str, Any] = {}) -> Any:
    """The type of a `Line` whose body and content are decoded to these types, by kind. Those of other kinds
    stay as they are stored."""
    lines = [
        msgspec.defstruct(
            "Line",
            [("body", bodies.get(kind, Raw)), ("content", contents.get(kind, Raw), None)],
            bases=(_EveryLine,),
            tag_field="kind",
            tag=kind,
            kw_only=True,
            gc=False,
        )
        for kind in KINDS
    ]
    return Union[tuple(lines)]  # noqa: UP007


def _are_in_order(opened: Sequence[Opened]) -> bool:
    """Whether no line is missing or duplicated."""
    first = opened[0].seq if opened else 0
    return [line.seq for line in opened] == list(range(first, first + len(opened)))


class Opener:
    """Decodes many lines at once, for readers that need only some kinds of entries."""

    def __init__(
        self,
        kinds: Collection[str],
        decoder: msgspec.json.Decoder[Any],
        eager: msgspec.json.Decoder[Any] | None = None,
        may_be_eager: Callable[[bytes], bool] = lambda joined: True,
    ) -> None:
        """The decoders are for a `line_type` of these kinds. `eager` decodes contents, too: it is tried first
        if `may_be_eager`, and `decoder` is used for lines that do not fit it."""
        self._kinds, self._decode = frozenset(kinds), decoder.decode_lines
        self._decode_eagerly = None if eager is None else eager.decode_lines
        self._may_be_eager = may_be_eager

    def open(self, lines: Sequence[bytes], where: str) -> Iterable[Opened]:
        """The same as `parse` and `open_line` for each line, in order. Lines of other kinds may be included,
        with their bodies as they are stored."""
        if isinstance(lines, Lines):
            return self._open(lines.joined, lines, where)
        batches = (lines[at : at + OPEN_LINES] for at in range(0, len(lines), OPEN_LINES))
        return chain.from_iterable(self._open(b"\n".join(batch), batch, where) for batch in batches)

    def _open(self, joined: bytes, lines: Sequence[bytes], where: str) -> Sequence[Opened]:
        for decode in self._decoders_for(joined):
            try:
                opened: list[Opened] = decode(joined)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            if len(opened) == len(lines) and _are_in_order(opened):
                return opened
        # A kind or value of a newer version, or damage: decode one by one to find the line.
        parsed = [parse(line, where) for line in lines]
        for before, line in pairwise(parsed):
            if line.seq != before.seq + 1:
                raise Corrupt(where, f"expected entry {before.seq + 1}, found entry {line.seq}")
        return [open_line(line, where) for line in parsed if line.kind in self._kinds]

    def _decoders_for(self, joined: bytes) -> Iterator[Callable[[bytes], list[Any]]]:
        if self._decode_eagerly is not None and self._may_be_eager(joined):
            yield self._decode_eagerly
        yield self._decode
