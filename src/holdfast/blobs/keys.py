"""Where a blob lies below the root of its home: by its digest, or as a function of the user's says.

The rules are the same for every home, so that what one takes can move to any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from ..errors import BadInput
from ..limits import BLOB_KEY_BYTES_MAX, BLOB_KEY_PART_BYTES_MAX
from .home import BlobContext

KeyFunction: TypeAlias = Callable[[str, BlobContext], str]
"""From a digest and what is known of the blob to a path such as `images/2026/cat.png`."""

OWN: Final = ".holdfast"
"""The directory below a root in which a home keeps its own records."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BY_DIGEST = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")


def digest_key(digest: str) -> str:
    """Where a blob lies unless a function says otherwise."""
    return f"{digest[:2]}/{digest}"


def choose_key(function: KeyFunction | None, digest: str, context: BlobContext) -> str:
    """The key of a blob; `BadInput` if the function gives one that no home may use."""
    if function is None:
        return digest_key(digest)
    key = function(digest, context)
    if why := _find_fault(key, digest):
        shown = repr(key) if len(repr(key)) <= 100 else f"{repr(key)[:100]}…"
        raise BadInput(f"the key function gave {shown} for blob {digest}: {why}")
    return key


def _find_fault(key: object, digest: str) -> str | None:
    if not isinstance(key, str):
        return f"a key is text, not {type(key).__name__}"
    if not key:
        return "a key must not be empty"
    if key.startswith("/"):
        return "a key is relative to the home's root and does not begin with a slash"
    if "\\" in key:
        return "a backslash separates directories on some homes; use a slash"
    if _CONTROL.search(key):
        return "a key holds no control characters"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it holds half a surrogate pair, which is no text"
    if size > BLOB_KEY_BYTES_MAX:
        return f"it has {size} bytes; {BLOB_KEY_BYTES_MAX} are allowed"
    return next(filter(None, map(_find_part_fault, key.split("/"))), None) or _find_taken(key, digest)


def _find_part_fault(part: str) -> str | None:
    if not part:
        return "a part between two slashes must not be empty"
    if part in (".", ".."):
        return f"{part!r} would lead elsewhere"
    if part.endswith((".", " ")):
        return f"some homes drop the end of {part!r}"
    if len(part.encode()) > BLOB_KEY_PART_BYTES_MAX:
        return (
            f"{part[:20]!r}… has {len(part.encode())} bytes; {BLOB_KEY_PART_BYTES_MAX} are allowed in a part"
        )
    return None


def _find_taken(key: str, digest: str) -> str | None:
    if key.split("/")[0].casefold() == OWN:
        return f"{OWN} is for the home's own records"
    if _BY_DIGEST.fullmatch(key) and key != digest_key(digest):
        return "another blob lies there by its digest"
    return None


def clash(key: str, digest: str, other: str, home: str) -> BadInput:
    """Two digests want one key."""
    return BadInput(
        f"the key function gives {key!r} to blob {digest}, but blob {other} lies there already in {home}. "
        "Make the digest, or a part of it, part of the key."
    )
