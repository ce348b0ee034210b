"""Values of channels, read from numbered elements. `delta_encode.py` describes their format."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from langchain_core import messages
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from msgspec import Raw

from ...content.lazy import Shared
from ...errors import Corrupt
from .blob_extraction import iter_digests, join_bytes, join_text
from .change_tracking import LastWritten
from .serde import CheckedSerializer

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_PACKED = b'["b",'
_TEMPLATE_BYTES = 1200
"""What a template takes in memory beside its texts."""
# Reads the base64 by itself, without a text in between.
_decode_packed = msgspec.json.Decoder(tuple[str, str, bytes]).decode


_MESSAGES: Final[frozenset[Any]] = frozenset(
    {
        messages.AIMessage,
        messages.AIMessageChunk,
        messages.ChatMessage,
        messages.FunctionMessage,
        messages.HumanMessage,
        messages.RemoveMessage,
        messages.SystemMessage,
        messages.ToolMessage,
    }
)
"""Every serializer that checks names knows these, so which one reads a message makes no difference."""
_FIXED: Final = frozenset({str, int, float, bool, type(None), bytes})
_DEPTH_MAX: Final = 16
"""What is nested deeper is decoded anew: it is rare, and copying it must not overflow the stack."""
_set = object.__setattr__


class MessageTemplate:
    """A message as it was decoded. Its copies share nothing mutable with it or with each other."""

    __slots__ = ("_cls", "_extra", "_fields", "_given", "_loose")

    def __init__(self, message: Any, fields: dict[str, Any], loose: list[str]) -> None:
        self._cls, self._fields, self._loose = message.__class__, fields, loose
        self._extra = _copy(message.__pydantic_extra__)
        self._given = tuple(message.__pydantic_fields_set__)

    def copy(self) -> Any:
        """The message, as a new object."""
        made = self._cls.__new__(self._cls)
        fields = self._fields.copy()
        for name in self._loose:
            fields[name] = _copy(fields[name])
        # What a copy by pydantic consists of, without asking for each part whether it is there.
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_fields_set__", set(self._given))
        _set(made, "__pydantic_extra__", _copy(self._extra))
        _set(made, "__pydantic_private__", None)
        return made


def make_template(value: Any) -> MessageTemplate | None:
    """Make the template of a message of plain data; None for other values."""
    if value.__class__ not in _MESSAGES or value.__pydantic_private__ is not None:
        return None
    if not _is_plain(value.__pydantic_extra__, _DEPTH_MAX):
        return None
    fields = vars(value).copy()
    loose = [name for name, one in fields.items() if one.__class__ not in _FIXED]
    for name in loose:
        if not _is_plain(fields[name], _DEPTH_MAX):
            return None
        fields[name] = _copy(fields[name])
    return MessageTemplate(value, fields, loose)


def _is_plain(value: Any, depth: int) -> bool:
    cls = value.__class__
    if cls is dict:
        inner = value.values()
    elif cls is list:
        inner = value
    else:
        return cls in _FIXED
    return not value or (depth > 0 and all(_is_plain(one, depth - 1) for one in inner))


def _copy(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: _copy(one) for key, one in value.items()} if value else {}
    if value.__class__ is list:
        return [_copy(one) for one in value] if value else []
    return value


class ElementReader:
    """The elements that are there."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self.raw: dict[int, Raw] = {}
        self.bytes = 0
        """About what they take in memory, and what is kept of them besides."""
        self.has_blobs = False
        """Whether any of them refers to a blob."""
        self._templates: dict[bytes, MessageTemplate] = {}
        """Of messages that were read before, by the nodes that refer to them."""
        self._blobs: Mapping[str, Shared] = {}
        self._wanted: set[str] | None = None

    @contextmanager
    def by(self, serde: SerializerProtocol) -> Iterator[None]:
        """Read and write by another serializer meanwhile."""
        before, self.serde = self.serde, serde
        try:
            yield
        finally:
            self.serde = before

    def find_blobs(self, read: Callable[[], object]) -> set[str]:
        """The blobs that reading needs. Nothing is made by it meanwhile."""
        if not self.has_blobs:
            return set()
        wanted: set[str] = set()
        self._wanted = wanted
        try:
            read()
        finally:
            self._wanted = None
        return wanted

    @contextmanager
    def with_blobs(self, blobs: Mapping[str, Shared]) -> Iterator[None]:
        """Read with the bytes of these blobs."""
        self._blobs = blobs
        try:
            yield
        finally:
            self._blobs = {}

    def read(
        self, node: Raw | bytes, *, keep: bool = False, last: LastWritten | None = None
    ) -> tuple[Any, LastWritten | None]:
        """The value of a node. With `keep`, also how it was written, for the next time it is; `last` is how
        it was the last time."""
        if keep and last is not None and last.node == node and last.is_flat:
            kept = LastWritten(None)
            kept.fill([self._item(one) for one in last.nodes], list(last.nodes))
            kept.number, kept.ops, kept.node = last.number, last.ops, last.node
            return list(kept.items), kept
        try:
            return self._value(_decode(node), keep)
        except RecursionError as error:
            raise Corrupt("a LangGraph thread", "an element contains itself") from error

    def _item(self, node: bytes) -> Any:
        template = self._templates.get(node)
        return self._value(_decode(node))[0] if template is None else template.copy()

    def read_map(self, node: Raw) -> dict[str, bytes]:
        """The members of a dict that `write_map` wrote, each as it was given."""
        part = _decode(node)
        if part[0] == "r":
            part = self._part(part[1])
        return {key: _encode(one) for key, one in self._members(part).items()}

    def _value(self, part: Any, keep: bool = False) -> tuple[Any, LastWritten | None]:
        if part.__class__ is not list:
            return part, None
        tag, number = part[0], None
        while tag == "r":
            number = _older(part[1], number)
            raw = self._raw(number)
            if memoryview(raw)[:5] == _PACKED:
                return self._unpack(number, raw), None
            part = _decode(raw)
            if part.__class__ is not list:
                return part, None
            tag = part[0]
        if tag in ("b", "c", "u"):
            return self._make(part), None
        if tag == "l":
            return self._read_list(part, number, keep)
        if tag == "d":
            return self._read_dict(part, number, keep)
        if tag == "t":
            return tuple(self._value(one)[0] for one in part[1]), None
        if tag == "s":
            value, kept = self._value(part[1], keep)
            return _DeltaSnapshot(value), kept
        if tag == "j":
            return part[1], None
        if tag == "i":
            return int(part[1], 16), None
        raise Corrupt("a LangGraph thread", f"there is no part {tag!r}")

    def _unpack(self, number: int, raw: Raw) -> Any:
        """What the serializer wrote as an element of its own."""
        node = b'["r",%d]' % number
        template = self._templates.get(node)
        if template is not None:
            return template.copy()
        if self._wanted is not None:
            return None
        _, form, data = _decode_packed(raw)
        value = self.serde.loads_typed((form, data))
        # Another serializer may return something else the next time.
        template = make_template(value) if isinstance(self.serde, CheckedSerializer) else None
        if template is not None:
            self._templates[node] = template
            self.bytes += _TEMPLATE_BYTES + len(data)
        return value

    def _make(self, part: list[Any]) -> Any:
        """What the serializer wrote, or a text that was cut out."""
        if self._wanted is not None:
            self._wanted.update(iter_digests(part))
            return None
        if part[0] == "u":
            return join_text(part[1], self._read_blob)
        data = b64decode(part[2]) if part[0] == "b" else join_bytes(part[2], self._read_blob)
        return self.serde.loads_typed((part[1], data))

    def _read_blob(self, digest: str) -> bytes:
        return self._blobs[digest].data

    def reach(self, nodes: Iterable[Raw]) -> dict[int, Raw]:
        """All elements that these nodes need."""
        found: dict[int, Raw] = {}
        todo: list[Any] = [_decode(one) for one in nodes]
        while todo:
            part = todo.pop()
            if part.__class__ is dict:
                todo.extend(part.values())
            elif part.__class__ is list and part:
                tag = part[0]
                if tag in ("l", "d") and len(part) > 2:
                    todo.append(["r", part[2]])
                if tag in ("l", "t"):
                    todo.extend(part[1])
                elif tag in ("d", "s", "x"):
                    todo.append(part[1])
                elif tag == "r" and part[1] not in found:
                    todo.append(self._part(part[1]))
                    found[part[1]] = self.raw[part[1]]
        return found

    def _part(self, number: int) -> Any:
        return _decode(self._raw(number))

    def _raw(self, number: int) -> Raw:
        raw = self.raw.get(number)
        if raw is None:
            raise Corrupt("a LangGraph thread", f"element {number} is not there")
        return raw

    def _chain(self, part: list[Any]) -> Iterator[list[Any]]:
        """The node and those that it grew from, the first one first."""
        found, number = [part], None
        while len(found[-1]) > 2:
            number = _older(found[-1][2], number)
            found.append(self._part(number))
        yield from reversed(found)

    def _read_list(self, part: list[Any], number: int | None, keep: bool) -> tuple[Any, LastWritten | None]:
        parts: list[Any] = []
        ops = -1
        for one in self._chain(part):
            ops += 1
            grown = parts if one[1] and one[1][0] == ["k", 0, len(parts)] else []
            for item in one[1][1:] if grown else one[1]:
                if item.__class__ is list and item[0] == "k":
                    grown.extend(parts[item[1] : item[2]])
                elif item.__class__ is list and item[0] == "x":
                    grown.extend(self._value(item[1])[0] or ())
                else:
                    grown.append(item)
            parts = grown
        return self._collect(parts, None, number, ops, keep)

    def _read_dict(self, part: list[Any], number: int | None, keep: bool) -> tuple[Any, LastWritten | None]:
        members = self._members(part)
        ops = sum(1 for _ in self._chain(part)) - 1
        values, kept = self._collect(list(members.values()), list(members), number, ops, keep)
        return dict(zip(members, values, strict=True)), kept

    def _members(self, part: list[Any]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for one in self._chain(part):
            for key in one[3] if len(one) > 3 else ():
                members.pop(key, None)
            members.update(one[1])
        return members

    def _collect(
        self, parts: list[Any], keys: list[str] | None, number: int | None, ops: int, keep: bool
    ) -> tuple[list[Any], LastWritten | None]:
        if not keep or number is None:
            return [self._value(one)[0] for one in parts], None
        kept = LastWritten(keys)
        found = [self._value(one, keep) for one in parts]
        kept.fill([item for item, _ in found], [*map(_encode, parts)])
        kept.kids = {place: kid for place, (_, kid) in enumerate(found) if kid is not None}
        kept.number, kept.ops, kept.node = number, ops, b'["r",%d]' % number
        return list(kept.items), kept


def _older(number: int, than: int | None) -> int:
    """The number of an element that another one refers to; it was written before."""
    if than is not None and number >= than:
        raise Corrupt("a LangGraph thread", f"element {than} refers to element {number}, a later one")
    return number
