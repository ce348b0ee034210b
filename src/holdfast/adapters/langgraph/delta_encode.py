"""Values of channels as numbered elements: what did not change is not written again.

A value is taken apart: lists and dicts into what they hold, the rest by LangGraph's serializer. Each part
that is longer than a reference becomes an *element*, numbered in its session, and is written once, however
often it comes up. A list or dict that grew is written as what is new, and which one it grew from.

As JSON, a part is text, a number, a truth value or null, or one of

    ["r", n]                      element n
    ["b", form, base64]           bytes of the serializer
    ["m", n, texts]               a message with these texts, of the form in element n
    ["f", names, parts]           a form: the names of the texts, and what the serializer wrote around them
    ["c", form, parts]            bytes of the serializer with large content cut out: base64, ["b", reference]
                                  for bytes, ["t", reference] for a text
    ["u", reference]              a text of large binary content
    ["i", hex]                    an integer of more than 64 bits
    ["l", parts], ["l", parts, n] a list; with n, a part ["k", a, b] is items a to b of the list in element n;
                                  a part ["x", node] is all items of a list of numbers
    ["d", {…}], ["d", {…}, n, gone]  a dict; with n, the one in element n with these keys set and those gone
    ["t", parts]                  a tuple
    ["s", part]                   a snapshot of a delta channel
    ["j", …]                      plain JSON, as it is

Whether something changed is told by looking at the object: the very same one, with the very same things in
its fields. That is quick, and blind to a change inside of a field's own list or dict; `check="bytes"`
serializes everything each time and is not.
"""

from __future__ import annotations

import logging
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from msgspec import Raw

from ...content.extract import Piece, Swap
from ...limits import STATE_DEPTH_MAX
from ...reprs import describe_value
from .blob_extraction import cut_bytes, cut_text
from .change_tracking import CONTAINERS, LastWritten, mark_of
from .delta_decode import ElementReader
from .message_forms import CutMessage, cut_message
from .serde import NOT_ENCODABLE, CheckedSerializer, UnknownValue

log = logging.getLogger("holdfast")
_INLINE_BYTES = 96
"""What is shorter is written where it stands: a reference and its element's number would save nothing."""
_PLAIN_BYTES = 400
"""What LangGraph itself says of a checkpoint is written as a whole, unless the graph is a large one."""
_REBASE_OPS = 64
"""A list that grew more often than this, and more often than it is long, is written as a whole: finding it
again must not take longer than reading it."""

_warned: set[type] = set()
_encode = msgspec.json.Encoder().encode
_NUMBERS = frozenset({int, float, bool})
_NUMBERS_MIN = 16


