"""From a URL to a driver. A typo is an error, never a silent fallback."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import BadUrl
from ..redact import find_scheme, has_credentials, show_corrected, show_scheme, show_url
from ..suggestions import closest
from .contract import Driver

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

OpenDriver: TypeAlias = Callable[[], Driver]
StoreAddress: TypeAlias = "str | Path | Driver | ConnectionPool[Any]"
"""What can be opened: a URL, a SQLite file, a driver, or a pool of connections to PostgreSQL."""


def find_driver(
    url: StoreAddress | None, *, create: bool, schema: str | None = None, read_only: bool = False
) -> OpenDriver:
    """A function that opens the store at `url`; nothing is opened yet. `schema` is for PostgreSQL."""
    if read_only:
        # Not above: it imports the homes of blobs, and they import this module.
        from .read_only import ReadOnlyDriver

        open_driver = _find_opener(url, False, schema, True)
        return lambda: ReadOnlyDriver(open_driver())
    return _find_opener(url, create, schema, False)


def _find_opener(url: StoreAddress | None, create: bool, schema: str | None, read_only: bool) -> OpenDriver:
    if url is None:
        url = os.environ.get("HOLDFAST_STORE")
        if not url:
            raise BadUrl("no store: pass a URL such as 'sqlite:agents.db', or set HOLDFAST_STORE")
    if isinstance(url, str | Path):
        refuse_unencodable(str(url), "the store's URL")
    is_postgres = hasattr(url, "getconn") or (isinstance(url, str) and url.startswith(_POSTGRES))
    if schema is not None and not is_postgres:
        raise BadUrl(f"schema={schema!r} is for PostgreSQL, and {show_url(url)} is something else")
    if is_postgres:
        where: Any = url
        return lambda: _open_postgres(where, schema, create, read_only)
    if isinstance(url, Path):
        if has_credentials(str(url)) or show_scheme(str(url)):
            raise BadUrl("a Path is the file of a SQLite store, and this one is a URL: pass it as text")
        return lambda: _open_sqlite(Path(url), create, read_only)
    if not isinstance(url, str):
        driver: Any = url
        if not hasattr(driver, "commit"):
            raise BadUrl(
                f"{show_url(url)} is no store: pass a URL such as 'sqlite:agents.db', a Path or a driver"
            )
        return lambda: driver
    return _find_by_scheme(url, create, read_only)


def refuse_unencodable(url: str, what: str) -> None:
    """Refuse text that cannot be encoded. File names may hold bytes that are no UTF-8."""
    try:
        url.encode(errors="strict" if url.startswith(_POSTGRES) else "surrogateescape")
    except UnicodeEncodeError:
        raise BadUrl(f"{what} holds half a surrogate pair, which is no text") from None


def _find_by_scheme(url: str, create: bool, read_only: bool) -> OpenDriver:
    scheme, colon, rest = url.partition(":")
    shown = show_url(url)
    if not colon:
        if shown != repr(url):
            raise BadUrl(f"{shown} names no scheme; {_KNOWN}")
        raise BadUrl(f"{shown} names no scheme; did you mean 'sqlite:{url}' or 'dir:{url}'?")
    opener = _SCHEMES.get(scheme)
    if opener is None:
        raise BadUrl(f"unknown scheme {show_scheme(url)!r} in {shown}; {_hint(scheme, rest)}")
    _, mark, query = rest.partition("?")
    if mark:
        raise BadUrl(f"{shown}: {scheme}: takes no parameters{_option_hint(query)}")
    if scheme == "memory":
        if rest:
            raise BadUrl(f"{shown}: memory: takes no path; for a file write {show_corrected('sqlite', rest)}")
    elif rest.startswith("//"):
        path = rest.lstrip("/")
        raise BadUrl(
            f"{shown}: no slashes after the scheme; {show_corrected(scheme, path)} is relative, "
            f"{show_corrected(scheme, f'/{path}')} is absolute"
        )
    elif not rest.strip():
        raise BadUrl(f"{shown} has no path; write for example '{scheme}:agents{_ENDING[scheme]}'")
    elif rest == ":memory:":
        raise BadUrl("a store that ends with its process is 'memory:'")
    elif "\0" in rest:
        raise BadUrl(f"{shown} holds a NUL character")
    elif has_credentials(rest):
        raise BadUrl(
            f"{shown}: a path follows '{scheme}:', not a URL nor a user and password; those are for "
            "'postgresql://user:password@host/database'"
        )
    return lambda: opener(Path(rest).expanduser(), create, read_only)


def _option_hint(query: str) -> str:
    """What the parameters of a URL may stand for. They are not shown: they may hold a password."""
    names = [one.partition("=")[0] for one in re.split("[&;]", query)]
    meant = {close: None for one in names if (close := closest(one, _OPTIONS))}
    if meant:
        return f"; did you mean open_store(…, {', '.join(f'{name}=…' for name in meant)})?"
    return "; options are those of open_store(…), and a file with a '?' in its name is given as a Path"


def _hint(scheme: str, rest: str) -> str:
    close = find_scheme(scheme)
    if close in ("postgresql", "postgres"):
        return "a PostgreSQL store is 'postgresql://user:password@host/database'"
    return f"did you mean {show_corrected(close, rest)}?" if close in _SCHEMES else _KNOWN


def _open_memory(path: Path, create: bool, read_only: bool) -> Driver:
    from .memory import MemoryDriver

    return MemoryDriver()


def _open_directory(path: Path, create: bool, read_only: bool) -> Driver:
    from .directory import DirectoryDriver

    return DirectoryDriver(path, create=create, read_only=read_only)


def _open_sqlite(path: Path, create: bool, read_only: bool) -> Driver:
    from .sqlite import SqliteDriver

    return SqliteDriver(path, create=create, read_only=read_only)


def _open_postgres(
    where: str | ConnectionPool[Any], schema: str | None, create: bool, read_only: bool
) -> Driver:
    from .postgres import PostgresDriver

    return PostgresDriver(where, schema=schema, create=create, read_only=read_only)


_POSTGRES = ("postgresql://", "postgres://")
_SCHEMES: dict[str, Callable[[Path, bool, bool], Driver]] = {
    "memory": _open_memory,
    "dir": _open_directory,
    "sqlite": _open_sqlite,
}
_OPTIONS = (
    "blobs",
    "blob_urls",
    "create",
    "read_only",
    "schema",
    "lease_s",
    "linger_s",
    "inline_bytes",
    "result_chars",
)
_KNOWN = "known are memory:, dir:PATH, sqlite:PATH and postgresql://…"
_ENDING = {"dir": "", "sqlite": ".db"}
