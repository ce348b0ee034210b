"""Take large binary content out of a JSON value, and put it back.

Binary content is recognised by its position, not by the message format: a `data:` URL anywhere, and base64
under the field names that formats use for it. The same code therefore serves the messages of pydantic-ai,
OpenAI, Anthropic, LangChain and Google, and an unknown field stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from ..messages import Json
from .references import Reference, digest_of, escape, parse_reference, read_base64, unescape

_NAMES: Final = frozenset({"data", "base64", "file_data", "b64_json"})
"""Fields that hold base64: pydantic-ai, Anthropic, Google and ours have `data`, LangChain `data` or
`base64`, OpenAI `data` and `file_data`, and `b64_json` for images."""
_DRAWN: Final = ("image_generation_call", "result")
"""OpenAI's name for a generated image, and the field that holds it."""
_VALUES: Final = "$holdfast"
"""Bytes in user state are `{"$holdfast": ["bytes", …]}`."""
_TYPES: Final = ("media_type", "mime_type", "mimeType", "mimetype")
_TITLES: Final = ("filename", "file_name", "name")


class Piece(Struct, frozen=True):
    """Bytes for a blob, with the media type and name found beside them. `parts` yields the bytes."""

    digest: str
    parts: Callable[[], Iterable[bytes]]
    media_type: str = ""
    name: str | None = None


Read: TypeAlias = Callable[[str], bytes]
"""Reads the bytes of a blob."""


class Swap:
    """Takes binary content of at least `inline_bytes` out of JSON values (None: nothing), and from results of
    tools also texts of more than `text_chars`.

    `pieces` are the blobs that must be written before the values are stored.
    """

    def __init__(self, inline_bytes: int | None, text_chars: int | None = None) -> None:
        self._least, self._text_chars = inline_bytes, text_chars
        self.pieces: dict[str, Piece] = {}

    def take(self, data: bytes, media_type: str = "", name: str | None = None) -> str:
        """Add these bytes as a piece; their digest."""
        return self.keep(Piece(digest_of(data), lambda: (data,), media_type, name))

    def keep(self, piece: Piece) -> str:
        """Add a piece; its digest."""
        self.pieces.setdefault(piece.digest, piece)
        return piece.digest

    @property
    def is_on(self) -> bool:
        """Whether anything is taken out."""
        return self._least is not None

    def is_large(self, size: int) -> bool:
        """Whether content of this size is taken out."""
        return self._least is not None and size >= self._least

    def message(self, value: Json, around: Mapping[str, Json] | None = None, name: str = "") -> Json:
        """The value with references in place of large binary content in known fields."""
        if isinstance(value, str):
            return self._binary(value, around, _is_known(name, around))
        if isinstance(value, dict):
            marked = value.get(_VALUES)
            if isinstance(marked, list) and marked[:1] == ["bytes"] and len(value) == 1:
                return {_VALUES: [self.message(one, None, "data") for one in marked]}
            return {key: self.message(item, value, key) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.message(item, around, name) for item in value]
        return value

    def result(self, value: Json) -> Json:
        """The value of a tool's result. Its field names are not known, so base64 counts in any field."""
        if isinstance(value, str):
            return self._long(value)
        if isinstance(value, dict):
            return {key: self.result(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.result(item) for item in value]
        return value

    def _long(self, text: str) -> str:
        stored = self._binary(text, None, True)
        if self._text_chars is None or len(stored) <= self._text_chars:
            return stored
        return str(Reference(self.take(text.encode(), "text/plain; charset=utf-8"), "text"))

    @staticmethod
    def text(value: Json) -> Json:
        """The value as it is stored, with strings escaped and nothing taken out."""
        return _NOTHING.result(value)

    def _binary(self, text: str, around: Mapping[str, Json] | None, known: bool) -> str:
        if not self.is_large(len(text) * 3 // 4):
            return escape(text)
        prefix, media_type = _data_url(text)
        if not (prefix or known):
            return escape(text)
        found = read_base64(text[len(prefix) :])
        if found is None or not self.is_large(len(found[0])):
            return escape(text)
        data, form = found
        told = media_type or _find(around, _TYPES) or ""
        return str(Reference(self.take(data, told, _find(around, _TITLES)), form, prefix))


_NOTHING: Final = Swap(None)


def put_back(value: Json, read: Read) -> Json:
    """The value as it was before it was stored."""
    if isinstance(value, str):
        reference = parse_reference(value)
        return unescape(value) if reference is None else reference.put_back(read(reference.digest))
    if isinstance(value, dict):
        return {key: put_back(item, read) for key, item in value.items()}
    if isinstance(value, list):
        return [put_back(item, read) for item in value]
    return value


def unmark(value: Json) -> Json:
    """The value with strings unescaped, and references left in place."""
    if isinstance(value, str):
        return unescape(value)
    if isinstance(value, dict):
        return {key: unmark(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unmark(item) for item in value]
    return value


def _is_known(name: str, around: Mapping[str, Json] | None) -> bool:
    kind, field = _DRAWN
    return name in _NAMES or (name == field and around is not None and around.get("type") == kind)


def _data_url(text: str) -> tuple[str, str]:
    """The part of a base64 data URL before its data, and its media type."""
    if not text.startswith("data:"):
        return "", ""
    comma = text.find(",", 0, 1000)
    head = text[: comma + 1]
    return (head, head[5:].split(";")[0].rstrip(",")) if head.endswith(";base64,") else ("", "")


def _find(around: Mapping[str, Json] | None, names: tuple[str, ...]) -> str | None:
    found = (around.get(name) for name in names) if around is not None else ()
    return next((one for one in found if isinstance(one, str)), None)
