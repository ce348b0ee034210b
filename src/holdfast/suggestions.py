"""Did you mean: find the known names that are most similar to a mistyped one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SIMILARITY_MIN = 0.64


def closest(name: str, known: Iterable[str], *, similarity_min: float = _SIMILARITY_MIN) -> str | None:
    """The most similar of the known names, or None if none is similar."""
    return next(iter(list_closest(name, known, max_count=1, similarity_min=similarity_min)), None)


def list_closest(
    name: str, known: Iterable[str], *, max_count: int, similarity_min: float = _SIMILARITY_MIN
) -> list[str]:
    """The similar ones among the known names, the most similar first."""
    scored = ((_similarity(name, candidate), candidate) for candidate in known)
    best = nlargest(max_count, (one for one in scored if one[0] >= similarity_min))
    return [candidate for _, candidate in best]


def _similarity(a: str, b: str) -> float:
    """From 0 to 1: by edits, by one name being the beginning of the other, and by the words in both."""
    left, right = _plain(a), _plain(b)
    if not left or not right:
        return 0.0
    if left == right:
        return 1.0
    score = SequenceMatcher(None, left, right, autojunk=False).ratio()
    short, long = sorted((left, right), key=len)
    if len(short) >= 3 and long.startswith(short):
        # An abbreviation, or an additional word at the end.
        score = max(score, 0.7 + 0.3 * len(short) / len(long))
    words_a, words_b = set(_words(a)), set(_words(b))
    shared = len(words_a & words_b) / max(len(words_a | words_b), 1)
    return max(score, 0.5 * score + 0.5 * shared)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
