"""User state as JSON: faithful where we know how, marked where we do not, never pickled.

JSON-like values are stored as they are. What JSON cannot say is an object with the single key `$holdfast`,
holding a tag and the content: `{"$holdfast": ["bytes", "AAEC"]}`. Loading makes only values of the types
listed here: it imports nothing, and calls nothing but the codecs that the application registered.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeVar, cast, overload
from uuid import UUID

import msgspec
from msgspec import Struct

from .errors import BadInput
from .limits import REPR_CHARS, STATE_DEPTH_MAX
from .messages import Json

T = TypeVar("T")
_MARK: Final = "$holdfast"


class Opaque(Struct, frozen=True):
    """Stands for a value that could not be encoded: what it was, and how it printed."""

    type: str
    repr: str


class Codec(Struct, frozen=True, kw_only=True):
    """How values of one type are written and read. `encode` gives a JSON-like value."""

    type: type
    encode: Callable[[Any], Json]
    decode: Callable[[Json], Any]
    name: str = ""

    @property
    def tag(self) -> str:
        """What the stored value is marked with: the name, or the type's own."""
        return self.name or _type_name(self.type)


_PLAIN: dict[type, tuple[str, Callable[[Any], Json], Callable[[Json], Any]]] = {
    bytes: ("bytes", lambda value: b64encode(value).decode(), b64decode),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
    timedelta: (
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda data: timedelta(days=data[0], seconds=data[1], microseconds=data[2]),
    ),
    Decimal: ("decimal", str, Decimal),
    UUID: ("uuid", str, UUID),
    complex: ("complex", lambda value: [repr(value.real), repr(value.imag)],
              lambda data: complex(float(data[0]), float(data[1]))),
}  # fmt: skip
_PLAIN_DECODERS = {tag: decode for tag, _, decode in _PLAIN.values()}
_COLLECTIONS: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _type_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class _Unencodable(Exception):
    pass


