"""Values of channels, read from numbered elements. `delta_encode.py` describes their format."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from msgspec import Raw

from ...content.lazy import Shared
from ...errors import Corrupt
from .blob_extraction import iter_digests, join_bytes, join_text
from .change_tracking import LastWritten
from .message_forms import MessageForm, MessageTemplate, make_template
from .serde import CheckedSerializer

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_TEMPLATE_BYTES = 1200
"""What a template takes in memory beside its texts."""
_REFERENCE: Final = b'["r",'
_MESSAGE: Final = b'["m",'
_LEAVES: Final = (b'["b",', b'["f",', b'"')
"""What elements begin with that refer to no other one."""
_SKIMMED: Final = 32
_ABSENT: Final = object()


class ElementReader:
    """The elements that are there."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self.raw: dict[int, Raw] = {}
        """The elements that are in memory, by number …"""
        self.parts: dict[int, Any] = {}
        """… and those that were decoded together."""
        self.load: Callable[[int], None] | None = None
        """Reads an element that is not there into memory, if the journal has it."""
        self.bytes = 0
        """About what they take in memory, and what is kept of them besides."""
        self.has_blobs = False
        """Whether an element may refer to a blob."""
        self._forms: dict[int, MessageForm] = {}
        self._templates: dict[int, MessageTemplate | None] = {}
        """Of messages that were read before and are of no common form, by element; None after the first
        time."""
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
        return self._look(read) if self.has_blobs else set()

    def look_at(self, node: bytes) -> None:
        """Read all elements that a node needs into memory."""
        self._look(lambda: self.read(node))

    def _look(self, read: Callable[[], object]) -> set[str]:
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
        if node.startswith(_REFERENCE):
            number = int(node[len(_REFERENCE) : -1])
            part = self._part(number)
            if part.__class__ is list and part[0] == "m":
                return self._read_message(part, number)
        return self._value(_decode(node))[0]

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
            part = self._part(number)
            if part.__class__ is not list:
                return part, None
            tag = part[0]
        if tag == "m":
            return self._read_message(part, number), None
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

    def _read_message(self, part: list[Any], number: int | None) -> Any:
        """A message, which is element `number`."""
        _, form_number, texts = part
        form = self._forms.get(form_number) or self._read_form(form_number, number)
        if self._wanted is not None:
            return None
        if form.template is not None:
            return form.template.copy(texts)
        template = None if number is None else self._templates.get(number)
        if template is not None:
            return template.copy(())
        message = form.make(texts, self.serde.loads_typed)
        # Another serializer may return something else the next time.
        if number is not None and isinstance(self.serde, CheckedSerializer):
            if number in self._templates:
                template = self._templates[number] = make_template(message)
                self.bytes += _TEMPLATE_BYTES if template is not None else 0
            else:
                self._templates[number] = None
        return message

    def _read_form(self, number: int, user: int | None) -> MessageForm:
        tag, names, parts = self._part(_older(number, user))
        if tag != "f":
            raise Corrupt("a LangGraph thread", f"element {number} is not the form of a message")
        form = self._forms[number] = MessageForm(names, [*map(b64decode, parts)])
        return form

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
                elif tag == "m":
                    todo.append(["r", part[1]])
                elif tag == "r" and part[1] not in found:
                    raw = found[part[1]] = self.get_raw(part[1])
                    todo.append(self._skim(part[1], raw))
        return found

    def _skim(self, number: int, raw: Raw) -> Any:
        """An element without what refers to no other one."""
        if number in self.parts:
            return self.parts[number]
        start = bytes(memoryview(raw)[:_SKIMMED])
        if start.startswith(_MESSAGE):
            return ["m", int(start[len(_MESSAGE) :].partition(b",")[0])]
        return None if start.startswith(_LEAVES) else _decode(raw)

    def _part(self, number: int) -> Any:
        part = self.parts.get(number, _ABSENT)
        return part if part is not _ABSENT else _decode(self.get_raw(number))

    def get_raw(self, number: int) -> Raw:
        """An element as it is stored; `Corrupt` if it is not there."""
        raw = self.raw.get(number)
        if raw is None and number in self.parts:
            raw = Raw(_encode(self.parts[number]))
        if raw is None and self.load is not None:
            self.load(number)
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
        items: list[Any] = []
        kids: dict[int, LastWritten] = {}
        for place, part in enumerate(parts):
            if part.__class__ is list and part[0] == "r":
                # Most often, it is a list of messages, and a long one.
                inner = self._part(part[1])
                if inner.__class__ is list and inner[0] == "m":
                    items.append(self._read_message(inner, part[1]))
                    continue
            item, kid = self._value(part, keep)
            items.append(item)
            if kid is not None:
                kids[place] = kid
        if not keep or number is None:
            return items, None
        kept = LastWritten(keys)
        kept.fill(items, [*map(_encode, parts)])
        kept.kids = kids
        kept.number, kept.ops, kept.node = number, ops, b'["r",%d]' % number
        return list(kept.items), kept


def _older(number: int, than: int | None) -> int:
    """The number of an element that another one refers to; it was written before."""
    if than is not None and number >= than:
        raise Corrupt("a LangGraph thread", f"element {than} refers to element {number}, a later one")
    return number
