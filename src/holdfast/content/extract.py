"""Taking large binary content out of a JSON value, and putting it back.

What is binary is told by where it stands, not by the message format: a `data:` URL anywhere, and base64 under
the names that formats use for it. So the messages of pydantic-ai, OpenAI, Anthropic, LangChain and Google are
all served by the same few lines, and a field that nobody knows stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from ..messages import Json
from .references import Reference, digest_of, escape, parse_reference, read_base64, unescape

_NAMES: Final = frozenset({"data", "base64", "file_data", "b64_json"})
"""Where formats have base64: pydantic-ai, Anthropic, Google and ours have `data`, LangChain `data` or
`base64`, OpenAI `data` and `file_data`, and `b64_json` for images."""
_DRAWN: Final = ("image_generation_call", "result")
"""What OpenAI calls a picture that it made."""
_VALUES: Final = "$holdfast"
"""Bytes in user state are `{"$holdfast": ["bytes", …]}`."""
_TYPES: Final = ("media_type", "mime_type", "mimeType", "mimetype")
_TITLES: Final = ("filename", "file_name", "name")


class Piece(Struct, frozen=True):
    """Bytes that belong into a blob, and what was said about them where they stood. `parts` gives them."""

    digest: str
    parts: Callable[[], Iterable[bytes]]
    media_type: str = ""
    name: str | None = None


Read: TypeAlias = Callable[[str], bytes]
"""The bytes of a blob."""


class Swap:
    """Takes binary content of at least `inline_bytes` out of JSON values; None takes out nothing. Out of what
    tools gave, it takes texts of more than `text_chars`, too.

    `pieces` are the blobs that must be there before the values are stored.
    """

    def __init__(self, inline_bytes: int | None, text_chars: int | None = None) -> None:
        self._least, self._text_chars = inline_bytes, text_chars
        self.pieces: dict[str, Piece] = {}

    def take(self, data: bytes, media_type: str = "", name: str | None = None) -> str:
        """The digest of these bytes, which become a piece."""
        return self.keep(Piece(digest_of(data), lambda: (data,), media_type, name))

    def keep(self, piece: Piece) -> str:
        """The digest of a piece, which must be there before the value is stored."""
        self.pieces.setdefault(piece.digest, piece)
        return piece.digest

    @property
    def is_on(self) -> bool:
        """Whether anything is taken out at all."""
        return self._least is not None

    def is_large(self, size: int) -> bool:
        """Whether content of this size is taken out."""
        return self._least is not None and size >= self._least

    def message(self, value: Json, around: Mapping[str, Json] | None = None, name: str = "") -> Json:
        """The value with references where known shapes hold large binary content."""
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
        """What a tool gave: its own names are nobody's, so all base64 counts, wherever it stands."""
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
        """The value as it is stored, with nothing taken out."""
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
    """The value with its references as they are stored, and everything else as it was."""
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
    """The beginning of a data URL with base64 in it, and the media type that it tells."""
    if not text.startswith("data:"):
        return "", ""
    comma = text.find(",", 0, 1000)
    head = text[: comma + 1]
    return (head, head[5:].split(";")[0].rstrip(",")) if head.endswith(";base64,") else ("", "")


def _find(around: Mapping[str, Json] | None, names: tuple[str, ...]) -> str | None:
    found = (around.get(name) for name in names) if around is not None else ()
    return next((one for one in found if isinstance(one, str)), None)
