"""Drivers' commits that tests put in the place of the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.codec import Page
from holdfast.core.pages import open_page
from holdfast.drivers.contract import Append, Outcome
from holdfast.errors import StoreBusy


def kinds_of(item: Append) -> list[str]:
    """The kinds of the entries in a commit."""
    return [entry.kind for entry in open_page(Page.of(item.chunks, said=False), "a commit")]


def in_thread(commit: Callable[[Sequence[Append]], Sequence[Outcome]]) -> Callable[..., Sequence[Outcome]]:
    """One that may take its time: it is never made on an event loop's thread."""

    def called(batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        if not wait:
            raise StoreBusy("it may take its time")
        return commit(batch)

    return called
