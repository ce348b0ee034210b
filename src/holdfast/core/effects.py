"""The effect ledger, as a fold: the status of every call that was issued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from ..messages import Json
from ..system.clock import Instant
from .entries import (
    ApprovalAsked,
    ApprovalGiven,
    ApprovalRefused,
    Body,
    CallRef,
    Entry,
    LeaseTaken,
    ToolAnnotated,
    ToolCompleted,
    ToolDiscarded,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolRan,
    ToolRefused,
    ToolSettled,
    ToolUndone,
    join_reasons,
)

EffectStatus: TypeAlias = Literal[
    "running", "completed", "failed", "in_doubt", "not_landed", "gave_up", "discarded", "undone"
]
OPEN: frozenset[EffectStatus] = frozenset({"running", "in_doubt"})
PROGRESS: Final = "holdfast.progress"
"""The note that says how far a delegate was when this attempt began."""
REQUEST: Final = "holdfast.request"
"""The note that adds an HTTP request to `REQUESTS`, or (with its number there, `n`) what became of it."""
REQUESTS: Final = "requests"
"""The note that lists the HTTP requests of an effect, in order, of all attempts."""


class Effect(Struct, kw_only=True, omit_defaults=True, gc=False):
    """A row of the ledger. `issued`, the `seq` of its intent, identifies it; `outcome` is the `seq` of its
    end."""

    issued: int
    at: datetime
    call: CallRef
    tool: str
    operation: str
    key: str
    fingerprint: str = ""
    args: Json = None
    """Kept while the row is open; afterwards only the journal has them."""
    scope: str = "call"
    side_effects: tuple[str, ...] = ()
    generation: int = 0
    attempt: int = 1
    timeout_s: float | None = None
    clock: Instant | None = None
    """When it was issued, by clocks that are never set."""
    holder: str | None = None
    """The holder that ran its body."""
    status: EffectStatus = "running"
    why: str = ""
    """Why it is in doubt, or has failed."""
    unsure: str = ""
    """While it is in doubt: why its verify hook could not say what became of it."""
    outcome: int | None = None
    left_behind: bool = False
    """Its body could not be stopped."""
    doubted: bool = False
    """It was in doubt at some time, even if it has an outcome now."""
    crashed: bool = False
    """The process died during the call."""
    exited: bool = False
    """Its body asked the process to exit."""
    undoes: int | None = None
    undo: int | None = None
    """The last attempt to undo it."""
    notes: dict[str, Json] = {}

    @property
    def changes_the_world(self) -> bool:
        """Whether a second execution could have its effect twice."""
        return "write" in self.side_effects or "mutate" in self.side_effects

    @property
    def reason(self) -> str:
        """Why it is in doubt, and why its verify hook could not say more."""
        return join_reasons(self.why, self.unsure)


UndoStatus: TypeAlias = Literal["undone", "cannot", "failed", "in_doubt"]


class Undone(Struct, frozen=True, kw_only=True):
    """The outcome of an undo."""

    tool: str
    call: str
    issued: int
    status: UndoStatus
    why: str = ""


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person's approval, or has an answer."""

    asked: int
    at: datetime
    call: CallRef
    tool: str
    args: Json
    fingerprint: str = ""
    why: str = ""
    schema: Json = None
    """The JSON Schema of its arguments, as far as it is recorded, until there is an answer."""
    approved: bool | None = None
    new_args: Json | UnsetType = UNSET
    answer: str = ""
    """The result that the model was shown when the call was refused."""


