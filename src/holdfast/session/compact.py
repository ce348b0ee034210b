"""Compaction: many messages replaced by one, for the model's sake. The journal keeps the original."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.entries import Span, TranscriptCompacted
from ..core.session_state import SessionState
from ..core.transcript_items import Item
from ..errors import BadInput
from ..messages import AnyMessage, Message, shape_of


def compaction(state: SessionState, message: AnyMessage, keep: int) -> TranscriptCompacted:
    """The entry that replaces all but the last `keep` messages by this one."""
    items = state.transcript_fold.items
    cut = max(0, len(items) - keep)
    # A message that waited for the end of a step stands after a reply of a later entry, and would go with it.
    while _is_torn(items[:cut], items[cut:]):
        cut -= 1
    gone = [item.seq for item in items[:cut]]
    if keep < 0 or not gone:
        raise BadInput(f"compact(keep={keep}): the transcript has {len(items)} messages")
    if not isinstance(message, Message) or message.role != "user" or shape_of(message).parts:
        raise BadInput("what replaces messages is one of the user's, without calls and results")
    if not state.continuable:
        raise BadInput(f"compact() waits for the end of the step: {state.problems[0]}")
    return TranscriptCompacted(span=Span(first=min(gone), last=max(gone)))


def _is_torn(gone: Sequence[Item], kept: Sequence[Item]) -> bool:
    """Whether the entries of what goes span one that is kept; results have their reply's, and go with it."""
    last = max((item.seq for item in gone), default=0)
    return any(item.seq <= last for item in kept if item.results is None)
