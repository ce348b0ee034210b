"""The forms in which a session can be exported. A new one is a function here, under its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ...core.entries import Entry
    from ...core.session_state import SessionState

Write: TypeAlias = "Callable[[SessionState, Iterator[Entry]], Iterator[str]]"
"""From the state of a session and its entries to lines of text, each with its end of line."""


class Form(NamedTuple):
    """Where the function is, as module:name, and what it is for."""

    writer: str
    about: str
    is_json: bool = False

    def load(self) -> Write:
        """The function itself: only the form that is wanted is imported."""
        module, _, name = self.writer.partition(":")
        found: Write = getattr(import_module(module, __name__), name)
        return found


FORMS = {
    "text": Form(".text:write", "the transcript, to read"),
    "markdown": Form(".markdown:write", "the transcript, with headings and code"),
    "jsonl": Form(".jsonl:write", "every entry of the journal, one JSON object a line", is_json=True),
    "experiment": Form(
        ".experiment:write", "every reply with who gave it and when, one JSON object a line", is_json=True
    ),
}
