"""Where a server is that no command starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import BadInput
from ..redact import show_address
from .http_headers import OWN_HEADERS, is_header_name

_VALUE: Final = re.compile(r"[\x20-\x7e]*")


class ServerAddress(Struct, frozen=True):
    """The URL of a server, and what each request to it has in its headers."""

    url: str
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"ServerAddress({show_address(self.url)!r})"


def read_address(url: str, headers: Sequence[str], environment: Mapping[str, str]) -> ServerAddress:
    """The address in the options of a command; `headers` has `NAME=VARIABLE` for each."""
    try:
        parts = urlsplit(url)
        is_fitting = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_fitting = False
    if not is_fitting:
        raise BadInput("--url is no address of an MCP server; it begins with https:// or http://")
    found: dict[str, str] = {}
    for one in headers:
        name, _, variable = one.partition("=")
        if not is_header_name(name) or not variable:
            # What was written may be the secret itself.
            raise BadInput(
                "--header is NAME=VARIABLE, such as Authorization=MY_TOKEN: the name of a header, and of the "
                "environment variable that holds what it says"
            )
        if name.lower() in OWN_HEADERS:
            raise BadInput(f"--header {name}: the proxy makes this header itself")
        value = environment.get(variable)
        if value is None:
            raise BadInput(
                f"--header {name}: there is no environment variable of the name behind the = sign. "
                'Put it into the environment that the client starts the proxy with ("env")'
            )
        if not _VALUE.fullmatch(value):
            raise BadInput(
                f"--header {name}: the environment variable holds what no header can, such as a line end"
            )
        found[name] = value
    return ServerAddress(url, found)
