"""How calls end: the exceptions and answers of tools and hooks, the end of a body, the result of a call."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..content.encode import Given
from ..content.lazy import as_plain
from ..core.entries import CallRef
from ..errors import HoldfastError
from ..limits import INT_BITS_MAX
from ..messages import Json, Media, Text
from ..reprs import describe_error, describe_value, name_of

log = logging.getLogger("holdfast")


class NotDone(HoldfastError):
    """Raise it from a tool with side effects to say that surely nothing happened."""


class Declined(NotDone):
    """Nothing was done, and the caller decides what follows: no retry policy tries it again."""


class RetryWanted(Declined):
    """Nothing was done, and the tool asks for another call, with the same arguments or others. That is no
    loop: the tool's framework limits how often."""


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
    """Whether the effect happened is not known, for now."""

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
    unsent: bool = False
    """It ended with the error of an HTTP request that was not sent, and sent no other: nothing happened."""
    left_behind: bool = False
    """A sync body that cannot be stopped, and still runs."""
    interrupt: BaseException | None = None
    """The caller's own cancellation: raised again once everything is recorded."""
    exit: BaseException | None = None
    """The body asked the process to end (`sys.exit()`, Ctrl-C): raised again once that is recorded."""
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
    """The result of a call. `content` is for the model, `value` the same as data. The model is shown `parts`
    in place of `content`, if the tool gave more than text.

    `waiting`: a person must approve first. `in_doubt`: it is not known whether it happened, and it is not run
    again until that is known. `replay_of` names the call whose outcome this repeats. `unkept`: the tool ran,
    so the call is `completed`; but what it returned has no JSON form, and `content` is an error that says so.
    """

    call_id: str
    name: str
    content: str
    value: Json = None
    parts: tuple[Text | Media, ...] = ()
    status: ResultStatus = "completed"
    replay_of: str | None = None
    unkept: bool = False

    @property
    def is_error(self) -> bool:
        """Whether the model should take it as an error."""
        return self.status != "completed" or self.unkept


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
        unkept=given.unkept,
    )


class NoJsonForm(Exception):
    """A value has no JSON form; the text says why. A body that an adapter made may return it, in the place of
    such a value."""


def as_json(value: object) -> Json:
    """A value as JSON-like data; what has no JSON form is described. Never raises."""
    try:
        return _convert(value, describe_value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # It holds itself, is nested without end, or cannot even be looked at.
        return describe_value(value)


def _convert(value: object, fallback: Callable[[object], Json]) -> Json:
    return _faithful(value if _is_one_of(value, _SCALARS) else _as_builtins(value, fallback))


_SCALARS: Final = (str, int, bool, float, type(None))
_PLAIN: Final = frozenset(_SCALARS)


def _is_one_of(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether it is exactly of one of these classes. By identity: a metaclass may define `__eq__`."""
    kind = type(value)
    return any(kind is one for one in kinds)


def as_exact_json(value: object) -> Json:
    """A value as JSON-like data, or `NoJsonForm` if it, or a part of it, has no JSON form."""
    if type(value) is NoJsonForm:
        raise value
    try:
        refuse_iterators(value)
        return _convert(value, _refuse)
    except (KeyboardInterrupt, NoJsonForm):
        raise
    except RecursionError:
        raise NoJsonForm("it holds itself, or is nested too deeply") from None
    except BaseException as error:  # It cannot even be looked at.
        raise NoJsonForm(describe_error(error)) from None


def no_json_form(value: object) -> NoJsonForm:
    """The error that says that a value, or a part of one, has no JSON form."""
    return NoJsonForm(f"{name_of(type(value))} has no JSON form")


def _refuse(value: object) -> Json:
    raise no_json_form(value)


def refuse_iterators(value: object) -> None:
    """Refuse generators, open files and cursors, which the conversion would read to their end."""
    inside: Iterable[object] = ()
    if type(value) is dict:
        inside = value.values()
    elif type(value) is list or type(value) is tuple:
        inside = value
    elif issubclass(type(value), Iterator):
        raise no_json_form(value)
    for one in inside:
        if type(one) not in _PLAIN:
            refuse_iterators(one)


def as_given(value: object, tool: str, *, changes_the_world: bool) -> Given:
    """What a tool returned: text for the model, and blocks where it gave media.

    Never raises: the effect has happened, and its outcome must be recorded. If the value has no JSON form,
    this is an error that says so.
    """
    try:
        return _as_given(value)
    except KeyboardInterrupt:
        raise
    except NoJsonForm as error:
        why = str(error)
    except BaseException as error:
        why = describe_error(error)
    done = ", and its side effects are done" if changes_the_world else ""
    kind = "" if type(value) is NoJsonForm else f", of type {name_of(type(value))},"
    text = f"{tool}: it ran{done}. Its result{kind} cannot be kept: {why}. {_ADVICE}"
    log.warning("%s", text)
    return Given(text=text, unkept=True)


_ADVICE: Final = "The tool has to return text, JSON data, bytes, media, a dataclass or a pydantic model."


def _as_given(value: object) -> Given:
    if _is_one_of(value, _SCALARS) or type(value) is dict:
        data = as_exact_json(value)
        return Given(text=as_text(data), value=data)
    if isinstance(value, Media):
        value = as_plain(value)
    elif isinstance(value, bytearray | memoryview):
        value = bytes(value)
    elif isinstance(value, list | tuple) and any(isinstance(one, Media) for one in value):
        value = [as_plain(one) for one in value]
    data, parts = as_exact_json(value), _find_parts(value)
    if not parts:
        return Given(text=as_text(data), value=data)
    return Given(text="\n".join(map(_describe_part, parts)), value=data, parts=parts)


def _find_parts(value: object) -> tuple[Text | Media, ...]:
    """The blocks to show, if a tool returned more than text."""
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
    """The media type of bytes, by how they begin, if models can look at it."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    known = (media_type for mark, media_type in _BEGINNINGS if beginning.startswith(mark))
    return next(known, "application/octet-stream")


def _as_builtins(value: object, fallback: Callable[[object], Json]) -> Json:
    """Dataclasses, pydantic models and structs, at every depth, as dicts and lists."""
    from pydantic_core import to_jsonable_python  # only here: importing it takes a while

    def convert(inner: object) -> Json:
        return to_jsonable_python(inner, bytes_mode="base64", fallback=open_struct)

    def open_struct(inner: object) -> Json:
        if isinstance(inner, Struct):
            return msgspec.to_builtins(inner, enc_hook=convert, str_keys=True)
        return fallback(inner)

    return convert(value)


def _faithful(value: Json) -> Json:
    """The value with everything described that JSON would change or refuse."""
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
