"""Messages that were read once, made again without being decoded and checked anew."""

from __future__ import annotations

from typing import Any, Final

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
_FIXED: Final = frozenset({str, int, float, bool, type(None), bytes})
_DEPTH_MAX: Final = 16
"""What is nested deeper is decoded anew: it is rare, and copying it must not overflow the stack."""
_set = object.__setattr__


class Mold:
    """A message as it was decoded. Its casts share nothing with it, or with each other, that can change."""

    __slots__ = ("_cls", "_extra", "_fields", "_given", "_loose")

    def __init__(self, message: Any, fields: dict[str, Any], loose: list[str]) -> None:
        self._cls, self._fields, self._loose = message.__class__, fields, loose
        self._extra = _copy(message.__pydantic_extra__)
        self._given = tuple(message.__pydantic_fields_set__)

    def cast(self) -> Any:
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


def find_mold(value: Any) -> Mold | None:
    """The mold of a message that holds nothing but plain data; None for all else."""
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
    return Mold(value, fields, loose)


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
