"""LangChain's messages, stored as a form and the texts in it.

Most messages of a conversation differ in nothing but their texts. The *form* of a message is what LangGraph's
serializer writes of it, with the texts cut out. It is stored once, and each message as its form and its
texts. The bytes of the serializer are put together from them without a loss.

Reading is quick as well: validation takes most of the time in which a message is made, and leaves texts as
they are. So the messages of a form are copies of one that was validated, with other texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import ormsgpack
from langchain_core import messages

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
_TEXTS: Final = ("content", "name", "id", "tool_call_id")
"""The fields that are cut out if they are texts, in the order in which pydantic has them."""
_PYDANTIC: Final = 5
"""The code under which the serializer packs a pydantic model."""
_HEADS: Final = {0xC7: 3, 0xC8: 4, 0xC9: 6}
"""How long the head before a packed model is, by its first byte."""
_FIXED: Final = frozenset({str, int, float, bool, type(None), bytes})
_DEPTH_MAX: Final = 16
"""What is nested deeper is decoded anew: it is rare, and copying it must not overflow the stack."""
_PROBE: Final = " \tHoldfast\n\x00 "
_set = object.__setattr__


class CutMessage(NamedTuple):
    """A message without its texts: their names, the bytes around them, and the texts."""

    names: list[str]
    parts: list[bytes]
    texts: list[str]


def cut_message(message: Any, form: str, data: bytes) -> CutMessage | None:
    """Cut the texts out of what the serializer wrote of a message; None if it is something else."""
    if message.__class__ not in _MESSAGES or form != "msgpack" or not data or data[0] not in _HEADS:
        return None
    inner = data[_HEADS[data[0]] :]
    names: list[str] = []
    parts: list[bytes] = []
    texts: list[str] = []
    done = 0
    for name in _TEXTS:
        text = getattr(message, name, None)
        if text.__class__ is not str:
            continue
        key, value = ormsgpack.packb(name), ormsgpack.packb(text)
        # The first one: what comes later may be inside of another field, and then the bytes differ below.
        place = inner.find(key + value, done)
        if place < 0:
            return None
        place += len(key)
        names.append(name)
        parts.append(inner[done:place])
        texts.append(text)
        done = place + len(value)
    parts.append(inner[done:])
    found = CutMessage(names, parts, texts)
    return found if join_message(parts, texts) == data else None


def join_message(parts: Sequence[bytes], texts: Sequence[str]) -> bytes:
    """What the serializer wrote."""
    inner = [parts[0]]
    for text, part in zip(texts, parts[1:], strict=True):
        inner += (ormsgpack.packb(text), part)
    return ormsgpack.packb(ormsgpack.Ext(_PYDANTIC, b"".join(inner)))


class MessageForm:
    """A form that was read, and makes messages."""

    def __init__(self, names: Sequence[str], parts: Sequence[bytes]) -> None:
        self._names, self._parts = names, parts
        self._uses = 0
        self.template: MessageTemplate | None = None
        """Of all messages of the form, once it is known that they differ in nothing but texts."""

    def make(self, texts: Sequence[str], read: Callable[[tuple[str, bytes]], Any]) -> Any:
        """The message with these texts. `read` is that of a serializer that checks names."""
        message = read(("msgpack", join_message(self._parts, texts)))
        self._uses += 1
        if self._uses == 2:  # Many forms are those of one message.
            self.template = self._make_template(message, texts, read)
        return message

    def _make_template(
        self, message: Any, texts: Sequence[str], read: Callable[[tuple[str, bytes]], Any]
    ) -> MessageTemplate | None:
        """None if it is not certain that reading changes none of the texts, and nothing else for them."""
        template = make_template(message, self._names)
        if template is None:
            return None
        probes = [_PROBE] * len(texts)
        probe = read(("msgpack", join_message(self._parts, probes)))
        for one, given in ((message, texts), (probe, probes)):
            if _look_of(template.copy(given)) != _look_of(one):
                return None
        return template


def _look_of(message: Any) -> Any:
    """All that can be seen of a message; texts, numbers and truth values that are equal are told apart."""
    if message.__class__ not in _MESSAGES:
        return message
    fields = vars(message)
    return (
        message.__class__,
        [(name, one.__class__, one) for name, one in fields.items()],
        message.__pydantic_fields_set__,
        message.__pydantic_extra__,
    )


class MessageTemplate:
    """A message as it was decoded. Its copies share nothing mutable with it or with each other."""

    __slots__ = ("_cls", "_empty", "_extra", "_fields", "_given", "_loose", "_texts")

    def __init__(self, message: Any, fields: dict[str, Any], loose: list[str], texts: Sequence[str]) -> None:
        self._cls, self._fields, self._texts = message.__class__, fields, texts
        self._empty = [(name, fields[name].__class__) for name in loose if not fields[name]]
        self._loose = [name for name in loose if fields[name]]
        self._extra = _copy(message.__pydantic_extra__)
        self._given = tuple(message.__pydantic_fields_set__)

    def copy(self, texts: Sequence[str]) -> Any:
        """The message, as a new object, with other texts."""
        made = self._cls.__new__(self._cls)
        fields = self._fields.copy()
        for name, cls in self._empty:
            fields[name] = cls()
        for name in self._loose:
            fields[name] = _copy(fields[name])
        for name, text in zip(self._texts, texts, strict=True):
            fields[name] = text
        # What a copy by pydantic consists of, without asking for each part whether it is there.
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_fields_set__", set(self._given))
        _set(made, "__pydantic_extra__", _copy(self._extra))
        _set(made, "__pydantic_private__", None)
        return made


def make_template(value: Any, texts: Sequence[str] = ()) -> MessageTemplate | None:
    """Make the template of a message of plain data; None for other values. `texts` are the fields in which
    its copies differ from it."""
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
    return MessageTemplate(value, fields, loose, texts)


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