class Repeats(Struct, kw_only=True, omit_defaults=True):
    """How often the last call was repeated in a row with the same result."""

    fingerprint: str = ""
    count: int = 0
    result: str = ""

    def note_call(self, fingerprint: str) -> None:
        """Count a call. One that differs from the last one restarts the count."""
        if fingerprint != self.fingerprint:
            self.fingerprint, self.count, self.result = fingerprint, 0, ""
        self.count += 1

    def note_retry(self, fingerprint: str) -> None:
        """Reset the count: the tool asked the model to call again, which is progress."""
        if fingerprint == self.fingerprint:
            self.count, self.result = 0, ""

    def note_result(self, fingerprint: str, digest: str) -> None:
        """Reset the count if the result differs from the one before, or was erased (no digest)."""
        if fingerprint == self.fingerprint and (not digest or digest != self.result):
            self.count, self.result = min(self.count, 1), digest


class Effects(Struct, kw_only=True, omit_defaults=True, dict=True):
    """All effects by the `seq` of their intents, and what the gates need."""

    rows: dict[int, Effect] = {}
    by_operation: dict[str, list[int]] = {}
    """Ordered by generation, then by `seq`."""
    by_call: dict[str, list[int]] = {}
    open: dict[int, None] = {}
    """The rows that are running or in doubt."""
    questions: dict[int, Question] = {}
    answers: dict[str, Question] = {}
    """Questions that a person has answered, by call."""
    replayed: dict[str, str] = {}
    """The fingerprints of callers' own calls that were answered by a replay, by call."""
    repeats: Repeats = field(default_factory=Repeats)

    # Two indexes of the rows, which are not stored: most rows of a long session are harmless and have ended.

    @cached_property
    def _changes(self) -> list[int]:
        """The rows with side effects, in order."""
        return [issued for issued, row in self.rows.items() if row.changes_the_world]

    @cached_property
    def _open_changes(self) -> set[int]:
        return {issued for issued in self.open if self.rows[issued].changes_the_world}

    @property
    def in_doubt(self) -> list[Effect]:
        """Effects that were issued and may have happened."""
        return [self.rows[issued] for issued in self.open if self.rows[issued].status == "in_doubt"]

    def count_open(self) -> int:
        """The number of effects without an outcome: running or in doubt."""
        return len(self._open_changes)

    def iter_changes_since(self, seq: int) -> Iterator[Effect]:
        """The rows with side effects that were issued after an entry, the last first."""
        for issued in reversed(self._changes):
            if issued <= seq:
                return
            yield self.rows[issued]

    def since(self, seq: int) -> list[Effect]:
        """Effects that were issued after an entry, may have happened, and were not undone."""
        return [
            row
            for row in self.rows.values()
            if row.issued > seq
            and row.changes_the_world
            and row.undoes is None
            and row.status in ("completed", "in_doubt", "running", "gave_up")
        ]

    def find_last(self, operation: str) -> Effect | None:
        """The latest row of this operation: of its last generation, the last attempt."""
        found = self.by_operation.get(operation)
        return self.rows[found[-1]] if found else None

    def find_open_undo(self, row: Effect) -> Effect | None:
        """The undo of this effect that has no known outcome: the effect may or may not be undone."""
        undo = None if row.undo is None else self.rows[row.undo]
        return undo if undo is not None and undo.status in ("running", "in_doubt", "gave_up") else None

    def attempts(self, row: Effect) -> list[Effect]:
        """All attempts at the operation of this row, in its generation, oldest first."""
        found: list[Effect] = []
        for issued in reversed(self.by_operation[row.operation]):
            one = self.rows[issued]
            if one.generation < row.generation:
                break
            if one.generation == row.generation:
                found.append(one)
        return found[::-1]

    def may_have_landed_before(self, row: Effect) -> bool:
        """Whether an earlier attempt with the same key was in doubt when it was retried, and none was found
        not to have landed since."""
        found = False
        for one in self.attempts(row):
            if one.status == "not_landed":
                found = False
            elif one.status == "discarded" and one.outcome in self.rows:
                found = True
        return found

    def has_changed_since(self, row: Effect, call: CallRef) -> bool:
        """Whether another effect was issued after the row and before the call. Later calls of the same reply
        do not count, though their intents may be recorded already."""
        for other in self.iter_changes_since(row.issued):
            same = call.asked_by is not None and call.asked_by == other.call.asked_by
            if not (same and call.index < other.call.index):
                return True
        return False

    def knows(self, call: CallRef) -> bool:
        """Whether this call may be in the ledger already, as an effect, a replay or a question."""
        name = call_name(call)
        return bool(self.questions) or name in self.by_call or name in self.replayed or name in self.answers

    def find_call(self, call: CallRef) -> list[Effect]:
        """The rows of this call, oldest first."""
        return [self.rows[issued] for issued in self.by_call.get(call_name(call), ())]

    def is_answered(self, call: CallRef) -> bool:
        """Whether this call, made by the caller directly, was answered by a replay."""
        return call_name(call) in self.replayed

    def find_question(self, call: CallRef) -> Question | None:
        """The question to a person about this call, answered or not."""
        name = call_name(call)
        waiting = (one for one in self.questions.values() if call_name(one.call) == name)
        return next(waiting, None) or self.answers.get(name)

    def inherit(self, undone: Iterable[int]) -> None:
        """In a fork, mark the effects that its origin has undone since."""
        for issued in undone:
            if issued in self.rows:
                self._end(issued, "undone", self.rows[issued].outcome)

    def rewind(self, seq: int) -> None:
        """Drop the questions that were asked after an entry."""
        self.questions = {asked: one for asked, one in self.questions.items() if asked <= seq}

    def apply(self, entry: Entry, holder: str | None) -> None:
        """Fold one entry of the ledger. `holder` is the holder of the session."""
        body = entry.body
        if isinstance(body, ToolIssued):
            self._on_tool_issued(entry, body, holder)
        else:
            _HANDLERS[body.__class__](self, entry, body)

    def _get(self, issued: int) -> Effect:
        row = self.rows.get(issued)
        if row is None:
            raise ValueError(f"entry {issued} issued no call")
        return row

    def is_sound(self) -> bool:
        """Whether all references between rows are valid."""
        rows = self.rows.keys()
        links = (link for row in self.rows.values() for link in (row.undoes, row.undo) if link is not None)
        return (
            self.open.keys() <= rows
            and all(row.issued == issued for issued, row in self.rows.items())
            and all(found and rows >= set(found) for found in self.by_operation.values())
            and all(rows >= set(found) for found in self.by_call.values())
            and rows >= set(links)
            and all(row.operation in self.by_operation for row in self.rows.values())
            and all(asked == one.asked for asked, one in self.questions.items())
        )

    def _on_tool_issued(self, entry: Entry, body: ToolIssued, holder: str | None) -> None:
        row = Effect(
            issued=entry.seq,
            at=entry.at,
            call=body.call,
            tool=body.tool,
            operation=body.operation,
            key=body.key,
            fingerprint=body.fingerprint,
            args=body.args,
            scope=body.scope,
            side_effects=body.side_effects,
            generation=body.generation,
            attempt=body.attempt,
            timeout_s=body.timeout_s,
            clock=body.clock,
            holder=holder,
            undoes=body.undoes,
        )
        undone = None if body.undoes is None else self._get(body.undoes)
        self._follow(row)
        if row.changes_the_world:
            self._changes.append(entry.seq)
            self._open_changes.add(entry.seq)
        self.rows[entry.seq] = row
        self.open[entry.seq] = None
        if undone is not None:
            undone.undo = entry.seq
        made = self.by_call.setdefault(call_name(body.call), [])
        made.append(entry.seq)
        # A call that was issued before is continued, and does not count as repeated.
        if body.attempt == 1 and body.undoes is None and len(made) == 1:
            self.repeats.note_call(body.fingerprint)

    def _on_tool_ran(self, entry: Entry, body: ToolRan) -> None:
        name = call_name(body.call)
        self.rows[entry.seq] = Effect(
            issued=entry.seq,
            at=entry.at,
            call=body.call,
            tool=body.tool,
            operation=name,
            key="",
            fingerprint=body.fingerprint,
            side_effects=body.side_effects,
            status="completed",
            outcome=entry.seq,
        )
        self.by_operation[name] = [entry.seq]
        self.by_call.setdefault(name, []).append(entry.seq)
        self.repeats.note_call(body.fingerprint)
        self.repeats.note_result(body.fingerprint, body.digest)

    def _follow(self, row: Effect) -> None:
        """Put a row after the earlier attempts of its generation, and close those that are open."""
        issued = self.by_operation.get(row.operation)
        if issued is None:
            self.by_operation[row.operation] = [row.issued]
            return
        place = len(issued)
        while place and self.rows[issued[place - 1]].generation > row.generation:
            place -= 1
        issued.insert(place, row.issued)
        while place and self.rows[issued[place - 1]].generation == row.generation:
            place -= 1
            earlier = self.rows[issued[place]]
            row.notes = row.notes or earlier.notes
            if earlier.issued in self.open:
                self._end(earlier.issued, "discarded", row.issued, "tried again with the same key")

    def _on_tool_annotated(self, entry: Entry, body: ToolAnnotated) -> None:
        row = self._get(body.issued)
        row.notes = add_notes(row.notes, body.notes, entry.at)

    def _on_tool_completed(self, entry: Entry, body: ToolCompleted) -> None:
        if body.issued is None:
            if not self.is_answered(body.call):
                self.repeats.note_call(body.fingerprint)
            if body.call.reply is None:
                self.replayed[call_name(body.call)] = body.fingerprint
            return
        self._end(body.issued, "completed", entry.seq)
        self.repeats.note_result(self.rows[body.issued].fingerprint, body.digest)

    def _on_tool_refused(self, entry: Entry, body: ToolRefused) -> None:
        if body.fingerprint:
            self.repeats.note_call(body.fingerprint)

    def _on_tool_failed(self, entry: Entry, body: ToolFailed) -> None:
        if body.issued is None:
            return
        self._end(body.issued, "failed", entry.seq, body.error)
        if body.retry:
            self.repeats.note_retry(self._get(body.issued).fingerprint)
        elif body.final:
            self.repeats.note_result(self.rows[body.issued].fingerprint, body.digest)

    def _on_tool_in_doubt(self, entry: Entry, body: ToolInDoubt) -> None:
        row = self._get(body.issued)
        row.status, row.why, row.unsure, row.doubted = "in_doubt", body.why, body.unsure, True
        row.left_behind = row.left_behind or body.left_behind
        row.exited = row.exited or body.exited

    def _on_tool_discarded(self, entry: Entry, body: ToolDiscarded) -> None:
        self._get(body.issued).exited = body.exited
        self._end(body.issued, "discarded", entry.seq)

    def _on_tool_settled(self, entry: Entry, body: ToolSettled) -> None:
        status: EffectStatus = "completed" if body.verdict == "landed" else body.verdict
        self._end(body.issued, "failed" if body.void else status, entry.seq, body.note)

    def _on_tool_undone(self, entry: Entry, body: ToolUndone) -> None:
        self._end(body.issued, "undone", entry.seq)

    def _end(self, issued: int, status: EffectStatus, outcome: int | None, why: str = "") -> None:
        row = self._get(issued)
        row.status, row.outcome, row.why, row.unsure, row.args = status, outcome, why, "", None
        self.open.pop(issued, None)
        self._open_changes.discard(issued)
        if row.undoes is not None and status == "completed":
            self._end(row.undoes, "undone", outcome)

    def _on_approval_asked(self, entry: Entry, body: ApprovalAsked) -> None:
        self.questions[entry.seq] = Question(
            asked=entry.seq,
            at=entry.at,
            call=body.call,
            tool=body.tool,
            args=body.args,
            fingerprint=body.fingerprint,
            why=body.why,
            schema=body.schema,
        )

    def _pop_question(self, asked: int) -> Question:
        question = self.questions.pop(asked, None)
        if question is None:
            raise ValueError(f"nothing waits for an answer that was asked by entry {asked}")
        return replace(question, schema=None)

    def _on_approval_given(self, entry: Entry, body: ApprovalGiven) -> None:
        question = self._pop_question(body.asked)
        self.answers[call_name(question.call)] = replace(question, approved=True, new_args=body.args)

    def _on_approval_refused(self, entry: Entry, body: ApprovalRefused) -> None:
        question = self._pop_question(body.asked)
        self.answers[call_name(question.call)] = replace(question, approved=False, answer=body.answer)
        self.repeats.note_call(question.fingerprint)

    def _on_lease_taken(self, entry: Entry, body: LeaseTaken) -> None:
        """With a new holder, calls that ran under the old one are in doubt, or discarded if harmless."""
        for issued in list(self.open):
            row = self.rows[issued]
            if row.status == "running":
                row.crashed = True
                if row.changes_the_world:
                    row.status, row.doubted = "in_doubt", True
                    row.why = "the process that ran it is gone and left no outcome"
                else:
                    self._end(issued, "discarded", None, "the process that ran it is gone; it is harmless")


