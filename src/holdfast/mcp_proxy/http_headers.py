"""The headers that a message has over HTTP in the newer era, in which they repeat some of what it says."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from ..messages import Json
from .json_rpc import PROTOCOL_VERSION, RpcMessage, get_meta

SESSION: Final = "mcp-session-id"
VERSION: Final = "mcp-protocol-version"
OWN_HEADERS: Final = frozenset(
    {
        "accept",
        "content-type",
        "content-length",
        "host",
        "last-event-id",
        SESSION,
        VERSION,
        "mcp-method",
        "mcp-name",
    }
)
"""Headers that the proxy makes itself."""

_NAMES: Final[Mapping[str, str]] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""By method, the parameter that is repeated in `Mcp-Name`."""
_PARAM: Final = "x-mcp-header"
"""In the schema of an argument: the argument is repeated in a header of this name."""
_PARAM_TYPES: Final = ("string", "integer", "boolean")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")
_DEPTH_MAX: Final = 32

Path: TypeAlias = tuple[str, ...]


def is_header_name(name: str) -> bool:
    """Whether HTTP takes it for the name of a header."""
    return _TOKEN.fullmatch(name) is not None


class ParamHeaders:
    """Which arguments of which tools are repeated in headers, as the server lists its tools."""

    def __init__(self) -> None:
        self._tools: dict[str, dict[Path, str]] = {}

    def learn(self, page: Json) -> None:
        """Look at a page of the list of tools."""
        listed: Any = page.get("tools") if isinstance(page, dict) else None
        for tool in listed if isinstance(listed, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                found = dict(_find_marked(tool.get("inputSchema"), ()))
                self._tools.pop(tool["name"], None)
                if found:
                    self._tools[tool["name"]] = found

    def make(self, params: dict[str, Any]) -> dict[str, str]:
        """Those of a call."""
        headers: dict[str, str] = {}
        for path, token in self._tools.get(params.get("name", ""), {}).items():
            value: Any = params.get("arguments")
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, bool):
                headers[f"mcp-param-{token}"] = "true" if value else "false"
            elif isinstance(value, str | int | float):
                headers[f"mcp-param-{token}"] = encode_value(str(value))
        return headers


def _find_marked(schema: Json, path: Path) -> Iterator[tuple[Path, str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= _DEPTH_MAX:
        return
    for name, one in properties.items():
        if isinstance(one, dict):
            token = one.get(_PARAM)
            if isinstance(token, str) and is_header_name(token) and one.get("type") in _PARAM_TYPES:
                yield (*path, name), token
            yield from _find_marked(one, (*path, name))


def encode_value(value: str) -> str:
    """A text as the value of a header: as it is, or in base64 where HTTP would change or refuse it."""
    if _PLAIN.fullmatch(value) and value == value.strip() and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{b64encode(value.encode(errors='surrogatepass')).decode()}?="


def make_headers(message: RpcMessage, params: ParamHeaders) -> dict[str, str]:
    """The headers of a message of the newer era; none if it is one of the older."""
    said: Any = message.params
    version = get_meta(said).get(PROTOCOL_VERSION)
    if message.method is None or not isinstance(version, str):
        return {}
    headers = {VERSION: encode_value(version), "mcp-method": encode_value(message.method)}
    name = said.get(_NAMES.get(message.method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = encode_value(name)
    if message.method == "tools/call":
        headers |= params.make(said)
    return headers
