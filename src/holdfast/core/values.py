"""User state as JSON: known types exactly, others as a description, never pickled.

JSON-like values are stored as they are. What JSON cannot express is an object with the single key
`$holdfast`, holding a tag and the content: `{"$holdfast": ["bytes", "AAEC"]}`. Loading makes only values of
the types listed here: it imports nothing, and calls only the codecs that the application registered."""

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

from ..errors import BadInput
from ..ids import check_list
from ..limits import REPR_CHARS, STATE_DEPTH_MAX
from ..messages import Json
from ..reprs import describe_value, qualified_name_of
from ..system import threads

T = TypeVar("T")
_inspecting = threads.RLock()
"""Two threads that make msgspec inspect a type for the first time at once can crash the interpreter."""
_MARK: Final = "$holdfast"


class Opaque(Struct, frozen=True):
    """Stands for a value that could not be encoded: its type and its repr."""

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
        """The tag of the stored value: `name`, or the name of the type."""
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
_RESERVED = {*_PLAIN_DECODERS, *_COLLECTIONS, "dict", "enum", "float", "int", "opaque", "record", "str"}


_BASES: tuple[type[Any], ...] = (int, float, str, bytes, list, dict, tuple, set, frozenset)


def _type_name(cls: type) -> str:
    return ".".join(qualified_name_of(cls))


class BadValue(ValueError):
    """Stored bytes are not a value."""


class _Unencodable(Exception):
    pass


class Values:
    """Encodes and decodes user state, with the application's own codecs."""

    def __init__(self, codecs: Iterable[Codec] = ()) -> None:
        self._by_type: dict[type, Codec] = {}
        self._by_tag: dict[str, Codec] = {}
        for codec in check_list("codecs", codecs):
            if codec.tag in self._by_tag or codec.tag in _RESERVED:
                raise BadInput(f"values are written as {codec.tag!r} already; give the codec another name")
            self._by_type[codec.type] = codec
            self._by_tag[codec.tag] = codec

    def encode(self, value: object) -> bytes:
        """The value as JSON. Never fails: what cannot be encoded becomes `Opaque`."""
        return msgspec.json.encode(self._pack(value, ()))

    @overload
    def decode(self, data: bytes | msgspec.Raw) -> Any: ...
    @overload
    def decode(self, data: bytes | msgspec.Raw, type: type[T]) -> T: ...
    def decode(self, data: bytes | msgspec.Raw, type: type[T] | None = None) -> Any:
        """The value; with a `type`, converted to it (dataclass, pydantic model, msgspec struct …). `BadValue`
        if `encode` cannot have written it."""
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadValue(str(error)) from error
        value = self._unpack(plain)
        return value if type is None else convert(value, type)

    def _pack(self, value: Any, around: tuple[int, ...]) -> Json:
        """`around` has the ids of the values that contain this one, to detect cycles."""
        if value is None or value is True or value is False:
            return value
        try:
            cls = type(value)
            codec = self._by_type.get(cls)
            if codec is None and cls in (str, int, float):
                return _pack_scalar(value)
            if len(around) > STATE_DEPTH_MAX or id(value) in around:
                return _opaque(value)
            around = (*around, id(value))
            if codec is not None:
                return {_MARK: [codec.tag, self._pack(codec.encode(value), around)]}
            return self._pack_typed(value, cls, around)
        except KeyboardInterrupt:
            raise
        except BaseException:  # An error of a foreign __repr__, encoder or metaclass must not fail the save.
            return _opaque(value)

    def _pack_typed(self, value: Any, cls: type, around: tuple[int, ...]) -> Json:
        if cls is dict:
            return self._pack_dict(value, around)
        if cls in (list, tuple, set, frozenset):
            items = [self._pack(item, around) for item in value]
            if cls is list:
                return items
            # Sorted, because the order of a set depends on the hashes of this process.
            return {_MARK: [cls.__name__, items if cls is tuple else sorted(items, key=msgspec.json.encode)]}
        if cls in _PLAIN:
            tag, encode, _ = _PLAIN[cls]
            return {_MARK: [tag, encode(value)]}
        if isinstance(value, Enum):
            return {_MARK: ["enum", _type_name(cls), value.name, self._pack(value.value, around)]}
        base = next((one for one in _BASES if isinstance(value, one)), None)
        if base is not None and not dataclasses.is_dataclass(value):
            # A subclass keeps its content and loses its class: a Counter becomes a dict.
            return self._pack(base(value), around)
        fields = _fields_of(value)
        packed = self._pack_dict(fields, around) if isinstance(fields, dict) else self._pack(fields, around)
        return {_MARK: ["record", _type_name(cls), packed]}

    def _pack_dict(self, value: Mapping[Any, Any], around: tuple[int, ...]) -> Json:
        if _MARK not in value and all(type(key) is str and _is_utf8(key) for key in value):
            return {key: self._pack(item, around) for key, item in value.items()}
        pairs = [[self._pack(key, around), self._pack(item, around)] for key, item in value.items()]
        return {_MARK: ["dict", pairs]}

    def _unpack(self, data: Json) -> Any:
        if isinstance(data, list):
            return [self._unpack(item) for item in data]
        if not isinstance(data, dict):
            return data
        if _MARK not in data:
            return {key: self._unpack(item) for key, item in data.items()}
        marked = data[_MARK]
        if not isinstance(marked, list) or len(marked) < 2 or not isinstance(marked[0], str):
            raise BadValue(f"{_MARK} holds a tag and what belongs to it")
        tag, content = marked[0], marked[-1]
        if tag in self._by_tag:
            return self._by_tag[tag].decode(self._unpack(content))
        return self._unpack_tagged(tag, content)

    def _unpack_tagged(self, tag: str, content: Json) -> Any:
        if tag in ("record", "enum"):
            return self._unpack(content)
        if tag == "dict":
            pairs = _list_of(content, tag)
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
                raise BadValue("a dict holds pairs")
            return _hashed(dict, [(self._unpack(key), self._unpack(item)) for key, item in pairs])
        if tag in _COLLECTIONS:
            return _hashed(_COLLECTIONS[tag], [self._unpack(item) for item in _list_of(content, tag)])
        make = _MAKERS.get(tag)
        if make is None:
            # Written with a codec that this process does not have, or by a newer version.
            return Opaque(tag, msgspec.json.encode(content).decode()[:REPR_CHARS])
        try:
            return make(content)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadValue(f"not a {tag}: {error}") from error


