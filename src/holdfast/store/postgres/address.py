"""Which server, which database, which schema; and how they are called without their password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import BadUrl
from ...limits import CONNECTIONS_MAX

SCHEMA: Final = "holdfast"
"""Where the tables are, unless said otherwise: a schema of their own disturbs nobody."""

_IDENTIFIER_BYTES_MAX: Final = 63

_DEFAULTS: Final = {
    "application_name": "holdfast",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    # A server whose machine is gone says nothing: notice it before a lease has run out.
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


class Address(Struct, frozen=True):
    """`conninfo` is for libpq; `shown` is for people, and names no password."""

    conninfo: str
    shown: str
    schema: str
    connections: int


def parse(url: str, *, schema: str | None = None) -> Address:
    """The address that a URL names. `?schema=` and `?connections=` are ours, the rest is libpq's."""
    base, _, rest = url.partition("?")
    query = dict(parse_qsl(rest, keep_blank_values=True))
    chosen = query.pop("schema", schema)
    if schema not in (None, chosen):
        raise BadUrl(f"two schemas, {chosen!r} in the URL and {schema!r} beside it: which one?")
    connections = query.pop("connections", str(CONNECTIONS_MAX))
    if not connections.isdecimal() or not int(connections):
        raise BadUrl(f"connections={connections}: how many to open at most, a number from 1")
    try:
        given = conninfo_to_dict(f"{base}?{urlencode(query, quote_via=quote)}")
    except psycopg.Error as error:
        # libpq quotes what it does not understand, and that may be the password.
        harmless = re.search(r'invalid URI query parameter: ".*"', str(error))
        shown = f": {harmless[0]}" if harmless else ""
        raise BadUrl(
            f"this is no PostgreSQL URL{shown}. Write 'postgresql://user:password@host:5432/database', with "
            "special characters in the password percent-encoded"
        ) from None
    if "," in str(given.get("host")):
        # Of several servers, the one that can be written to.
        given.setdefault("target_session_attrs", "read-write")
    for key, value in _DEFAULTS.items():
        given.setdefault(key, value)
    return Address(
        make_conninfo("", **given),
        show(given),
        check_schema(SCHEMA if chosen is None else chosen),
        int(connections),
    )


def show(given: Mapping[str, object]) -> str:
    """`postgresql://user@host:port/database`."""
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{user}{given.get('host', '')}{port}/{given.get('dbname', '')}"


def check_schema(name: str) -> str:
    """A name that PostgreSQL keeps as it is."""
    if not 0 < len(name.encode()) <= _IDENTIFIER_BYTES_MAX or "\0" in name or name.startswith("pg_"):
        raise BadUrl(
            f"schema {name!r}: a name of 1 to {_IDENTIFIER_BYTES_MAX} bytes that does not begin with 'pg_'"
        )
    return name