def add_notes(notes: Mapping[str, Json], more: Mapping[str, Json], at: datetime) -> dict[str, Json]:
    """The notes of an effect, after one more annotation."""
    added = {**notes, **more}
    if REQUEST in more:
        _note_request(added, added.pop(REQUEST), at)
    return added


def _note_request(notes: dict[str, Json], noted: Json, at: datetime) -> None:
    """Add a request to the list of requests, or what became of one of them."""
    listed = notes.get(REQUESTS)
    # A tool that has a note of its own under this name loses it.
    requests = list(listed) if isinstance(listed, list) else []
    if not isinstance(noted, dict):
        return
    when = at.isoformat().replace("+00:00", "Z")
    number = noted.get("n")
    if number is None:
        notes[REQUESTS] = [*requests, {**noted, "at": when}]
    elif number in range(len(requests)) and isinstance(requests[number], dict):
        ended = {key: value for key, value in noted.items() if key != "n"}
        requests[number] = {**requests[number], **ended, "ended_at": when}
        notes[REQUESTS] = requests


def count_crashes(tried: Sequence[Effect]) -> int:
    """How often the process died during this call, or was asked by its body to exit, without progress in
    between."""
    last = progress_of(tried[-1])
    return sum(row.crashed or row.exited for row in tried if progress_of(row) == last)


