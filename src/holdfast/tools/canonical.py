"""Canonical arguments, and the digests that are made of them: fingerprint, operation and key.

Keys are sorted, strings untouched (no Unicode normal forms: they may be file names), integers exact, a float
equal to an integer is that integer, `true` is not 1. NaN, infinities and lone surrogates are refused.
"""

from __future__ import annotations

import json
import math
from hashlib import sha256

import msgspec

from ..limits import INT_BITS_MAX, JSON_DEPTH_MAX
from ..messages import Json

_encode = msgspec.json.Encoder(order="deterministic").encode


class NotCanonical(ValueError):
    """A value that JSON cannot hold faithfully; `path` says where."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why, self.path = why, ""

    def __str__(self) -> str:
        path = self.path if len(self.path) < 80 else f"{self.path[:40]}…"
        return f"args{path}: {self.why}"


def normalise(value: Json, depth: int = 0) -> Json:
    """The same value with one spelling for each meaning."""
    cls = value.__class__
    if cls is str:
        return value if value.isascii() else _check_text(value)
    if cls is int:
        if value.bit_length() >= INT_BITS_MAX:
            raise NotCanonical("is an integer of too many digits")
        return value
    if value is None or cls is bool:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotCanonical(f"{value} is not a JSON number")
        return int(value) if value.is_integer() else value
    if depth >= JSON_DEPTH_MAX:
        raise NotCanonical(f"is nested more than {JSON_DEPTH_MAX} levels deep")
    if isinstance(value, dict):
        return _normalise_object(value, depth + 1)
    if isinstance(value, list | tuple):
        return _normalise_list(value, depth + 1)
    if isinstance(value, str):
        return _check_text(str(value))
    if isinstance(value, int):
        return normalise(int(value))
    raise NotCanonical(f"a {cls.__name__} is not JSON")


def _normalise_object(value: dict[object, Json], depth: int) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotCanonical(f"the key {key!r} is not a string")
        if not key.isascii():
            _check_text(key)
        if item.__class__ is str and item.isascii():
            found[key] = item
            continue
        try:
            found[key] = normalise(item, depth)
        except NotCanonical as error:
            error.path = f".{key}{error.path}"
            raise
    return found


def _normalise_list(value: list[Json] | tuple[Json, ...], depth: int) -> list[Json]:
    found: list[Json] = []
    for index, item in enumerate(value):
        try:
            found.append(normalise(item, depth))
        except NotCanonical as error:
            error.path = f"[{index}]{error.path}"
            raise
    return found


def _check_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotCanonical("holds a lone surrogate, which is not text") from None
    return text


def to_json(value: Json) -> bytes:
    """A normalised value as JSON, keys sorted, integers of any size included."""
    try:
        return _encode(value)
    except OverflowError:  # Beyond 64 bits.
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def canonical(value: Json) -> str:
    """The text that stands for a normalised value."""
    return to_json(value).decode()


def digest(*parts: str) -> str:
    """A digest in which no two different lists of parts look alike."""
    text = "".join([f"{len(part)}:{part}" for part in parts])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(tool: str, args: Json) -> str:
    """A digest of a tool and its arguments; the same for every caller."""
    # As `digest(tool, canonical(args))`, in one go: this is done for every call.
    text = to_json(args).decode()
    return sha256(f"{len(tool)}:{tool}{len(text)}:{text}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
