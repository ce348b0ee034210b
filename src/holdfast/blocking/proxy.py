"""Proxies of the async classes, for code without an event loop.

A proxy has the methods and properties of the async class it stands for. A call is made in the thread of an
event loop (`loop.py`), while the caller waits: a coroutine becomes its result, an async iterator an iterator,
an async context manager a context manager. Proxies among the arguments are replaced by the objects that they
stand for; such objects are handed out as proxies. What each method does is said at the async one. Type
checkers and editors read `__init__.pyi`, which `tools/blocking_stubs.py` makes from the async classes.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from ..agents import agent as agents
from ..agents.agent import DepsT
from ..agents.outcome import OutputT
from ..blobs import blob as blobs
from ..errors import BadInput
from ..session import resource_lease, run, session
from ..session.misuse import BlockingOnly, refuse_pickling
from ..store import store
from ..tools import registry
from .loop import Loop, start_loop

P = TypeVar("P", bound="Proxy")
HIDDEN = frozenset(
    {
        "aclose",
        "dispatch_call",
        "enter_context",
        "leave_context",
        "loop_config",
        "open_session",
        "output_type",
    }
)
"""Names of the async classes that a proxy lacks: `with` does the same, or only holdfast itself uses them."""


class Proxy:
    """Stands for an async object whose methods run in the thread of an event loop."""

    _proxies: ClassVar[dict[type, type[Proxy]]] = {}
    """The proxy class of each async class."""

    def __init__(self, loop: Loop | None, target: Any) -> None:
        self._loop, self._target = loop, target

    def __getattr__(self, name: str) -> Any:
        """Attributes that the async class sets in its `__init__`."""
        if name.startswith("_") or name in HIDDEN or name not in vars(self._target):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _wrap(self._loop, getattr(self._target, name))

    def _find_loop(self, args: Sequence[object], options: Mapping[str, object]) -> Loop | None:
        return self._loop

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse_pickling(self)


class Unbound(Proxy):
    """A proxy that the caller makes, without a loop: it uses that of the session or store of each call."""

    def _find_loop(self, args: Sequence[object], options: Mapping[str, object]) -> Loop | None:
        # What `deps` holds is for tools, and says nothing about where the call runs.
        found = [*args, *(value for key, value in options.items() if key != "deps")]
        for one in found:
            if isinstance(one, session.Session):
                raise BadInput(
                    f"session {one.id!r} is open in an event loop: pass its id, or open it here: `with "
                    "store.session(…) as session` in a `with blocking.open_store(…) as store`"
                )
        bound = [one for one in found if isinstance(one, Proxy) and one._loop is not None]
        bound.sort(key=lambda one: not isinstance(one, Session))  # A session's own loop before a store's.
        return bound[0]._loop if bound else None


def proxy_of(target: type) -> Callable[[type[P]], type[P]]:
    """Give a proxy class the methods and properties of an async class."""

    def fill(cls: type[P]) -> type[P]:
        for name, value in inspect.getmembers_static(target):
            if name.startswith("_") or name in HIDDEN or hasattr(cls, name):
                continue
            if inspect.isfunction(value):
                setattr(cls, name, _make_method(name, value))
            elif isinstance(value, property):
                setattr(cls, name, _make_property(name, value))
        Proxy._proxies[target] = cls
        return cls

    return fill


def _make_method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Proxy, *args: Any, **options: Any) -> Any:
        loop = self._find_loop(args, options)
        given = {key: value if key == "deps" else _unwrap(value) for key, value in options.items()}
        found = getattr(self._target, name)(*map(_unwrap, args), **given)
        if inspect.iscoroutine(found):
            with _running(loop) as running:
                return _wrap(loop, running.wait(found))
        if isinstance(found, AsyncIterator):
            return _iterate(loop, found)
        if isinstance(found, AbstractAsyncContextManager):
            assert loop is not None
            use = f"with ….{name}(…) as {name.removeprefix('open_')}"
            return BlockingOnly(_enter(loop, found), use, f"async {use}")
        return _wrap(loop, found)

    return call


def _make_property(name: str, value: property) -> property:
    def get(self: Proxy) -> Any:
        return _wrap(self._loop, getattr(self._target, name))

    return property(get, doc=value.__doc__)


def _wrap(loop: Loop | None, value: object) -> object:
    cls = Proxy._proxies.get(type(value))
    if cls is None:
        return value
    made = cls.__new__(cls)
    Proxy.__init__(made, loop, value)
    return made


def _unwrap(value: object) -> object:
    return value._target if isinstance(value, Proxy) else value


@contextmanager
def _running(loop: Loop | None) -> Iterator[Loop]:
    """The loop, or one for this block alone."""
    if loop is not None:
        yield loop
    else:
        with start_loop() as own:
            yield own


def _iterate(loop: Loop | None, items: AsyncIterator[Any]) -> Iterator[Any]:
    with _running(loop) as running:
        yield from running.iterate(items)


@contextmanager
def _enter(loop: Loop, manager: AbstractAsyncContextManager[Any]) -> Iterator[object]:
    with ExitStack() as afterwards, loop.inside(manager) as entered:
        if isinstance(manager, run.Run | run.Request):
            # It began in a copy of this thread's context; what follows here happens in the run as well.
            manager.enter_context()
            afterwards.callback(manager.leave_context)
        yield _wrap(loop, entered)


@proxy_of(resource_lease.Hold)
class Hold(Proxy):
    """`holdfast.records.Hold` without an event loop."""


@proxy_of(run.Request)
class Request(Proxy):
    """`holdfast.records.Request` without an event loop."""


@proxy_of(run.Run)
class Run(Proxy):
    """`holdfast.records.Run` without an event loop."""


@proxy_of(session.Session)
class Session(Proxy):
    """`holdfast.Session` without an event loop."""

    def _repr_html_(self) -> str:
        assert isinstance(self._target, session.Session)
        return self._target._repr_html_()


@proxy_of(blobs.OpenBlob)
class OpenBlob(Proxy):
    """A blob to be read: `for part in blob`, once; `blob.read()` gives all of it."""

    def __iter__(self) -> Iterator[bytes]:
        return _iterate(self._loop, aiter(self._target))


@proxy_of(store.Store)
class Store(Proxy):
    """`holdfast.Store` without an event loop. Threads may share it."""

    @property
    def with_loop(self) -> store.Store:
        """The same store for code that has an event loop."""
        assert isinstance(self._target, store.Store)
        return self._target


@proxy_of(registry.Registry)
class Registry(Unbound):
    """`holdfast.Registry` without an event loop. Async tools run in the store's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(None, registry.Registry(*args, **options))

    @property
    def with_loop(self) -> registry.Registry:
        """The same tools for code that has an event loop."""
        assert isinstance(self._target, registry.Registry)
        return self._target


@proxy_of(agents.Agent)
class Agent(Unbound, Generic[DepsT, OutputT]):
    """`holdfast.Agent` without an event loop. Models and async tools run in the store's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(None, agents.Agent(*args, **options))


def open_store(*args: Any, **options: Any) -> Any:
    """The store that `url` names, as in `holdfast.open_store`: `with blocking.open_store(…) as store`."""
    opening = _open(store.open_store(*args, **options))
    return BlockingOnly(opening, store.Store._USE_BLOCKING, store.Store._USE)


@contextmanager
def _open(opening: store.Store) -> Iterator[Any]:
    with start_loop() as loop, loop.inside(opening) as opened:
        yield _wrap(loop, opened)
