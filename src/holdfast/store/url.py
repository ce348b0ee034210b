"""From a URL to a driver. A typo is an error, never a silent fallback."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from ..errors import BadUrl
from .driver import Driver

OpenDriver: TypeAlias = Callable[[], Driver]


def find_driver(url: str | Path | Driver | None, *, create: bool) -> OpenDriver:
    """How to open the store that `url` names; nothing is opened yet."""
    if url is None:
        url = os.environ.get("HOLDFAST_STORE")
        if not url:
            raise BadUrl("no store: pass a URL such as 'sqlite:agents.db', or set HOLDFAST_STORE")
    if isinstance(url, Path):
        return lambda: _open_sqlite(Path(url), create)
    if not isinstance(url, str):
        driver = url
        if not hasattr(driver, "commit"):
            raise BadUrl(f"{url!r} is no store: pass a URL such as 'sqlite:agents.db', a Path or a driver")
        return lambda: driver
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise BadUrl(f"{url!r} names no scheme; did you mean 'sqlite:{url}' or 'dir:{url}'?")
    opener = _SCHEMES.get(scheme)
    if opener is None:
        close = _find_close(scheme.lower())
        hint = f"did you mean '{close}:{rest}'?" if close else "known are memory:, dir:PATH and sqlite:PATH"
        raise BadUrl(f"unknown scheme {scheme!r} in {url!r}; {hint}")
    if scheme == "memory":
        if rest:
            raise BadUrl(f"{url!r}: memory: takes no path; for a file write 'sqlite:{rest}'")
    elif rest.startswith("//"):
        path = rest.lstrip("/")
        raise BadUrl(
            f"{url!r}: no slashes after the scheme; '{scheme}:{path}' is relative, "
            f"'{scheme}:/{path}' is absolute"
        )
    elif not rest.strip():
        raise BadUrl(f"{url!r} has no path; write for example '{scheme}:agents{_ENDING[scheme]}'")
    elif rest == ":memory:":
        raise BadUrl(f"{url!r}: a store that nothing outlives is 'memory:'")
    elif "\0" in rest:
        raise BadUrl(f"{url!r} holds a NUL character")
    return lambda: opener(Path(rest).expanduser(), create)


def _find_close(scheme: str) -> str | None:
    """The scheme that was probably meant: misspelt, spelt out, or cut short."""
    if scheme in _SCHEMES:
        return scheme
    cut = (known for known in _SCHEMES if scheme and (scheme.startswith(known) or known.startswith(scheme)))
    return next(cut, None) or next(iter(difflib.get_close_matches(scheme, _SCHEMES, n=1)), None)


def _open_memory(path: Path, create: bool) -> Driver:
    from .memory import MemoryDriver

    return MemoryDriver()


def _open_directory(path: Path, create: bool) -> Driver:
    from .directory import DirectoryDriver

    return DirectoryDriver(path, create=create)


def _open_sqlite(path: Path, create: bool) -> Driver:
    from .sqlite import SqliteDriver

    return SqliteDriver(path, create=create)


_SCHEMES: dict[str, Callable[[Path, bool], Driver]] = {
    "memory": _open_memory,
    "dir": _open_directory,
    "sqlite": _open_sqlite,
}
_ENDING = {"dir": "", "sqlite": ".db"}