def progress_of(row: Effect) -> int:
    """How far a delegate was when this attempt began; 0 for other tools."""
    progress = row.notes.get(PROGRESS)
    return progress if isinstance(progress, int) else 0


def call_name(call: CallRef) -> str:
    """A name of the call that is unique in its session: reply and position, or the caller's id."""
    return f"{call.reply}.{call.index}" if call.reply is not None else f"={call.id}"


_HANDLERS: dict[type[Body], Callable[[Effects, Entry, Any], None]] = {
    ToolAnnotated: Effects._on_tool_annotated,
    ToolCompleted: Effects._on_tool_completed,
    ToolRan: Effects._on_tool_ran,
    ToolRefused: Effects._on_tool_refused,
    ToolFailed: Effects._on_tool_failed,
    ToolInDoubt: Effects._on_tool_in_doubt,
    ToolDiscarded: Effects._on_tool_discarded,
    ToolSettled: Effects._on_tool_settled,
    ToolUndone: Effects._on_tool_undone,
    ApprovalAsked: Effects._on_approval_asked,
    ApprovalGiven: Effects._on_approval_given,
    ApprovalRefused: Effects._on_approval_refused,
    LeaseTaken: Effects._on_lease_taken,
}
LEDGER: frozenset[type[Body]] = frozenset(_HANDLERS) | {ToolIssued}
"""Kinds of entries that the ledger is folded from."""
