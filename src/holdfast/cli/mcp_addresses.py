"""Servers with an address in the files of clients, and how they are put behind the proxy.

Such a server becomes one that a command starts, with the address among its arguments and the values of its
headers in its environment. As it was before, to the byte, it is kept in the environment as well: `unwrap`
puts that back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..mcp_proxy.http_headers import is_header_name
from ..redact import show_address
from .json_text import BadJson, Members, Value, parse_text

BEFORE: Final = "HOLDFAST_MCP_BEFORE"
"""The environment variable with the server as it was."""
_KEYS: Final = ("httpUrl", "serverUrl", "url")
"""What clients call the address of a server with streamable HTTP."""
_VARIABLE: Final = "HOLDFAST_MCP_"


class ListedAddress(NamedTuple):
    """A server of a file that has an address."""

    text: str
    """The file."""
    value: Value
    url: str
    key: str
    headers: dict[str, str]

    def make_args(self, name: str) -> list[str]:
        """The arguments of the proxy."""
        headers = [f"{header}={variable}" for header, variable in self._name_variables()]
        return [
            *("mcp", "proxy", "--name", name, "--url", self.url),
            *(one for header in headers for one in ("--header", header)),
        ]

    def show_args(self, name: str) -> list[str]:
        """The same for people, without secrets."""
        return [show_address(self.url) if one == self.url else one for one in self.make_args(name)]

    def wrap(self, holdfast: Sequence[str], name: str) -> str:
        """The text that takes the place of the server's."""
        args = [*holdfast[1:], *self.make_args(name)]
        members = [("command", _write(holdfast[0])), ("args", _write(args))]
        environment = [
            (variable, _write(self.headers[header])) for header, variable in self._name_variables()
        ]
        was = self.text[self.value.start : self.value.end]
        for key, value in self._members():
            raw = self.text[value.start : value.end]
            if key == "type":
                members.append((key, _write("stdio")))
            elif key == "env" and isinstance(value.data, Members):
                own = [(name, self.text[one.start : one.end]) for name, one in value.data.members]
                environment = [*own, *environment]
            elif key not in (self.key, "headers"):
                members.append((key, raw))
        environment.append((BEFORE, _write(was)))
        members.append(("env", "{" + ", ".join(f"{_write(key)}: {raw}" for key, raw in environment) + "}"))
        written = [f"{_write(key)}: {raw}" for key, raw in members]
        if "\n" not in was:
            return "{" + ", ".join(written) + "}"
        outer = self._indentation(self.value.start)
        first = next(iter(self._members()), None)
        inner = self._indentation(first[1].start) if first is not None else outer
        inner = inner if len(inner) > len(outer) else f"{outer}  "
        return "{\n" + ",\n".join(f"{inner}{one}" for one in written) + f"\n{outer}}}"

    def _members(self) -> Iterator[tuple[str, Value]]:
        assert isinstance(self.value.data, Members)
        yield from self.value.data.members

    def _indentation(self, at: int) -> str:
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _name_variables(self) -> Iterator[tuple[str, str]]:
        used: set[str] = set()
        for header in self.headers:
            name = base = _VARIABLE + re.sub(r"[^A-Z0-9]", "_", header.upper())
            count = 1
            while name in used:
                count += 1
                name = f"{base}_{count}"
            used.add(name)
            yield header, name


def read_address(text: str, value: Value, *, url_is_sse: bool = False) -> ListedAddress | str:
    """The server with an address, or why it cannot be put behind the proxy.

    `url_is_sse`: the client of this file takes a `url` for one of the transport before streamable HTTP.
    """
    found = [(key, one) for key in _KEYS if (one := value.get(key)) is not None]
    if not found:
        return "it has neither a command nor an address"
    if len(found) > 1:
        return f"it has more than one address: {', '.join(key for key, _ in found)}"
    ((key, url),) = found
    kind = value.get("type")
    spoken = kind.data if kind is not None and isinstance(kind.data, str) else None
    if spoken == "sse" or (spoken is None and key == "url" and url_is_sse):
        return "it speaks the transport before streamable HTTP (server-sent events), which the proxy does not"
    if not isinstance(url.data, str) or urlsplit(url.data).scheme not in ("http", "https"):
        return "its address does not begin with https:// or http://"
    headers = value.get("headers")
    said: dict[str, str] = {}
    if headers is not None:
        members = headers.data.members if isinstance(headers.data, Members) else None
        if members is None or not all(
            isinstance(one.data, str) and is_header_name(name) for name, one in members
        ):
            return "its headers are no texts with names of headers"
        for name, _ in members:
            one = headers.get(name)
            assert one is not None
            assert isinstance(one.data, str)
            said[name] = one.data
    environment = value.get("env")
    if environment is not None and (not isinstance(environment.data, Members) or environment.get(BEFORE)):
        return "its environment is no object of texts"
    return ListedAddress(text, value, url.data, key, said)


def restore(text: str, value: Value, holdfast: Sequence[str], name: str) -> str | None:
    """The server as it was before `wrap`; None if it is not what `wrap` has made.

    `holdfast` is the command that it is started with now, `name` the one in the ledger.
    """
    environment = value.get("env")
    kept = environment.get(BEFORE) if environment is not None else None
    if kept is None or not isinstance(kept.data, str):
        return None
    # Where it stands decides how it is indented.
    whole = text[: value.start] + kept.data + text[value.end :]
    try:
        moved = _shift(parse_text(kept.data), value.start)
        address = read_address(whole, moved)
    except BadJson:
        return None
    if isinstance(address, str) or address.wrap(holdfast, name) != text[value.start : value.end]:
        return None
    return kept.data


def _shift(value: Value, by: int) -> Value:
    """The same value further on in a text."""
    data = value.data
    if isinstance(data, Members):
        data = Members([(name, _shift(one, by)) for name, one in data.members])
    elif isinstance(data, list):
        data = [_shift(one, by) for one in data]
    return Value(value.start + by, value.end + by, data)


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
