"""Addresses as people may see them: in errors, in logs and on a terminal, never with a secret.

What can be parsed is shown without its password. What cannot be parsed is shown only if it is plainly
harmless: in a URL with a mistake in it, any part may be the password.
"""

from __future__ import annotations

import difflib
import re
from pathlib import PurePath
from typing import Final

_SCHEMES: Final = ("memory", "dir", "sqlite", "postgresql", "postgres", "s3", "gs", "az")
_OTHERS: Final = ("pg", "http", "https", "file", "redis", "mysql", "gcs", "s3a", "azure", "abfs", "abfss")
_PATHS: Final = ("dir", "sqlite", "memory")
"""Schemes that are followed by a path, where no password belongs."""

_NO_PATH: Final = re.compile(r"[@:?#=&;%\"<>|\\]|//")
"""Not in a path as people write it, and in most addresses with a password."""

_CREDENTIALS: Final = re.compile(r"pass(word|wd)?\s*=|:[^/]*@|://", re.IGNORECASE)

_IN_TEXT: Final = (
    (re.compile(r"(\w://)[^/\s\"']*@"), r"\1…@"),
    (re.compile(r"(\w://[^\s?#\"']*)[?#][^\s\"')]*"), r"\1?…"),
    (re.compile(r"((?:pass(?:word|wd)?|secret|token|sig|signature)\s*=\s*)[^\s&;]+", re.IGNORECASE), r"\1…"),
)


def has_credentials(text: str) -> bool:
    """Whether it looks as if a user's name and password, or another URL, were in it."""
    return bool(_CREDENTIALS.search(text))


def find_scheme(scheme: str) -> str | None:
    """The scheme that was probably meant: misspelt, spelt out, or cut short."""
    lower = scheme.lower()
    if lower in _SCHEMES:
        return lower
    cut = (one for one in _SCHEMES[:4] if lower and (lower.startswith(one) or one.startswith(lower)))
    return next(cut, None) or next(iter(difflib.get_close_matches(lower, _SCHEMES, n=1)), None)


def show_scheme(url: str) -> str:
    """What stands before the first colon, if it is a scheme, or close to one."""
    scheme, colon, _ = url.partition(":")
    is_one = scheme.lower() in _OTHERS or bool(re.fullmatch(r"[A-Za-z0-9+]+", scheme) and find_scheme(scheme))
    return scheme if colon and is_one else ""


def show_url(url: object) -> str:
    """The address in quotes, or as much of it as holds no secret."""
    if isinstance(url, PurePath):
        url = str(url)
    if not isinstance(url, str):
        return f"an object of type {type(url).__name__}"
    scheme, colon, rest = url.partition(":")
    if not colon:
        return repr(url) if not _NO_PATH.search(url) else "'…'"
    shown = show_scheme(url)
    if not scheme or (shown and find_scheme(scheme) in _PATHS):
        path = re.sub("^//+", "", rest)
        return repr(url) if not _NO_PATH.search(path) and not has_credentials(rest) else f"'{shown}:…'"
    return f"'{shown}:…'"


def scrub(text: str, *secrets: object) -> str:
    """What another library said, without these secrets, and without what URLs in it may tell."""
    for secret in secrets:
        if isinstance(secret, str) and secret:
            text = text.replace(secret, "…")
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text