_MAKERS: dict[str, Callable[[Any], Any]] = {
    **_PLAIN_DECODERS,
    "opaque": lambda content: Opaque(*map(_text, content)),
    "str": lambda content: "".join(map(chr, content)),
    "int": lambda content: int(content, 16),
    "float": lambda content: float(_text(content)),
}


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _list_of(content: Json, tag: str) -> list[Json]:
    if not isinstance(content, list):
        raise BadValue(f"a {tag} holds a list")
    return content


def _pack_scalar(value: str | float) -> Json:
    if isinstance(value, str):
        # A lone surrogate is not UTF-8.
        return value if _is_utf8(value) else {_MARK: ["str", list(map(ord, value))]}
    if isinstance(value, int):
        # JSON readers, ours among them, take integers beyond 64 bits as floats.
        return value if -(2**63) <= value < 2**64 else {_MARK: ["int", hex(value)]}
    return value if math.isfinite(value) else {_MARK: ["float", repr(value)]}


def _hashed(make: Callable[[Iterable[Any]], Any], items: list[Any]) -> Any:
    """A set or dict, or the list of its items if one is not hashable: a record loads as a dict."""
    try:
        made = make(items)
    except TypeError:
        return items
    return made if len(made) == len(items) else items


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _opaque(value: object) -> Json:
    return {_MARK: ["opaque", [_type_name(type(value)), describe_value(value)]]}


def _fields_of(value: Any) -> dict[str, Any] | list[Any]:
    """The fields of a dataclass, pydantic model or msgspec struct."""
    if isinstance(value, type):
        raise _Unencodable
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Struct):
        return _fields_of_struct(value)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        dumped: dict[str, Any] = value.model_dump(mode="python")
        return dumped
    raise _Unencodable


def _fields_of_struct(value: Struct) -> dict[str, Any] | list[Any]:
    """The fields in the form that `msgspec.convert` expects: renamed, tagged, or as an array."""
    config = value.__struct_config__
    items = [getattr(value, name) for name in value.__struct_fields__]
    if config.array_like:
        return items if config.tag is None else [config.tag, *items]
    fields = dict(zip(value.__struct_encode_fields__, items, strict=True))
    return fields if config.tag_field is None else {config.tag_field: config.tag, **fields}


def convert(value: Any, wanted: type[T]) -> T:
    """The value as one of this type, or `BadInput`."""
    type_: Any = wanted  # `list[int]` and the like are no classes
    found: Any
    try:
        if isinstance(type_, type) and isinstance(value, type_):
            found = value
        elif isinstance(type_, type) and issubclass(type_, Enum):
            found = type_(value)
        elif isinstance(type_, type) and issubclass(type_, Struct):
            with _inspecting:
                found = msgspec.convert(value, wanted)
        else:
            found = _convert_any(value, type_)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadInput(f"the stored value is not a {getattr(type_, '__name__', type_)}: {error}") from error
    return cast(T, found)


def _convert_any(value: Any, wanted: Any) -> Any:
    import pydantic  # Only here: it takes a while to import.

    try:
        adapter = pydantic.TypeAdapter(wanted)
    except pydantic.PydanticSchemaGenerationError:
        with _inspecting:
            return msgspec.convert(value, wanted)  # There are structs in it.
    # The fields were written by name, not by alias.
    return adapter.validate_python(value, by_name=True, by_alias=True)
