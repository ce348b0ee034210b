"""What a tool, its verify hook and the registry can say about a call."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import HoldfastError
from ..messages import Json


class NotDone(HoldfastError):
    """Raise it from a tool with side effects to say that surely nothing happened."""


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
    """A tool's return value as JSON-like data; what has no JSON form is described."""
    if value is None or isinstance(value, bool | str):
        return value
    from pydantic_core import to_jsonable_python  # only here: importing it takes a while

    plain = to_jsonable_python(
        value, inf_nan_mode="strings", bytes_mode="base64", fallback=lambda other: repr(other)
    )
    return plain


def as_text(value: Json) -> str:
    """What the model is shown of a value."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
