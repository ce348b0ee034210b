"""What was erased is shown as erased, by every command, and not as something that never was."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import Raw

import holdfast
import holdfast.blocking
from holdfast.cli.entry_text import describe
from holdfast.cli.timeline import Timeline
from holdfast.core.codec import seal
from holdfast.core.entries import (
    DETAILS,
    KIND_OF,
    ApprovalAsked,
    ApprovalGiven,
    ApprovalRefused,
    Body,
    CallRef,
    Entry,
    InboxCancel,
    InboxTaken,
    LeaseTaken,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PlanChanged,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionClosed,
    SessionOpened,
    SessionRewound,
    StateSet,
    SummaryChanged,
    ToolAnnotated,
    ToolCompleted,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolRan,
    ToolRefused,
    ToolReported,
    ToolSettled,
)
from holdfast.core.pages import open_page
from holdfast.core.plan import PlanStep
from holdfast.core.session_state import SessionState
from holdfast.ids import SessionId
from holdfast.messages import Message, Text, encode_message
from holdfast.records import Plan
from holdfast.testing.conformance.author import erased, replaced, whole
from tests.cli.cli_processes import Done

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SECRET = "hush"
CALL = CallRef(id="c1")
MESSAGE = encode_message(Message(role="user", blocks=(Text(SECRET),)))
RESULT = b'{"text":"hush"}'


def issue(operation: str) -> ToolIssued:
    return ToolIssued(
        call=CALL,
        tool="charge",
        args={"to": SECRET},
        fingerprint="f",
        operation=operation,
        scope="session",
        side_effects=("mutate",),
    )


def journal() -> list[tuple[Body, bytes | None]]:
    """An entry of each kind that can be erased, or has a content that can be."""
    return [
        (SessionOpened(id="s", uid="u"), None),
        (LeaseTaken(holder="h", name="worker"), None),
        (RunStarted(agent="clerk"), None),
        (MessageAdded(role="user"), MESSAGE),
        (ModelRequested(), None),
        (ModelFailed(request=5, error=SECRET), None),
        (ModelRequested(), None),
        (ModelReplied(request=7), MESSAGE),
        (PlanChanged(plan=Plan(goal=SECRET, steps=(PlanStep(id="1", what=SECRET),))), None),
        (SummaryChanged(summary=SECRET), None),
        (StateSet(key="colour", value=Raw(b'"hush"')), None),
        (issue("o1"), None),
        (ToolAnnotated(issued=12, notes={"vendor": SECRET}), None),
        (ToolReported(issued=12), b'"hush"'),
        (ToolCompleted(call=CALL, issued=12), RESULT),
        (issue("o2"), None),
        (ToolFailed(call=CALL, issued=16, error=SECRET), RESULT),
        (issue("o3"), None),
        (ToolInDoubt(call=CALL, issued=18, why=SECRET), None),
        (ToolSettled(call=CALL, issued=18, verdict="landed", by="ann", note=SECRET, told=True), RESULT),
        (ToolRan(call=CallRef(id="c2"), tool="look", args={"at": SECRET}, fingerprint="g"), RESULT),
        (ToolRefused(call=CallRef(id="c3"), tool="look", gate="policy"), RESULT),
        (ApprovalAsked(call=CALL, tool="charge", args={"to": SECRET}, why=SECRET), None),
        (ApprovalGiven(call=CALL, asked=23, by="ann", args={"to": SECRET}, note=SECRET), None),
        (ApprovalAsked(call=CALL, tool="charge", args={"to": SECRET}, why=SECRET), None),
        (ApprovalRefused(call=CALL, asked=25, by="ann"), RESULT),
        (InboxTaken(number=1, item=InboxCancel(by="ann", reason=SECRET)), None),
        (RunCancelled(reason=SECRET), None),
        (RunFailed(reason="error", error=SECRET), None),
        (RunCompleted(output=SECRET), None),
        (SessionRewound(version=0, seq=0, transcript=(), state={"colour": Raw(b'"hush"')}), None),
        (SessionClosed(status="cancelled", reason=SECRET), None),
    ]


def read_journal(*, without_words: bool) -> tuple[list[Entry], SessionState]:
    """Its entries as they are read, and the state."""
    state = SessionState(SessionId("s"))
    new = [state.append(body, NOW, "r", content) for body, content in journal()]
    chunks = seal(new, "")
    if without_words:
        chunks = [replaced(chunk, erased(chunk)) for chunk in chunks]
    return list(open_page(whole(chunks), "the test")), state


def test_every_kind_with_details_is_among_them() -> None:
    """So that a new one is thought of."""
    assert DETAILS.keys() <= {type(body) for body, _ in journal()}


def test_an_erased_entry_says_so_in_one_line() -> None:
    """An erased plan was not removed, and an erased argument was not null."""
    kept, _ = read_journal(without_words=False)
    gone, _ = read_journal(without_words=True)
    for before, after in zip(kept, gone, strict=True):
        said, text = describe(before), describe(after)
        assert SECRET not in text
        assert "null" not in text
        assert "removed" not in text
        assert ("[erased]" in text) == (text != said and type(after.body) not in _DROPPED), text
        assert (after.erased or after.details_erased) == (before.kind in _SPOKEN)


_DROPPED = (SessionClosed, RunCancelled, RunFailed, ToolSettled, ApprovalGiven)
"""Their text is complete without a reason or note."""

_SPOKEN = {
    *(KIND_OF[body] for body in DETAILS),
    *(KIND_OF[body] for body in (ModelReplied, ToolRefused, ToolReported)),
}


def test_the_timeline_of_an_erased_journal_has_the_same_rows() -> None:
    """With every status, duration and cost, and without a word."""
    gone, state = read_journal(without_words=True)
    kept, _ = read_journal(without_words=False)
    rows = state.facts.effects.rows
    before, after = Timeline.of(kept, rows, held=True), Timeline.of(gone, rows, held=True)

    def facts(timeline: Timeline) -> list[tuple[object, ...]]:
        return [(one.seq, one.kind, one.status, one.took_s, one.usd, one.call) for one in timeline.moments]

    assert facts(after) == facts(before)
    assert not any(SECRET in one.what + one.detail for one in after.moments)
    assert "charge([erased])" in {one.what for one in after.moments}
    assert {one.detail for one in after.moments if one.status in ("failed", "in_doubt") and one.call} == {
        "[erased]"
    }


@pytest.mark.parametrize(
    "command",
    [
        "show erased",
        "show erased --brief",
        "show erased --json",
        "tail erased --lines 0",
        "tail erased --lines 0 --json",
        "export erased",
        "export erased --form markdown",
        "export erased --form jsonl",
        "export erased --form experiment",
        "export erased --version 1",
        "diff erased 1 2",
        "sessions",
        "stats",
    ],
)
def test_every_command_shows_an_erased_session(
    command: str, tmp_path: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """Nothing of what was said is left, and no command stumbles over that."""

    @holdfast.tool(side_effects={"mutate"})
    async def charge(to: str) -> str:
        return f"charged {to}"

    registry = holdfast.blocking.Registry([charge])

    with holdfast.blocking.open_store(f"sqlite:{tmp_path}/holdfast.db") as store:
        with store.session("erased") as session:
            with session.run() as run:
                session.add(f"the user says {SECRET}")
                session.set_plan(Plan(goal=SECRET, steps=(PlanStep(id="1", what=SECRET),)))
                session.set_summary(SECRET)
                with run.request() as request:
                    request.reply(Message(role="assistant", blocks=(Text(SECRET),)), cost_usd=0.5)
                session.checkpoint()
                registry.dispatch("charge", {"to": SECRET}, session=session)
                session.add(f"and {SECRET} again")
                session.checkpoint()
                run.complete(SECRET)
            session.close("completed", reason=SECRET)
        assert store.clean("erased", checkpoints=False) == "cleaned"
    done = call_here(tmp_path, command)
    assert (done.code, done.err) == (0, "")
    assert SECRET not in done.out
    if command.startswith(("export", "tail", "show erased --json")):
        assert "[erased]" in done.out or '"erased":true' in done.out
    if command.endswith("--json") and "tail" in command:
        shown = [json.loads(line) for line in done.out.splitlines()]
        assert {one["kind"] for one in shown if one["erased"]} >= {"message.added", "plan.changed"}
