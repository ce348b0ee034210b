"""The address of a store: server, database and schema; and how to show it without its password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from ...errors import BadUrl
from ...limits import CONNECTIONS_MAX, RECONNECT_S
from ...suggestions import closest

SCHEMA: Final = "holdfast"
"""The default schema: apart from the tables of applications."""

_IDENTIFIER_BYTES_MAX: Final = 63

_DEFAULTS: Final = {
    "application_name": "holdfast",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    # A server whose machine is down sends nothing: notice it before a lease ends.
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


_OWN: Final = ("schema", "connections")
"""Parameters of a URL that are holdfast's."""

_MAY_HOLD_MORE: Final = ("password", "sslpassword", "options")
"""Parameters whose value may hold a `=`. In others it is a mistyped separator, perhaps before a password."""


class Address(Struct, frozen=True):
    """`conninfo` is for libpq; `shown` is for people, and names no password."""

    conninfo: str
    shown: str
    schema: str
    connections: int
    connect_timeout_s: int
    hosts: int

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def parse(url: str, *, schema: str | None = None) -> Address:
    """The address in a URL. `?schema=` and `?connections=` are holdfast's, the other parameters libpq's.

    libpq accepts almost everything: a part of a password with an `@` in it becomes the host, which errors
    name. So ambiguous URLs are refused here, and not shown.
    """
    base, _, rest = url.partition("?")
    authority, _, path = base.partition("://")[2].partition("/")
    user = authority.rpartition("@")[0].partition(":")[0]
    if "@" in path or authority.count("@") > 1 or re.search(r"[^\w.~%+-]", user):
        raise _no_url()
    query = dict(parse_qsl(rest, keep_blank_values=True))
    if any("=" in value for key, value in query.items() if key not in _MAY_HOLD_MORE):
        raise _no_url(": parameters are separated by '&'.")
    chosen = query.pop("schema", schema)
    if schema not in (None, chosen):
        raise BadUrl(f"two schemas, {chosen!r} in the URL and {schema!r} beside it: name one")
    connections = query.pop("connections", str(CONNECTIONS_MAX))
    if not re.fullmatch("[0-9]{1,6}", connections) or not int(connections):
        raise BadUrl("connections=… says how many to open at most: a number from 1")
    given = _ask_libpq(base, query)
    for key, pattern in (("port", r"[0-9,]*"), ("connect_timeout", r"[0-9]{1,6}"), ("host", r"@?[^@]*")):
        if not re.fullmatch(pattern, str(given.get(key, ""))) and key in given:
            raise _no_url()
    if any("=" in str(given.get(key, "")) for key in ("host", "dbname", "user")):
        raise _no_url(": parameters come after a '?'.")
    hosts = str(given.get("host", "")).count(",") + 1
    if hosts > 1:
        # Of several servers, use the one that can be written.
        given.setdefault("target_session_attrs", "read-write")
    for key, value in _DEFAULTS.items():
        given.setdefault(key, value)
    return Address(
        make_conninfo("", **given),
        show(given),
        check_schema(SCHEMA if chosen is None else chosen),
        int(connections),
        int(given["connect_timeout"]) or int(RECONNECT_S),
        hosts,
    )


def _ask_libpq(base: str, query: Mapping[str, str]) -> dict[str, Any]:
    """The parameters that libpq reads in a URL."""
    try:
        return conninfo_to_dict(f"{base}?{urlencode(query, quote_via=quote)}")
    except (psycopg.Error, UnicodeDecodeError):
        # libpq's message quotes the part that it does not understand, which may be the password.
        pass
    known = [option.keyword.decode() for option in Conninfo.get_defaults()]
    unknown = [key for key in query if key not in known]
    meant = [repr(one) for key in unknown if (one := closest(key, [*_OWN, *known]))]
    if meant:
        raise _no_url(f", or it has an unknown parameter: did you mean {' and '.join(meant)}?")
    raise _no_url(", or it has an unknown parameter." if unknown else "")


def _no_url(hint: str = "") -> BadUrl:
    return BadUrl(
        f"this is no PostgreSQL URL{hint or '.'} Write 'postgresql://user:password@host:5432/database', with "
        "special characters in user and password percent-encoded ('@' is %40, '/' is %2F, '?' is %3F)"
    )


def show(given: Mapping[str, object]) -> str:
    """`postgresql://user@host:port/database`. A part with odd characters is hidden: it may hold a
    password."""
    parts = {key: str(given[key]) for key in ("user", "host", "port", "dbname") if given.get(key)}
    for key, part in parts.items():
        parts[key] = part if re.fullmatch(r"@?[\w.,:/~+-]*", part) else "…"
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def check_schema(name: str) -> str:
    """Refuse a name that PostgreSQL would change or reserves."""
    if not 0 < len(name.encode()) <= _IDENTIFIER_BYTES_MAX or "\0" in name or name.startswith("pg_"):
        raise BadUrl(
            f"schema {name!r}: a name of 1 to {_IDENTIFIER_BYTES_MAX} bytes that does not begin with 'pg_'"
        )
    return name