class Values:
    """Encodes and decodes user state, with the application's own codecs."""

    def __init__(self, codecs: Iterable[Codec] = ()) -> None:
        self._by_type: dict[type, Codec] = {}
        self._by_tag: dict[str, Codec] = {}
        for codec in codecs:
            if codec.tag in self._by_tag:
                raise BadInput(f"two codecs write values as {codec.tag!r}; give one a name of its own")
            self._by_type[codec.type] = codec
            self._by_tag[codec.tag] = codec

    def encode(self, value: object) -> bytes:
        """The value as JSON. Never fails: what cannot be encoded becomes `Opaque`."""
        return msgspec.json.encode(self._pack(value, 0))

    @overload
    def decode(self, data: bytes | msgspec.Raw) -> Any: ...
    @overload
    def decode(self, data: bytes | msgspec.Raw, type: type[T]) -> T: ...
    def decode(self, data: bytes | msgspec.Raw, type: type[T] | None = None) -> Any:
        """The value; with a `type`, converted to it (dataclass, pydantic model, msgspec struct …)."""
        value = self._unpack(msgspec.json.decode(data))
        return value if type is None else _convert(value, type)

    def _pack(self, value: Any, depth: int) -> Json:
        if value is None or value is True or value is False:
            return value
        cls = type(value)
        codec = self._by_type.get(cls)
        if codec is None and cls in (str, int, float, list, dict):
            return self._pack_plain(value, depth)
        if depth > STATE_DEPTH_MAX:
            return _opaque(value)
        try:
            if codec is not None:
                return {_MARK: [codec.tag, self._pack(codec.encode(value), depth + 1)]}
            return self._pack_typed(value, cls, depth)
        except Exception:  # Whatever a foreign __repr__, encoder or property raises, the save goes on.
            return _opaque(value)

    def _pack_plain(self, value: Any, depth: int) -> Json:
        if depth > STATE_DEPTH_MAX:
            return _opaque(value)
        match value:
            case str():
                # A lone surrogate is not UTF-8.
                return value if _is_utf8(value) else {_MARK: ["str", list(map(ord, value))]}
            case int():
                # JSON readers, ours among them, take integers beyond 64 bits as floats.
                return value if -(2**63) <= value < 2**64 else {_MARK: ["int", hex(value)]}
            case float():
                return value if math.isfinite(value) else {_MARK: ["float", repr(value)]}
            case list():
                return [self._pack(item, depth + 1) for item in value]
            case _:
                return self._pack_dict(value, depth)

    def _pack_dict(self, value: Mapping[Any, Any], depth: int) -> Json:
        if _MARK not in value and all(type(key) is str and _is_utf8(key) for key in value):
            return {key: self._pack(item, depth + 1) for key, item in value.items()}
        pairs = [[self._pack(k, depth + 1), self._pack(v, depth + 1)] for k, v in value.items()]
        return {_MARK: ["dict", pairs]}

    def _pack_typed(self, value: Any, cls: type, depth: int) -> Json:
        if cls in _PLAIN:
            tag, encode, _ = _PLAIN[cls]
            return {_MARK: [tag, encode(value)]}
        if cls in (tuple, set, frozenset):
            items: Iterable[Any] = value if cls is tuple else sorted(value, key=repr)
            return {_MARK: [cls.__name__, [self._pack(item, depth + 1) for item in items]]}
        fields = _fields_of(value)
        packed = {name: self._pack(item, depth + 1) for name, item in fields.items()}
        return {_MARK: ["record", _type_name(cls), packed]}

    def _unpack(self, data: Json) -> Any:
        if isinstance(data, list):
            return [self._unpack(item) for item in data]
        if not isinstance(data, dict):
            return data
        marked = data.get(_MARK)
        if marked is None:
            return {key: self._unpack(item) for key, item in data.items()}
        tag, content = marked[0], marked[-1]
        if tag in self._by_tag:
            return self._by_tag[tag].decode(self._unpack(content))
        return self._unpack_tagged(tag, content, marked)

    def _unpack_tagged(self, tag: str, content: Json, marked: list[Json]) -> Any:
        match tag:
            case "opaque":
                return Opaque(*content)
            case "record":
                return {name: self._unpack(item) for name, item in content.items()}
            case "dict":
                return {self._unpack(key): self._unpack(item) for key, item in content}
            case "str":
                return "".join(map(chr, content))
            case "int":
                return int(content, 16)
            case "float":
                return float(content)
        if tag in _COLLECTIONS:
            return _COLLECTIONS[tag](self._unpack(item) for item in content)
        if tag in _PLAIN_DECODERS:
            return _PLAIN_DECODERS[tag](content)
        # Written with a codec that this process does not have, or by a newer version.
        return Opaque(tag, msgspec.json.encode(content).decode()[:REPR_CHARS])


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _opaque(value: object) -> Json:
    try:
        printed = repr(value)[:REPR_CHARS]
        printed = printed.encode("utf-8", "backslashreplace").decode()
    except Exception as error:
        printed = f"<repr failed: {type(error).__name__}>"
    return {_MARK: ["opaque", [_type_name(type(value)), printed]]}


def _fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, pydantic model, msgspec struct or enum member."""
    if isinstance(value, type):
        raise _Unencodable
    if isinstance(value, Enum):
        return {"name": value.name, "value": value.value}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        dumped: dict[str, Any] = value.model_dump(mode="python")
        return dumped
    raise _Unencodable


def _convert(value: Any, wanted: type[T]) -> T:
    type_: Any = wanted  # `list[int]` and the like are no classes
    found: Any
    try:
        if isinstance(type_, type) and isinstance(value, type_):
            found = value
        elif isinstance(type_, type) and issubclass(type_, Enum) and isinstance(value, dict):
            found = type_[value["name"]]
        elif isinstance(type_, type) and issubclass(type_, Struct):
            found = msgspec.convert(value, wanted)
        else:
            from pydantic import TypeAdapter  # only here: it takes a while to import

            found = TypeAdapter(type_).validate_python(value)
    except (ValueError, KeyError) as error:
        raise BadInput(f"the stored value is not a {getattr(type_, '__name__', type_)}: {error}") from error
    return cast(T, found)
