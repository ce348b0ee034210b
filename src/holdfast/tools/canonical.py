"""Canonical arguments, and what is derived from them: fingerprint, operation and key.

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


class NotCanonical(ValueError):
    """A value that JSON cannot hold faithfully; `path` says where."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


def normalise(value: Json, path: str = "args", depth: int = 0) -> Json:
    """The same value with one spelling for each meaning."""
    if isinstance(value, str):
        if not value.isascii():
            _refuse_surrogates(value, path)
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() >= INT_BITS_MAX:
            raise NotCanonical(path, "is an integer of more digits than anybody needs")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotCanonical(path, f"{value} is not a JSON number")
        return int(value) if value.is_integer() else value
    if depth >= JSON_DEPTH_MAX:
        raise NotCanonical(path[:40] + "…", f"is nested more than {JSON_DEPTH_MAX} levels deep")
    if isinstance(value, list | tuple):
        return [normalise(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, dict):
        found: dict[str, Json] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotCanonical(path, f"the key {key!r} is not a string")
            _refuse_surrogates(key, path)
            found[key] = normalise(item, f"{path}.{key}", depth + 1)
        return found
    raise NotCanonical(path, f"a {type(value).__name__} is not JSON")


def _refuse_surrogates(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotCanonical(path, "holds a lone surrogate, which is not text") from None


_encode = msgspec.json.Encoder().encode


def to_json(value: Json) -> bytes:
    """A normalised value as JSON, integers of any size included."""
    try:
        return _encode(value)
    except OverflowError:  # Beyond 64 bits.
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def canonical(value: Json) -> str:
    """The text that stands for a normalised value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(*parts: str) -> str:
    """A digest in which no two different lists of parts look alike."""
    return sha256(_encode(parts)).hexdigest()


def fingerprint(tool: str, args: Json) -> str:
    """Of a tool and its arguments, whoever calls."""
    return digest(tool, canonical(args))[:32]
