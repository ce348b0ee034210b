"""What a tool, its verify hook and the registry can say about a call."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import HoldfastError
from ..limits import ERROR_CHARS, INT_BITS_MAX, REPR_CHARS
from ..messages import Json


class NotDone(HoldfastError):
    """Raise it from a tool with side effects to say that surely nothing happened."""


class Waits(HoldfastError):
    """Raised by a harmless tool that cannot end yet: a person must say something first, then it is called
    again."""


class Landed(Struct, frozen=True):
    """The effect happened; `result` is what the tool would have returned."""

    result: Any = None


class NotLanded(Struct, frozen=True):
    """The effect did not happen. `final`: the service was told to refuse this key from now on."""

    final: bool = False


class Unsure(Struct, frozen=True):
    """Nobody can tell, for now."""

    why: str = ""


Verification: TypeAlias = Landed | NotLanded | Unsure

_encode = msgspec.json.Encoder().encode
ResultStatus: TypeAlias = Literal["completed", "failed", "refused", "in_doubt", "waiting"]


class Result(Struct, frozen=True, kw_only=True):
    """What came of a call. `content` is for the model, `value` the same as data.

    `waiting`: a person must approve first. `in_doubt`: nobody knows whether it happened, and it is not run
    again until somebody does. `replay_of` names the call whose outcome this repeats.
    """

    call_id: str
    name: str
    content: str
    value: Json = None
    status: ResultStatus = "completed"
    replay_of: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the model should take it as an error."""
        return self.status != "completed"


def as_json(value: object) -> Json:
    """A tool's return value as JSON-like data; what has no JSON form is described.

    Never raises: the effect has happened, and its outcome must be recorded.
    """
    if value is None or value.__class__ in (str, int, bool, float):
        return _faithful(value)
    try:
        return _faithful(_as_builtins(value))
    except Exception:  # It holds itself, is nested without end, or cannot even be looked at.
        return describe_value(value)


def _as_builtins(value: object) -> Json:
    """Dataclasses, pydantic models, structs and what is in them as dicts and lists."""
    from pydantic_core import to_jsonable_python  # only here: importing it takes a while

    return to_jsonable_python(value, bytes_mode="base64", fallback=_open_struct)


def _open_struct(value: object) -> Json:
    if isinstance(value, Struct):
        return msgspec.to_builtins(value, enc_hook=_as_builtins, str_keys=True)
    return describe_value(value)


def _faithful(value: Json) -> Json:
    """The same, where JSON would say something else or nothing at all."""
    if isinstance(value, str):
        return value if value.isascii() else _as_utf8(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if value.bit_length() < INT_BITS_MAX else hex(value)
    if isinstance(value, list):
        return [_faithful(item) for item in value]
    if isinstance(value, dict):
        return {_as_utf8(key): _faithful(item) for key, item in value.items()}
    return value


def _as_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def describe_value(value: object) -> str:
    """What a value that has no JSON form looks like."""
    try:
        return _as_utf8(repr(value)[:REPR_CHARS])
    except Exception:
        return f"<{type(value).__name__}>"


def describe_error(error: BaseException | None) -> str:
    """What an exception says, whatever its author made of `str`."""
    try:
        text = _as_utf8(str(error))
    except Exception:
        text = "?"
    return f"{type(error).__name__}: {text}"[:ERROR_CHARS]


def as_text(value: Json) -> str:
    """What the model is shown of a value."""
    return value if isinstance(value, str) else _encode(value).decode()
