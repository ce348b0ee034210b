"""How foreign values and exceptions are described. Nothing here raises, whatever their authors made of them.

`__repr__`, `__str__`, `__class__` and all that a metaclass can override may raise, `SystemExit` included. The
outcome of a tool must be recorded all the same. A `KeyboardInterrupt` is the user's, and is passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .limits import ERROR_CHARS, REPR_CHARS

T = TypeVar("T")
_NAME: Any = type.__dict__["__name__"]
_QUALNAME: Any = type.__dict__["__qualname__"]
_MODULE: Any = type.__dict__["__module__"]


def attempt(function: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """What a function gives that runs other people's code, or what `otherwise` gives if that raises."""
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return otherwise()


def name_of(kind: type) -> str:
    """The name of a class, past its metaclass."""
    return attempt(lambda: _as_utf8(_NAME.__get__(kind), REPR_CHARS), lambda: "?")


def qualified_name_of(kind: type) -> tuple[str, str]:
    """The module of a class and its name there, past its metaclass."""
    module = attempt(lambda: _as_utf8(_MODULE.__get__(kind), REPR_CHARS), lambda: "?")
    return module, attempt(lambda: _as_utf8(_QUALNAME.__get__(kind), REPR_CHARS), lambda: name_of(kind))


def describe_value(value: object) -> str:
    """What a value that has no JSON form looks like."""
    return attempt(lambda: _as_utf8(repr(value), REPR_CHARS), lambda: f"<{name_of(type(value))}>")


def presentable(error: Exception) -> Exception:
    """The exception, or one in its place if even its class cannot be asked for: event loops and frameworks do
    so, and would end by it."""
    if attempt(lambda: error.__class__ is type(error) and type(error).__name__ is not None, lambda: False):
        return error
    return RuntimeError(describe_error(error))


def describe_error(error: BaseException | None) -> str:
    """What an exception says; of a group, what each of those in it says."""
    return _describe_error(error, 3)[:ERROR_CHARS]


def _describe_error(error: BaseException | None, depth: int) -> str:
    text = attempt(lambda: _as_utf8(str(error), ERROR_CHARS), lambda: "?")
    if depth and error is not None and issubclass(type(error), BaseExceptionGroup):
        group: Any = error
        parts: tuple[BaseException, ...] = attempt(lambda: tuple(group.exceptions), tuple)
        inside = "; ".join(_describe_error(one, depth - 1) for one in parts[:20])
        text = f"{text}: {inside}"
    return f"{name_of(type(error))}: {text}"


def _as_utf8(text: str, chars: int) -> str:
    # By the methods of `str` itself: the text may be of a class of its own.
    return str.encode(str.__getitem__(text, slice(chars)), "utf-8", "backslashreplace").decode()
