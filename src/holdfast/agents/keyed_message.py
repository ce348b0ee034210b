"""A message with a key: the same one given again is not a new one, and has the outcome that is on record."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.entries import RunFailed, Span
from ..core.fold import Answer, KeyedMessage
from ..core.session_state import SessionState
from ..engine.journal import Journal
from ..errors import KeyReused, NotFound
from ..ids import RunId
from ..messages import ForeignMessage, Json, Message, as_message
from ..session.session import Session
from .outcome import Outcome, OutcomeStatus, OutputT
from .output import FinalOutput, Output

_OWN_FIELDS = ("id", "at")
"""Fields that a caller may set anew at each attempt."""


def find_keyed(session: Session, key: str | None) -> KeyedMessage | None:
    """The message that was given with this key before. None if there is none, or if a rewind left it behind
    before it was answered."""
    found = session.state.facts.keys.get(key) if key is not None else None
    if found is None or found.answer is not None:
        return found
    spans = session.state.transcript_fold.spans
    return found if any(span.first <= found.seq <= span.last for span in spans) else None


async def find_same(
    session: Session, key: str, message: str | Message | ForeignMessage
) -> KeyedMessage | None:
    """The same, or `KeyReused` if it is another message than this one."""
    found = find_keyed(session, key)
    if found is None:
        return None
    await session.flush()
    engine = session._writer.engine
    stored = await engine.call(_read_content, session, found.seq)
    # An erased message says nothing about what it was.
    if stored is not None and stored != _plain(await engine.pack_message(as_message(message))):
        raise KeyReused(key, session.id)
    return found


async def read_outcome(session: Session, answer: Answer, output: Output[OutputT]) -> Outcome[OutputT]:
    """The outcome of an earlier run: what was spent is in the fold, the rest is read from the journal."""
    engine = session._writer.engine
    run = session.state.facts.runs[answer.run]
    given: Any = None
    error = ""
    if answer.status == "completed":
        given = await engine.call(_read_output, session, answer, output)
    elif answer.status == "failed":
        error = await engine.call(_read_error, session, answer.end)
    status: OutcomeStatus = "cancelled" if answer.status == "cancelled" else "failed"
    return Outcome(
        status="completed" if answer.status == "completed" else status,
        session=session.id,
        run=RunId(answer.run),
        output=given,
        reason=run.reason,
        error=error,
        usage=answer.usage,
        cost_usd=answer.usd,
    )


def _journal(session: Session) -> Journal:
    engine = session._writer.engine
    return Journal(engine.driver, session.id, engine.blobs)


def _read_content(session: Session, seq: int) -> Json:
    """The content of an entry; None if it was erased. Blocks."""
    found = _journal(session).read_contents(seq, [Span(seq, seq)], False).get(seq)
    return _plain(bytes(found)) if isinstance(found, msgspec.Raw) else None


def _plain(content: bytes) -> Json:
    data = msgspec.json.decode(content)
    if isinstance(data, dict) and "blocks" in data:
        return {name: value for name, value in data.items() if name not in _OWN_FIELDS}
    return data


def _read_output(session: Session, answer: Answer, output: Output[Any]) -> Any:
    """The output, as the transcript had it when the run ended. Blocks."""
    facts = session.state.facts
    state: SessionState = session.state
    if facts.base != answer.version or facts.changed:
        state = _journal(session).fold(facts.checkpoints[answer.version].seq)
    found = output.find(state.transcript)
    if not isinstance(found, FinalOutput):
        raise NotFound(
            f"session {session.id!r}: the output of run {answer.run!r} was erased, or is of another type "
            "than this agent's output_type"
        )
    return found.output


def _read_error(session: Session, end: int) -> str:
    """What the entry that ended a run says. Blocks."""
    entry = next(_journal(session).entries(end - 1, end, said=False), None)
    return entry.body.error if entry is not None and isinstance(entry.body, RunFailed) else ""
