"""Messages of JSON-RPC: read as far as the proxy needs, and otherwise left as they are."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ..messages import Json

MessageId: TypeAlias = "str | int | float"
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CONNECTION_CLOSED: Final = -32000
PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_RESERVED: Final = "io.modelcontextprotocol/"

encode = msgspec.json.Encoder().encode


class _Envelope(Struct):
    """The members of a message that say what it is. The others are not looked into."""

    id: Any = None
    method: Any = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode = msgspec.json.Decoder().decode


class NoMessage(Exception):
    """A line holds no message; the text says why."""


class RpcMessage:
    """One message, and the line that it came in."""

    def __init__(self, line: bytes, members: dict[str, Any]) -> None:
        self.line, self._members = line, members
        """The line with its end."""

    @property
    def method(self) -> str | None:
        """The method of a request or notification; None for a response."""
        found = self._members.get("method")
        return found if isinstance(found, str) else None

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return "result" in self._members or "error" in self._members

    @property
    def id(self) -> MessageId | None:
        """The id, if it is one that a request can have."""
        found = self._members.get("id")
        return found if isinstance(found, str | int | float) and not isinstance(found, bool) else None

    @cached_property
    def params(self) -> Json:
        """The parameters; None if there are none."""
        return self._read("params")

    @cached_property
    def result(self) -> Json:
        """The result of a response; None if it is an error."""
        return self._read("result")

    @cached_property
    def error(self) -> Json:
        """The error of a response; None if it is a result."""
        return self._read("error")

    def _read(self, name: str) -> Json:
        found = self._members.get(name)
        if not isinstance(found, Raw):
            return found
        try:
            return _decode_any(bytes(found))
        except NoMessage:
            return None

    def with_params(self, params: Json) -> bytes:
        """The line of the same message with other parameters."""
        members: Any = _decode_any(self.line)
        return as_line({**members, "params": params})


def parse(line: bytes) -> RpcMessage | list[RpcMessage]:
    """The message in a line, or those of a batch; `NoMessage` if there is none."""
    if line.lstrip()[:1] == b"[":
        listed = _decode_any(line)
        assert isinstance(listed, list)
        return [_take_apart(as_line(one), one) for one in listed]
    try:
        known = _decode_envelope(line)
    except (msgspec.MsgspecError, RecursionError):
        # Such as a number that is none, or half of a surrogate pair: some libraries write and read them.
        return _take_apart(line, _decode_any(line))
    members = {
        name: value
        for name in _Envelope.__struct_fields__
        if (value := getattr(known, name)) is not None and not (isinstance(value, Raw) and not bytes(value))
    }
    return RpcMessage(line, members)


def _take_apart(line: bytes, value: Json) -> RpcMessage:
    if not isinstance(value, dict):
        raise NoMessage(f"a message is an object, not {type(value).__name__}")
    return RpcMessage(line, value)


def _decode_any(line: bytes) -> Json:
    try:
        try:
            return _decode(line)
        except msgspec.MsgspecError:
            return json.loads(line)
    except RecursionError:
        raise NoMessage("it is nested too deeply") from None
    except ValueError as error:
        raise NoMessage(str(error)) from None


def as_line(message: Json) -> bytes:
    """A message of the proxy's own as a line."""
    try:
        return encode(message) + b"\n"
    except (UnicodeEncodeError, ValueError):
        return json.dumps(message, allow_nan=True).encode() + b"\n"


def request(id: MessageId, method: str, params: Json) -> bytes:
    """A request of the proxy's own."""
    return as_line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def result_line(id: MessageId, result: Json) -> bytes:
    """A response of the proxy's own."""
    return as_line({"jsonrpc": "2.0", "id": id, "result": result})


def error_line(id: MessageId | None, code: int, message: str) -> bytes:
    """An error of the proxy's own."""
    return as_line(describe_error_response(id, code, message))


def describe_error_response(id: MessageId | None, code: int, message: str) -> dict[str, Json]:
    """The same, before it is a line."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def get_meta(params: Json) -> dict[str, Json]:
    """`_meta` of parameters or of a result; empty if there is none."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def list_reserved(meta: dict[str, Json]) -> dict[str, Json]:
    """What each request of the newer era says about its client."""
    return {key: value for key, value in meta.items() if key.startswith(_RESERVED)}
