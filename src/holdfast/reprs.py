"""Descriptions of foreign values and exceptions. Nothing here raises.

`__repr__`, `__str__`, `__class__` and all that a metaclass can override may raise, even `SystemExit`; the
outcome of a tool must be recorded nevertheless. A `KeyboardInterrupt` comes from the user, and is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .limits import ERROR_CHARS, REPR_CHARS

T = TypeVar("T")
_NAME: Any = type.__dict__["__name__"]
_QUALNAME: Any = type.__dict__["__qualname__"]
_MODULE: Any = type.__dict__["__module__"]
_ADDRESS = re.compile("<.+ at 0x[0-9A-Fa-f]+>", re.DOTALL)


def attempt(function: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """The result of a function that runs foreign code, or of `otherwise` if it raises."""
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return otherwise()


def name_of(kind: type) -> str:
    """The name of a class, without calling its metaclass."""
    return attempt(lambda: _as_utf8(_NAME.__get__(kind), REPR_CHARS), lambda: "?")


def qualified_name_of(kind: type) -> tuple[str, str]:
    """The module and qualified name of a class, without calling its metaclass."""
    module = attempt(lambda: _as_utf8(_MODULE.__get__(kind), REPR_CHARS), lambda: "?")
    return module, attempt(lambda: _as_utf8(_QUALNAME.__get__(kind), REPR_CHARS), lambda: name_of(kind))


def describe_value(value: object) -> str:
    """The repr of a value, shortened, or its class."""
    return attempt(lambda: _as_utf8(repr(value), REPR_CHARS), lambda: f"<{name_of(type(value))}>")


def find_nameless(value: object) -> object:
    """A part of a value of which Python's text says only where it is in memory; None if there is none."""
    return attempt(lambda: _find_nameless(value, str), lambda: None)


def _find_nameless(value: object, text_of: Callable[[object], str]) -> object:
    if isinstance(value, str | bytes | int | float | None):
        return None
    if isinstance(value, dict | list | tuple | set | frozenset):
        inside = value.values() if isinstance(value, dict) else value
        return next((one for part in inside if (one := _find_nameless(part, repr)) is not None), None)
    return value if isinstance(value, Iterator) or _ADDRESS.fullmatch(text_of(value)) else None


def presentable(error: Exception) -> Exception:
    """The exception, or a `RuntimeError` in its place if access to its class raises: event loops and
    frameworks access it, and would fail."""
    if attempt(lambda: error.__class__ is type(error) and type(error).__name__ is not None, lambda: False):
        return error
    return RuntimeError(describe_error(error))


def describe_error(error: BaseException | None) -> str:
    """The class and text of an exception; of a group, those of each member."""
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
    # With the methods of `str` itself: the text may be of a subclass.
    return str.encode(str.__getitem__(text, slice(chars)), "utf-8", "backslashreplace").decode()
