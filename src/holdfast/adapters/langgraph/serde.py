"""Reading what LangGraph's serializer wrote, without running what a stored byte names.

The bytes are those of LangGraph's own `JsonPlusSerializer`. They name classes and functions; reading them
there imports and calls whatever they name, unless told otherwise. Here a name is looked up only if it is on
the list of safe types or on the application's own. What is not comes back as an `UnknownValue`, which is
written back as it was, so nothing is lost by reading it with the wrong list.

A type on the application's list that cannot be made again (its class is gone, or refuses what was stored)
comes back as the stored data, as from LangGraph's serializer: a state that is a pydantic model makes it anew.
"""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import ormsgpack
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ...errors import BadInput
from ...ids import check_list
from ...reprs import describe_error

log = logging.getLogger("holdfast")
Allowed: TypeAlias = type | tuple[str, str]
"""A class, or the names of its module and of itself."""


@dataclass(frozen=True, eq=True)
class UnknownValue:
    """A value of a type that is not allowed here, or of a built-in list and could not be made again: what was
    stored of it."""

    module: str
    name: str
    code: int
    payload: bytes

    def __repr__(self) -> str:
        return f"<UnknownValue {self.module}.{self.name}, {len(self.payload)} bytes>"


_SELF: Final = (UnknownValue.__module__, UnknownValue.__name__)
_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_1, _PYDANTIC_2, _NUMPY, _SNAPSHOT = range(8)
NOT_ENCODABLE: Final = -1
"""The code of a value that LangGraph's serializer could not write: its payload is its `repr`."""


class CheckedSerializer(JsonPlusSerializer):
    """LangGraph's serializer, with a list of what may be looked up while reading."""

    def __init__(self, allow: Iterable[Allowed] = ()) -> None:
        super().__init__(allowed_msgpack_modules=None)
        self._allowed = dict(map(_entry, check_list("allow", allow)))
        """By their names; a class that was given is used as it is, and need not be found by its name."""
        self._unpack_ext_hook: Callable[[int, bytes], Any] = self._open

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[Any]) -> CheckedSerializer:
        """The same with a longer list: LangGraph calls it with the types of the graph's state."""
        more = dict(map(_entry, extra_allowlist))
        if more.keys() <= self._allowed.keys():
            return self
        clone = copy.copy(self)
        clone._allowed = {**more, **self._allowed}
        clone._unpack_ext_hook = clone._open
        return clone

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value; of the forms that it can have, only those that this serializer writes."""
        form, payload = data
        if form not in ("null", "bytes", "bytearray", "msgpack"):
            return self._unknown(
                "serialized as", form, NOT_ENCODABLE, payload, "it is of a form that is never written"
            )
        return super().loads_typed(data)

    def _open(self, code: int, data: bytes) -> Any:
        if code == _SNAPSHOT:
            return _DeltaSnapshot(self._unpack(data))
        module, name = ("numpy", "ndarray") if code == _NUMPY else _names(data)
        if (module, name) == _SELF:
            return self._reopen(self._unpack(data)[2])
        if not self._may_make(code, module, name, data):
            return self._unknown(module, name, code, data, _HOW_TO_ALLOW.format(module=module, name=name))
        try:
            return _array(self._unpack(data)) if code == _NUMPY else self._make(code, module, name, data)
        except Exception as error:
            why = describe_error(error)
            if (module, name) in self._allowed:
                _warn(module, name, "the data that was stored of it", why)
                return self._unpack(data)[2]
            return self._unknown(module, name, code, data, why)

    def _may_make(self, code: int, module: str, name: str, data: bytes) -> bool:
        if code == _NUMPY:
            return True
        if code == _METHOD:
            # Only the names are looked at here; nothing inside is made.
            plain = ormsgpack.unpackb(data, ext_hook=_ignore, option=ormsgpack.OPT_NON_STR_KEYS)
            return (module, name, plain[3]) in SAFE_MSGPACK_METHODS
        return (module, name) in SAFE_MSGPACK_TYPES or (module, name) in self._allowed

    def _make(self, code: int, module: str, name: str, data: bytes) -> Any:
        stored = self._unpack(data)
        if (module, name) == ("langgraph.types", "Send"):
            return _send(stored[2])
        cls = self._allowed.get((module, name))
        return _call(code, cls or getattr(importlib.import_module(module), name), stored)

    def _reopen(self, fields: dict[str, Any]) -> Any:
        """One that was not known when it was last read: perhaps it is now."""
        known = UnknownValue(**fields)
        if known.code == NOT_ENCODABLE:
            return known
        return self._open(known.code, known.payload)

    def _unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._open, option=ormsgpack.OPT_NON_STR_KEYS)

    def _unknown(self, module: str, name: str, code: int, payload: bytes, why: str) -> UnknownValue:
        _warn(module, name, "an UnknownValue", why)
        return UnknownValue(module, name, code, bytes(payload))


_warned: set[tuple[str, str]] = set()
_HOW_TO_ALLOW = (
    "it is not on the list of types that may be made from stored data. If it is yours, "
    "write HoldfastSaver(…, allow=[{name}]) or allow=[({module!r}, {name!r})]"
)


def _warn(module: str, name: str, what: str, why: str) -> None:
    if (module, name) not in _warned:
        _warned.add((module, name))
        log.warning("a stored %s.%s comes back as %s: %s", module, name, what, why)


def _entry(one: Any) -> tuple[tuple[str, str], type | None]:
    if isinstance(one, type):
        return (one.__module__, one.__name__), one
    if isinstance(one, str) or len(one) != 2:
        raise BadInput(f"allow lists classes, or pairs like ('shop.models', 'Cart'); not {one!r}")
    module, name = one
    return (module, name), None


def _ignore(code: int, data: bytes) -> None:
    return None


def _names(data: bytes) -> tuple[str, str]:
    """The first two items of a packed array, both text; nothing else of it is opened."""
    try:
        module, place = _text(data, 1)
        name, _ = _text(data, place)
    except (IndexError, ValueError):
        return "?", "?"
    return module, name


def _text(data: bytes, place: int) -> tuple[str, int]:
    mark = data[place]
    if 0xA0 <= mark <= 0xBF:
        start, size = place + 1, mark & 0x1F
    elif mark == 0xD9:
        start, size = place + 2, data[place + 1]
    else:
        raise ValueError(mark)
    return data[start : start + size].decode(), start + size


def _call(code: int, made: Any, stored: Any) -> Any:
    given = stored[2]
    if code == _SINGLE:
        # What a set holds can be hashed: a list in it was a tuple.
        return made([*map(_as_tuple, given)] if made in (set, frozenset) else given)
    if code == _POSITIONAL:
        return made(*given)
    if code == _METHOD:
        return getattr(made, stored[3])(given)
    if code == _KEYWORDS:
        return made(**given)
    assert code in (_PYDANTIC_1, _PYDANTIC_2), code
    try:
        return made(**given)
    except Exception:
        # Written when the class asked for less: its fields are there, unchecked.
        return (made.construct if code == _PYDANTIC_1 else made.model_construct)(**given)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if value.__class__ is list else value


def _send(given: Any) -> Any:
    from langgraph.types import Send

    return Send(given[0], given[1]) if len(given) == 2 else Send(given[0], given[1], timeout=given[2])


def _array(stored: Any) -> Any:
    numpy = importlib.import_module("numpy")
    kind, shape, order, data = stored
    return numpy.frombuffer(data, dtype=numpy.dtype(kind)).reshape(shape, order=order)
