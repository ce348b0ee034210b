"""Checks of what callers give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .errors import NotAList

Given = TypeVar("Given", bound=Iterable[object])


def check_list(name: str, given: Given) -> Given:
    """The list that was given as `name`; `NotAList` for a text, which would be taken for its letters."""
    if isinstance(given, str | bytes):
        raise NotAList(name, given)
    return given
