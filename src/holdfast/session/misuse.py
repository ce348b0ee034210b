"""Errors for `with`, `await`, `for` and `pickle` where they cannot work: each says what to write instead.

Type checkers do not see these methods, so they go on reporting such code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar, cast

from ..errors import Misuse

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncOnly:
    """A base of async context managers: refuses `with`, `await` before it is entered, and `pickle`."""

    _USE: ClassVar[str]
    """What to write, with an event loop."""
    _USE_BLOCKING: ClassVar[str]
    """What to write without one."""

    @property
    def _is_entered(self) -> bool:
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise Misuse(
                f"`with` does not open a {_name(self)} of an event loop: write `{self._USE}`, or without an "
                f"event loop `{self._USE_BLOCKING}`"
            )

        def __exit__(self, *exception: object) -> None: ...

        def __await__(self) -> Generator[Any, Any, Any]:
            # Code that awaits whatever can be awaited, and gets an open one, goes on with it.
            if not self._is_entered:
                raise Misuse(
                    f"`await` does not open a {_name(self)}, which has to be closed, too: write `{self._USE}`"
                )
            return self
            yield

        def __reduce_ex__(self, protocol: object) -> NoReturn:
            refuse_pickling(self)


def refuse_pickling(thing: object) -> NoReturn:
    """Raise the error for an object that belongs to this process."""
    raise Misuse(
        f"a {_name(thing)} belongs to the process that opened it, and cannot be pickled or copied: pass the "
        "URL of the store, and the id of the session, and open them in the other process"
    )


def _name(thing: object) -> str:
    return type(thing).__name__.lower()


class AsyncItems(AsyncGenerator[T, None]):
    """An async generator that refuses `for` and `await`."""

    def __init__(self, items: AsyncGenerator[T, None], name: str) -> None:
        self._items, self._name = items, name

    def __anext__(self) -> Any:
        return self._items.__anext__()

    def asend(self, value: None) -> Any:
        """As of the generator."""
        return self._items.asend(value)

    def athrow(self, *error: Any) -> Any:
        """As of the generator."""
        return self._items.athrow(*error)

    def aclose(self) -> Any:
        """As of the generator."""
        return self._items.aclose()

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            self._refuse("`for`, `list` and the like do not")

        def __await__(self) -> NoReturn:
            self._refuse("`await` does not")

        def _refuse(self, what: str) -> NoReturn:
            raise Misuse(
                f"{what} work with {self._name}(…), whose items arrive one after the other: write `async for "
                f"item in ….{self._name}(…)`, or `[item async for item in ….{self._name}(…)]` for a list"
            )


def async_items(method: F) -> F:
    """Have a method with `yield` return `AsyncItems`."""

    @wraps(method)
    def call(*args: Any, **options: Any) -> AsyncIterator[Any]:
        return AsyncItems(method(*args, **options), method.__name__)

    return cast(F, call)


class BlockingOnly(Generic[T]):
    """A context manager for code without an event loop: refuses `async with`, and use before `with`."""

    def __init__(self, manager: Any, use: str, use_async: str) -> None:
        self._manager, self._use, self._use_async = manager, use, use_async

    def __enter__(self) -> T:
        entered: T = self._manager.__enter__()
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left: bool | None = self._manager.__exit__(kind, error, trace)
        return left

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise Misuse(
                f"`async with` is for holdfast with an event loop: write `{self._use_async}`; this is "
                f"holdfast.blocking, where you write `{self._use}`"
            )

        def __aexit__(self, *exception: object) -> None: ...

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"there is no {name!r} before the block is entered: write `{self._use}`")
