"""What a tool, its verify hook and the registry can say about a call."""

from __future__ import annotations

import math
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..content.encode import Given
from ..content.lazy import as_plain
from ..core.entries import CallRef
from ..errors import HoldfastError
from ..limits import INT_BITS_MAX
from ..messages import Json, Media, Text
from ..reprs import describe_error, describe_value


class NotDone(HoldfastError):
    """Raise it from a tool with side effects to say that surely nothing happened."""


class Declined(NotDone):
    """Nothing was done, and whoever asked decides what follows: no retry policy tries it again."""


class RetryWanted(Declined):
    """Nothing was done, and the tool asks for another call, with the same arguments or others. Another one is
    no loop: whoever asked for it limits how often."""


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


class Ran(Struct, frozen=True, kw_only=True):
    """How a body ended: with a value, with an error, or (`stopped`) not by itself."""

    value: Any = None
    error: Exception | None = None
    stopped: str = ""
    """Why its caller no longer waits for it: `timed out` or `was cancelled`."""
    begun: bool = True
    """False if it was stopped while it still waited for a thread: surely nothing happened."""
    left_behind: bool = False
    """A sync body that cannot be stopped, and still runs."""
    interrupt: BaseException | None = None
    """The caller's own cancellation: raise it again once everything is recorded."""
    exit: BaseException | None = None
    """The body asked the process to end (`sys.exit()`, Ctrl-C): raise it again once that is recorded."""
    latency_ms: float = 0.0

    @property
    def done(self) -> bool:
        """Whether it ended with a value."""
        return self.error is None and not self.stopped and self.exit is None

    @property
    def why(self) -> str:
        """Why the body gave no value, for the record."""
        if self.stopped:
            still = "; its body cannot be stopped and still runs" if self.left_behind else ""
            return f"it {self.stopped}{still}"
        if self.exit is not None:
            return f"it asked the process to end: {describe_error(self.exit)}"
        return f"it raised {describe_error(self.error)}"

    def describe_failure(self, tool: str) -> str:
        """What the model is told of a body that gave no value."""
        return f"{tool} {self.stopped}" if self.stopped else f"{tool} raised {describe_error(self.error)}"


_encode = msgspec.json.Encoder().encode
ResultStatus: TypeAlias = Literal["completed", "failed", "refused", "in_doubt", "waiting"]


class Result(Struct, frozen=True, kw_only=True):
    """What came of a call. `content` is for the model, `value` the same as data. `parts` are what the model
    is shown in place of `content`, if the tool gave more than text.

    `waiting`: a person must approve first. `in_doubt`: nobody knows whether it happened, and it is not run
    again until somebody does. `replay_of` names the call whose outcome this repeats.
    """

    call_id: str
    name: str
    content: str
    value: Json = None
    parts: tuple[Text | Media, ...] = ()
    status: ResultStatus = "completed"
    replay_of: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the model should take it as an error."""
        return self.status != "completed"


def result_of(call: CallRef, tool: str, text: str, status: ResultStatus) -> Result:
    """The result of a call that gave no value."""
    return Result(call_id=call.id, name=tool, content=text, status=status)


def completed(call: CallRef, tool: str, given: Given, replay_of: str | None = None) -> Result:
    """The result of a call that gave this."""
    return Result(
        call_id=call.id,
        name=tool,
        content=given.text,
        value=given.value,
        parts=given.parts,
        replay_of=replay_of,
    )


def as_json(value: object) -> Json:
    """A tool's return value as JSON-like data; what has no JSON form is described.

    Never raises: the effect has happened, and its outcome must be recorded.
    """
    try:
        return _faithful(value if _is_one_of(value, _SCALARS) else _as_builtins(value))
    except KeyboardInterrupt:
        raise
    except BaseException:  # It holds itself, is nested without end, or cannot even be looked at.
        return describe_value(value)


_SCALARS: Final = (str, int, bool, float, type(None))


def _is_one_of(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether it is exactly of one of these classes. A metaclass may have an `__eq__` of its own."""
    kind = type(value)
    return any(kind is one for one in kinds)


def as_given(value: object) -> Given:
    """What a tool returned: text for the model, and blocks where it gave media. Never raises."""
    try:
        return _as_given(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # It cannot even be looked at.
        shown = describe_value(value)
        return Given(text=shown, value=shown)


def _as_given(value: object) -> Given:
    if _is_one_of(value, _SCALARS) or type(value) is dict:
        data = as_json(value)
        return Given(text=as_text(data), value=data)
    if isinstance(value, Media):
        value = as_plain(value)
    elif isinstance(value, bytearray | memoryview):
        value = bytes(value)
    elif isinstance(value, list | tuple) and any(isinstance(one, Media) for one in value):
        value = [as_plain(one) for one in value]
    data, parts = as_json(value), _find_parts(value)
    if not parts:
        return Given(text=as_text(data), value=data)
    return Given(text="\n".join(map(_describe_part, parts)), value=data, parts=parts)


def _find_parts(value: object) -> tuple[Text | Media, ...]:
    """The blocks to show, if there is more than text among what a tool returned."""
    if isinstance(value, bytes):
        return (Media(media_type=sniff(value[:16]), data=value),)
    if isinstance(value, Media):
        return (value,)
    if not isinstance(value, list) or not any(isinstance(one, Media) for one in value):
        return ()
    if not all(isinstance(one, Media | Text | str) for one in value):
        return ()
    return tuple(Text(_as_utf8(one)) if isinstance(one, str) else one for one in value)


def _describe_part(part: Text | Media) -> str:
    if isinstance(part, Text):
        return part.text
    where = part.url if part.data is None else f"{len(part.data):,} bytes"
    return f"[{part.media_type}, {where}]"


_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def sniff(beginning: bytes) -> str:
    """What bytes are that models can look at, by how they begin."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    known = (media_type for mark, media_type in _BEGINNINGS if beginning.startswith(mark))
    return next(known, "application/octet-stream")


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


def as_text(value: Json) -> str:
    """What the model is shown of a value."""
    return value if isinstance(value, str) else _encode(value).decode()