class Elements(ElementReader):
    """The elements of one session: those that are there, and how to write more.

    Binary content of `inline_bytes` or more is cut out, and belongs into blobs; None cuts out nothing.
    """

    def __init__(
        self, serde: SerializerProtocol, *, trust_objects: bool, inline_bytes: int | None = None
    ) -> None:
        super().__init__(serde)
        self._swap = Swap(inline_bytes)
        self._trust_objects = trust_objects
        self.next = 0
        self._numbers: dict[bytes, int] = {}
        """The number of each element, by its digest …"""
        self._unnumbered: list[int] = []
        """… except these, which were read and not looked for yet."""
        self._fresh: list[bytes] = []

    def clear(self) -> None:
        """Drop all elements; numbering continues."""
        self.raw.clear()
        self.parts.clear()
        self._forms.clear()
        self._templates.clear()
        self._numbers.clear()
        self._unnumbered.clear()
        self.bytes = 0

    def add(self, found: Mapping[int, Raw], size: int) -> None:
        """Elements that were read, by their numbers, and about how many bytes they are."""
        self.raw.update(found)
        self._unnumbered += found
        self.bytes += size

    def add_parts(self, found: Mapping[int, Any], size: int) -> None:
        """The same of elements that were decoded."""
        self.parts.update(found)
        self._unnumbered += found
        self.bytes += size

    # -- writing -------------------------------------------------------------------------------------

    def take_fresh(self) -> tuple[int, list[bytes]]:
        """What has to be written for the nodes that were made since: the first number, and the elements."""
        fresh, self._fresh = self._fresh, []
        return self.next - len(fresh), fresh

    def take_pieces(self) -> tuple[Piece, ...]:
        """The blobs that must be there before these elements are written."""
        pieces, self._swap.pieces = tuple(self._swap.pieces.values()), {}
        return pieces

    def write(
        self, value: Any, kept: LastWritten | None = None, depth: int = 0
    ) -> tuple[bytes, LastWritten | None]:
        """The value as JSON, and how it was written; `kept` is how it was the last time."""
        cls = value.__class__
        if depth < STATE_DEPTH_MAX:
            if cls is list:
                return self._write_list(value, kept, depth)
            if cls is dict and all(key.__class__ is str for key in value):
                return self._write_dict(value, kept, depth)
            if cls is tuple:
                nodes = [self.write(one, None, depth + 1)[0] for one in value]
                return self._place(b'["t",[' + b",".join(nodes) + b"]]"), None
            if cls is _DeltaSnapshot:
                node, kid = self.write(value.value, kept, depth + 1)
                return b'["s",' + node + b"]", kid
        return self._leaf(value), None

    def write_plain(
        self, value: dict[str, Any], kept: LastWritten | None
    ) -> tuple[bytes, LastWritten | None]:
        """The same for a value that is short and JSON, most of the time: then it is written as it is."""
        try:
            text = _encode(value)
            if len(text) <= _PLAIN_BYTES and msgspec.json.decode(text) == value:
                return b'["j",' + text + b"]", kept
        except (TypeError, ValueError):
            pass  # Something in it is not.
        swap, self._swap = self._swap, Swap(None)  # It is read without looking for blobs.
        try:
            return self.write(value, kept)
        finally:
            self._swap = swap

    def write_map(self, nodes: Mapping[str, bytes], kept: LastWritten | None) -> tuple[bytes, LastWritten]:
        """A dict of what was written before."""
        made = LastWritten(list(nodes))
        made.nodes = list(nodes.values())
        self._close_dict(made, kept)
        return made.node, made

    def _write_list(self, value: list[Any], old: LastWritten | None, depth: int) -> tuple[bytes, LastWritten]:
        if old is not None and old.keys is not None:
            old = None
        if len(value) >= _NUMBERS_MIN and _NUMBERS.issuperset(map(type, value)):
            return self._write_numbers(value, old)
        if old is not None and old.numbers:
            old = None
        if old is not None and self._trust_objects and old.begins(value):
            return self._extend(value, old, depth)
        made = LastWritten(None)
        places: dict[int, int] = {} if old is None else {id(one): at for at, one in enumerate(old.items)}
        for place, item in enumerate(value):
            self._add(made, item, old, places.get(id(item), place), depth)
        if old is not None and made.nodes == old.nodes:
            made.node, made.number, made.ops = old.node, old.number, old.ops
            return made.node, made
        if old is None or old.number is None or old.ops >= max(_REBASE_OPS, len(made.nodes)):
            self._close_list(made, made.nodes)
        else:
            self._close_list(made, _parts(old.nodes, made.nodes), old)
        return made.node, made

    def _write_numbers(self, value: list[Any], old: LastWritten | None) -> tuple[bytes, LastWritten]:
        """Numbers are compared and written all at once: there may be many, and none is worth a reference."""
        made = LastWritten(None)
        made.items, made.numbers = list(value), True
        before = [] if old is None or not old.numbers or old.number is None else old.items
        count = len(before)
        if (
            old is None
            or not count
            or value[:count] != before
            or [*map(type, value[:count])] != [*map(type, before)]
        ):
            self._close_list(made, [b'["x",' + self._place(self._serialize(value)) + b"]"])
        elif len(value) == count:
            return old.node, old
        else:
            more = b'["x",' + self._place(self._serialize(value[count:])) + b"]"
            self._close_list(made, [b'["k",0,%d]' % count, more], old)
        return made.node, made

    def _extend(self, value: list[Any], old: LastWritten, depth: int) -> tuple[bytes, LastWritten]:
        count = len(old.items)
        if len(value) == count:
            return old.node, old
        for item in value[count:]:
            self._add(old, item, None, 0, depth)
        if old.number is None or old.ops >= max(_REBASE_OPS, len(value)):
            self._close_list(old, old.nodes)
        else:
            kept = b'["k",0,%d]' % count
            self._close_list(old, [kept, *old.nodes[count:]] if count else old.nodes, old)
        return old.node, old

    def _add(self, made: LastWritten, item: Any, old: LastWritten | None, place: int, depth: int) -> None:
        if item.__class__ in CONTAINERS:
            node, kid = self.write(item, None if old is None else old.kids.get(place), depth + 1)
            made.add(item, None, node, kid)
            return
        found = old.find(place, item) if old is not None and self._trust_objects else None
        made.add(item, mark_of(item) if self._trust_objects else None, found or self._leaf(item), None)

    def _close_list(self, made: LastWritten, parts: Sequence[bytes], base: LastWritten | None = None) -> None:
        body = b'["l",[' + b",".join(parts) + b"]"
        self._close(made, body, base, b"")

    def _write_dict(
        self, value: dict[str, Any], old: LastWritten | None, depth: int
    ) -> tuple[bytes, LastWritten]:
        if old is not None and old.keys is None:
            old = None
        made = LastWritten(list(value))
        places = {} if old is None or old.keys is None else {key: at for at, key in enumerate(old.keys)}
        for key, item in value.items():
            self._add(made, item, old, places.get(key, len(places)), depth)
        self._close_dict(made, old)
        return made.node, made

    def _close_dict(self, made: LastWritten, old: LastWritten | None) -> None:
        keys, nodes = made.keys or [], made.nodes
        if old is None or old.keys is None or old.number is None or old.ops >= max(_REBASE_OPS, len(keys)):
            old = None
        if old is None or old.keys is None:
            self._close(made, b'["d",' + _members(zip(keys, nodes, strict=True)), None, b"")
            return
        if keys == old.keys and nodes == old.nodes:
            made.node, made.number, made.ops = old.node, old.number, old.ops
            return
        before = dict(zip(old.keys, old.nodes, strict=True))
        changed = {key: node for key, node in zip(keys, nodes, strict=True) if before.get(key) != node}
        now = set(keys)
        gone = [key for key in old.keys if key not in now]
        left = [key for key in old.keys if key in now]
        if keys != left + [key for key in changed if key not in before]:
            self._close(made, b'["d",' + _members(zip(keys, nodes, strict=True)), None, b"")
            return
        self._close(made, b'["d",' + _members(changed.items()), old, b"," + _encode(gone))

    def _close(self, made: LastWritten, body: bytes, base: LastWritten | None, tail: bytes) -> None:
        if base is not None:
            assert base.number is not None
            made.ops = base.ops + 1
            made.node = body + b",%d" % base.number + tail + b"]"
        else:
            made.ops = 0
            made.node = body + b"]"
        made.number = None
        if len(made.node) > _INLINE_BYTES or base is not None or made.numbers:
            made.number = self._number(made.node)
            made.node = b'["r",%d]' % made.number

    def _leaf(self, value: Any) -> bytes:
        cls = value.__class__
        # Another serializer may encrypt: no part of a value may bypass it.
        if isinstance(self.serde, CheckedSerializer):
            if value is None or cls is bool:
                return _encode(value)
            if cls is int:
                return _encode(value) if -(2**63) <= value < 2**64 else b'["i","%s"]' % hex(value).encode()
            if cls is float and math.isfinite(value):
                return _encode(value)
            if cls is str:
                cut = cut_text(value, self._swap)
                if cut is not None:
                    return self._refer(cut)
                try:
                    return self._place(_encode(value))
                except UnicodeEncodeError:
                    pass  # The serializer knows what to do with it.
        form, data = self._dump(value)
        cut = cut_bytes(form, data, self._swap)
        if cut is not None:
            return self._refer(cut)
        if isinstance(self.serde, CheckedSerializer):
            message = cut_message(value, form, data)
            if message is not None:
                return self._place(self._write_message(message))
        return self._place(_inline(form, data))

    def _write_message(self, message: CutMessage) -> bytes:
        parts = b'","'.join([b64encode(part) for part in message.parts])
        number = self._number(b'["f",%b,["%b"]]' % (_encode(message.names), parts))
        return b'["m",%d,%b]' % (number, _encode(message.texts))

    def _refer(self, cut: bytes) -> bytes:
        self.has_blobs = True
        return b'["r",%d]' % self._number(cut)

    def _serialize(self, value: Any) -> bytes:
        return _inline(*self._dump(value))

    def _dump(self, value: Any) -> tuple[str, bytes]:
        try:
            return self.serde.dumps_typed(value)
        except Exception as error:
            cls = value.__class__
            if cls not in _warned:
                _warned.add(cls)
                name = f"{cls.__module__}.{cls.__qualname__}"
                log.warning("a %s in the state cannot be written, and comes back as unknown: %s", name, error)
            said = describe_value(value).encode()
            return self.serde.dumps_typed(UnknownValue(cls.__module__, cls.__qualname__, NOT_ENCODABLE, said))

    def _place(self, node: bytes) -> bytes:
        """The node itself if it is short, else a reference to it."""
        return node if len(node) <= _INLINE_BYTES else b'["r",%d]' % self._number(node)

    def _number(self, node: bytes) -> int:
        if self._unnumbered:
            self._numbers.update((_digest(self.get_raw(number)), number) for number in self._unnumbered)
            self._unnumbered.clear()
        digest = _digest(node)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = self.next
            self.next += 1
            self.raw[number] = Raw(node)
            self.bytes += len(node)
            self._fresh.append(node)
        return number


def is_snapshot(node: bytes) -> bool:
    """Whether it is a snapshot of a delta channel."""
    return node.startswith(b'["s",')


def _inline(form: str, data: bytes) -> bytes:
    return b'["b",' + _encode(form) + b',"' + b64encode(data) + b'"]'


def _digest(node: bytes | Raw) -> bytes:
    return blake2b(node, digest_size=16).digest()


def _members(pairs: Any) -> bytes:
    return b"{" + b",".join(_encode(key) + b":" + node for key, node in pairs) + b"}"


def _parts(old: Sequence[bytes], new: Sequence[bytes]) -> list[bytes]:
    """A list as runs of an old one, and what is new in between."""
    places = {node: at for at, node in reversed(list(enumerate(old)))}
    parts: list[bytes] = []
    start = stop = 0

    def end_run() -> None:
        if stop - start == 1:
            parts.append(old[start])  # As short as naming its place.
        elif stop > start:
            parts.append(b'["k",%d,%d]' % (start, stop))

    for node in new:
        if stop > start and stop < len(old) and old[stop] == node:
            stop += 1
            continue
        end_run()
        start = stop = places.get(node, 0)
        if node in places:
            stop = start + 1
        else:
            parts.append(node)
    end_run()
    return parts
