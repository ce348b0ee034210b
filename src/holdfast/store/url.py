"""From a URL to a driver. A typo is an error, never a silent fallback."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import BadUrl
from .driver import Driver

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

OpenDriver: TypeAlias = Callable[[], Driver]
Place: TypeAlias = "str | Path | Driver | ConnectionPool[Any]"
"""What can be opened: a URL, a SQLite file, a driver, or a pool of connections to PostgreSQL."""


def find_driver(url: Place | None, *, create: bool, schema: str | None = None) -> OpenDriver:
    """How to open the store that `url` names; nothing is opened yet. `schema` is for PostgreSQL."""
    if url is None:
        url = os.environ.get("HOLDFAST_STORE")
        if not url:
            raise BadUrl("no store: pass a URL such as 'sqlite:agents.db', or set HOLDFAST_STORE")
    if isinstance(url, str | Path):
        refuse_unencodable(str(url), "the store's URL")
    is_postgres = hasattr(url, "getconn") or (isinstance(url, str) and url.startswith(_POSTGRES))
    if schema is not None and not is_postgres:
        raise BadUrl(f"schema={schema!r} is for PostgreSQL, and {_show(url)} is something else")
    if is_postgres:
        where: Any = url
        return lambda: _open_postgres(where, schema, create)
    if isinstance(url, Path):
        return lambda: _open_sqlite(Path(url), create)
    if not isinstance(url, str):
        driver: Any = url
        if not hasattr(driver, "commit"):
            raise BadUrl(f"{url!r} is no store: pass a URL such as 'sqlite:agents.db', a Path or a driver")
        return lambda: driver
    return _find_by_scheme(url, create)


def refuse_unencodable(url: str, what: str) -> None:
    """Refuse what no file system and no server can be told. Bytes of a name that are no UTF-8 may be."""
    try:
        url.encode(errors="strict" if url.startswith(_POSTGRES) else "surrogateescape")
    except UnicodeEncodeError:
        raise BadUrl(f"{what} holds half a surrogate pair, which is no text") from None


def _find_by_scheme(url: str, create: bool) -> OpenDriver:
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise BadUrl(f"{url!r} names no scheme; did you mean 'sqlite:{url}' or 'dir:{url}'?")
    opener = _SCHEMES.get(scheme)
    if opener is None:
        raise BadUrl(f"unknown scheme {scheme!r} in {_show(url)}; {_hint(scheme, rest)}")
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


def _show(url: object) -> str:
    """For people: without the password, if there is one in it."""
    return re.sub(r"([^/:\s]*?):[^/].*@", r"\1:…@", repr(url))


def _hint(scheme: str, rest: str) -> str:
    if scheme.lower().startswith("postgres"):
        return "a PostgreSQL store is 'postgresql://user:password@host/database'"
    close = _find_close(scheme.lower())
    if close == "postgresql":
        return f"did you mean {_show(f'postgresql:{rest}')}?"
    known = "known are memory:, dir:PATH, sqlite:PATH and postgresql://…"
    return f"did you mean '{close}:{rest}'?" if close else known


def _find_close(scheme: str) -> str | None:
    """The scheme that was probably meant: misspelt, spelt out, or cut short."""
    names = (*_SCHEMES, "postgresql")
    if scheme in names:
        return scheme
    cut = (known for known in names if scheme and (scheme.startswith(known) or known.startswith(scheme)))
    return next(cut, None) or next(iter(difflib.get_close_matches(scheme, names, n=1)), None)


def _open_memory(path: Path, create: bool) -> Driver:
    from .memory import MemoryDriver

    return MemoryDriver()


def _open_directory(path: Path, create: bool) -> Driver:
    from .directory import DirectoryDriver

    return DirectoryDriver(path, create=create)


def _open_sqlite(path: Path, create: bool) -> Driver:
    from .sqlite import SqliteDriver

    return SqliteDriver(path, create=create)


def _open_postgres(where: str | ConnectionPool[Any], schema: str | None, create: bool) -> Driver:
    from .postgres import PostgresDriver

    return PostgresDriver(where, schema=schema, create=create)


_POSTGRES = ("postgresql://", "postgres://")
_SCHEMES: dict[str, Callable[[Path, bool], Driver]] = {
    "memory": _open_memory,
    "dir": _open_directory,
    "sqlite": _open_sqlite,
}
_ENDING = {"dir": "", "sqlite": ".db"}
