"""Which name was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_NEAR_ENOUGH = 0.64


def closest(name: str, known: Iterable[str]) -> str | None:
    """The name most like the given one, or None if none is like it."""
    scored = [(similarity(name, candidate), candidate) for candidate in known]
    best = max(scored, default=(0.0, ""))
    return best[1] if best[0] >= _NEAR_ENOUGH else None


def similarity(a: str, b: str) -> float:
    """From 0 to 1: by edits, by one being the beginning of the other, and by the words in both."""
    left, right = _plain(a), _plain(b)
    if not left or not right:
        return 0.0
    if left == right:
        return 1.0
    score = SequenceMatcher(None, left, right, autojunk=False).ratio()
    short, long = sorted((left, right), key=len)
    if len(short) >= 3 and long.startswith(short):
        # An abbreviation, or a word too many at the end.
        score = max(score, 0.7 + 0.3 * len(short) / len(long))
    words_a, words_b = set(_words(a)), set(_words(b))
    shared = len(words_a & words_b) / max(len(words_a | words_b), 1)
    return max(score, 0.5 * score + 0.5 * shared)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
