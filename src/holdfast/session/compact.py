"""Compaction: many messages replaced by one, for the model's sake. The journal keeps the original."""

from __future__ import annotations

from ..entries import Span, TranscriptCompacted
from ..errors import BadInput
from ..fold import SessionState
from ..messages import Message, as_message, encode_message, shape_of


def compaction(state: SessionState, message: str | Message, keep: int) -> tuple[TranscriptCompacted, bytes]:
    """The entry that replaces all but the last `keep` messages, and its content."""
    items = state.transcript_fold.items
    gone = items[: max(0, len(items) - keep)]
    if keep < 0 or not gone:
        raise BadInput(f"compact(keep={keep}): the transcript has {len(items)} messages")
    found = as_message(message)
    if not isinstance(found, Message) or found.role != "user" or shape_of(found).parts:
        raise BadInput("what replaces messages is one of the user's, without calls and results")
    if not state.continuable:
        raise BadInput(f"compact() waits for the end of the step: {state.problems[0]}")
    return TranscriptCompacted(span=Span(first=gone[0].seq, last=gone[-1].seq)), encode_message(found)
