"""JSON as people write it, with the place of each value in the text.

So one value can be replaced, and everything else stays as it is: order, spaces, comments, numbers, escapes.
Comments and commas before a closing bracket are read, too: editors write and accept them.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

_BYTE_ORDER_MARK: Final = codecs.BOM_UTF8.decode()
_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT: Final = re.compile(r"//|/\*")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_OTHER: Final = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_DEPTH_MAX: Final = 100


class BadJson(ValueError):
    """The text is no JSON; the message says where and why."""


class Value(NamedTuple):
    """A value and its place: `text[start:end]`."""

    start: int
    end: int
    data: JsonData

    def get(self, key: str) -> Value | None:
        """The member of an object with this key, or None. `BadJson` if it has two of them."""
        if not isinstance(self.data, Members):
            return None
        found = [value for name, value in self.data.members if name == key]
        if len(found) > 1:
            raise BadJson(f"{key!r} is there twice in one object, and programs differ in which one they take")
        return found[0] if found else None

    @property
    def texts(self) -> list[str] | None:
        """The elements of a list of texts, or None if it is something else."""
        if not isinstance(self.data, list):
            return None
        found = [one.data for one in self.data if isinstance(one.data, str)]
        return found if len(found) == len(self.data) else None


class Members(NamedTuple):
    """An object: its keys and values, in the order of the text."""

    members: list[tuple[str, Value]]


class Scalar(NamedTuple):
    """A number, true, false or null, as it is written."""

    text: str


JsonData: TypeAlias = str | Scalar | list[Value] | Members


class Edit(NamedTuple):
    """Replace `text[start:end]`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with these changes, which do not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def has_comment(text: str) -> bool:
    """Whether there is a comment in a part of the text that is between values."""
    return _COMMENT.search(text) is not None


def skip_blank(text: str, at: int) -> int:
    """The first place from here on that is neither space nor comment."""
    found = _BLANK.match(text, at)
    assert found is not None, "it matches nothing, too"
    return found.end()


def parse_text(text: str) -> Value:
    """The value that the text holds; `BadJson` if there is none, or more than one."""
    reader = _Reader(text)
    found = reader.read(reader.skip(1 if text.startswith(_BYTE_ORDER_MARK) else 0), 0)
    if reader.skip(found.end) != len(text):
        raise reader.error(reader.skip(found.end), "there is more after the end")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def error(self, at: int, why: str) -> BadJson:
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        return BadJson(f"line {line}, column {column}: {why}")

    def skip(self, at: int) -> int:
        """Where the next value or sign begins."""
        return skip_blank(self._text, at)

    def read(self, at: int, depth: int) -> Value:
        """The value that begins here."""
        if depth > _DEPTH_MAX:
            raise self.error(at, f"more than {_DEPTH_MAX} values inside of each other")
        match self._text[at : at + 1]:
            case '"':
                return self._read_string(at)
            case "[":
                return self._read_list(at, depth)
            case "{":
                return self._read_object(at, depth)
        found = _OTHER.match(self._text, at)
        if found is None:
            raise self.error(at, "there is no value here")
        try:
            json.loads(found[0])
        except ValueError:
            raise self.error(at, f"{found[0]!r} is no number") from None
        return Value(at, found.end(), Scalar(found[0]))

    def _read_string(self, at: int) -> Value:
        found = _STRING.match(self._text, at)
        if found is None:
            raise self.error(at, "a text that does not end on its line")
        try:
            return Value(at, found.end(), str(json.loads(found[0])))
        except ValueError as error:
            raise self.error(at, f"a text that is no JSON ({error})") from None

    def _read_list(self, at: int, depth: int) -> Value:
        elements: list[Value] = []
        place = self.skip(at + 1)
        while not self._text.startswith("]", place):
            elements.append(self.read(place, depth + 1))
            place = self._read_comma(elements[-1].end, "]")
        return Value(at, place + 1, elements)

    def _read_object(self, at: int, depth: int) -> Value:
        members: list[tuple[str, Value]] = []
        place = self.skip(at + 1)
        while not self._text.startswith("}", place):
            if not self._text.startswith('"', place):
                raise self.error(place, "a key in quotes is missing here")
            key = self._read_string(place)
            colon = self.skip(key.end)
            if not self._text.startswith(":", colon):
                raise self.error(colon, "a colon is missing here")
            value = self.read(self.skip(colon + 1), depth + 1)
            members.append((str(key.data), value))
            place = self._read_comma(value.end, "}")
        return Value(at, place + 1, Members(members))

    def _read_comma(self, at: int, closing: str) -> int:
        place = self.skip(at)
        if self._text.startswith(",", place):
            return self.skip(place + 1)
        if not self._text.startswith(closing, place):
            raise self.error(place, f"a comma or {closing} is missing here")
        return place
