"""A status as a coloured word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from .markup import Html, el

Tone: TypeAlias = Literal["good", "bad", "open", "plain"]

_TONES: Final[Mapping[str, Tone]] = {
    "completed": "good",
    "undone": "plain",
    "discarded": "plain",
    "running": "open",
    "in_doubt": "open",
    "waiting": "open",
    "failed": "bad",
    "not_landed": "bad",
    "gave_up": "bad",
    "cancelled": "bad",
    "killed": "bad",
    "interrupted": "bad",
}


def draw_status(word: str, said: str | None = None) -> Html:
    """The status of a session, a run or an effect; `said` is shown in its place."""
    return el("span", said or word.replace("_", " "), class_=f"hf-status {_TONES.get(word, 'plain')}")
