"""The ledger as a fold: over random histories, nothing that was done is ever offered to be done again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Registry, tool
from holdfast.content.encode import encode_content
from holdfast.core.effects import Effect
from holdfast.core.entries import (
    Body,
    CallRef,
    LeaseTaken,
    SessionOpened,
    SessionRewound,
    Span,
    ToolAnnotated,
    ToolCompleted,
    ToolDiscarded,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolSettled,
)
from holdfast.core.session_state import Keyframe, read_keyframe
from holdfast.core.transcript import Transcript
from holdfast.ids import SessionId
from holdfast.records import SessionState
from holdfast.tools.canonical import digest
from holdfast.tools.ledger import Blocked, Issue, Ledger, LedgerDecision, Replay
from tests.internals import engine_of
from tests.tools.example_tools import Url, opened

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@tool(side_effects={"mutate"})
async def once() -> None:
    """Not idempotent."""


@tool(side_effects={"mutate"}, idempotent=True)
async def often() -> None:
    """Idempotent."""


class Paper:
    """A session that is only a fold: what the ledger needs to decide, without a store."""

    def __init__(self) -> None:
        self.id = SessionId("s")
        self.state = SessionState(self.id)
        self.engine: Any = SimpleNamespace(now=lambda: NOW)
        self._writer = SimpleNamespace(engine=self.engine)
        self.add(SessionOpened(id=self.id, uid="uid"))
        self.add(LeaseTaken(holder="h0", name="h0"))

    def add(self, body: Body, content: bytes | None = None) -> int:
        """One more line; its `seq`."""
        self.state.append(body, self.engine.now(), None, content)
        return self.state.seq

    @property
    def rows(self) -> dict[int, Effect]:
        """The ledger."""
        return self.state.facts.effects.rows


class History:
    """Plays random moves, and knows by itself what may be done: the oracle."""

    def __init__(self) -> None:
        self.paper = Paper()
        self.ledger = Ledger(self.paper)  # type: ignore[arg-type]
        self.truth: dict[int, str] = {}
        """For each operation: free, running, done, unknown or given up."""
        self.fresh_key: dict[int, bool] = {}
        """Whether the next try needs another key than the last one."""
        self.keys: dict[int, list[str]] = {}
        self.undoing: dict[int, int] = {}

    def tool_of(self, operation: int) -> Any:
        """Every other one is idempotent."""
        return often if operation % 2 else once

    def last(self, operation: int) -> Effect | None:
        """Its last row."""
        return self.paper.state.facts.effects.find_last(f"op{operation}")

    def decide(self, operation: int) -> LedgerDecision:
        """What the ledger says."""
        call = CallRef(id=f"c{self.paper.state.seq}")
        return self.ledger.decide(self.tool_of(operation), "session", f"op{operation}", Issue(), call)

    def dispatch(self, operation: int) -> None:
        """Somebody asks for it: the decision must be what the truth says."""
        decision, truth = self.decide(operation), self.truth.get(operation, "free")
        idempotent = self.tool_of(operation) is often
        if truth == "done":
            assert isinstance(decision, Replay)
        elif truth == "free" or (truth == "unknown" and idempotent):
            assert isinstance(decision, Issue), (truth, decision)
            self.issue(operation, decision)
        else:
            assert isinstance(decision, Blocked), (truth, decision)

    def issue(self, operation: int, how: Issue) -> None:
        """Record the intent."""
        key = how.key or digest("uid", f"op{operation}", str(how.generation))
        keys = self.keys.setdefault(operation, [])
        if self.fresh_key.get(operation, True):
            assert key not in keys
        else:
            assert key == keys[-1]
        keys.append(key)
        self.truth[operation], self.fresh_key[operation] = "running", False
        self.paper.add(
            ToolIssued(
                call=CallRef(id=f"c{self.paper.state.seq}"),
                tool=self.tool_of(operation).name,
                args={},
                fingerprint=f"f{operation}",
                operation=f"op{operation}",
                scope="session",
                side_effects=("mutate",),
                key=key,
                generation=how.generation,
                attempt=how.attempt,
            )
        )

    def end(self, operation: int, how: str) -> None:
        """What is running ends, or what is in doubt is settled."""
        row, truth = self.last(operation), self.truth.get(operation, "free")
        if row is None:
            return
        call, issued = row.call, row.issued
        if truth == "running":
            if how == "completed":
                self.paper.add(ToolCompleted(call=call, issued=issued), encode_content("done"))
                self.truth[operation] = "done"
            elif how == "failed":
                self.paper.add(ToolFailed(call=call, issued=issued, error="no"), encode_content("no"))
                self.truth[operation], self.fresh_key[operation] = "free", True
            elif how == "discarded":
                self.paper.add(ToolDiscarded(call=call, issued=issued))
                self.truth[operation] = "free"
            elif how == "annotated":
                self.paper.add(ToolAnnotated(issued=issued, notes={f"n{issued}": issued}))
            else:
                self.paper.add(ToolInDoubt(call=call, issued=issued, why="?"))
                self.truth[operation] = "unknown"
        elif truth == "unknown" and how in ("landed", "not_landed", "gave_up", "void"):
            verdict: Any = "not_landed" if how == "void" else how
            settled = ToolSettled(call=call, issued=issued, verdict=verdict, by="ann", void=how == "void")
            self.paper.add(settled)
            self.truth[operation] = {"landed": "done", "gave_up": "given up"}.get(how, "free")
            self.fresh_key[operation] = how == "void"

    def undo(self, operation: int) -> None:
        """Take back what was done; the undo is an effect of its own."""
        row = self.last(operation)
        if row is None or self.truth.get(operation) != "done":
            return
        issued = self.paper.add(
            ToolIssued(
                call=CallRef(id=f"u{row.issued}"),
                tool=row.tool,
                args={},
                fingerprint="",
                operation=f"undo {row.issued}",
                scope="call",
                side_effects=("mutate",),
                key=f"undo {row.issued}",
                undoes=row.issued,
            )
        )
        self.paper.add(ToolCompleted(call=CallRef(id=f"u{row.issued}"), issued=issued), encode_content(""))
        self.truth[operation], self.fresh_key[operation] = "free", True

    def crash(self) -> None:
        """Another process takes the session."""
        self.paper.add(LeaseTaken(holder=f"h{self.paper.state.seq}", name="next"))
        for operation, truth in self.truth.items():
            if truth == "running":
                self.truth[operation] = "unknown"

    def rewind(self) -> None:
        """Everything is left behind, but not the ledger."""
        self.paper.add(SessionRewound(version=0, seq=0, transcript=()))


ENDS = ["completed", "failed", "doubted", "discarded", "annotated", "landed", "not_landed", "gave_up", "void"]
moves = st.lists(
    st.tuples(st.sampled_from(["dispatch", "undo", "crash", "rewind", *ENDS * 2]), st.integers(0, 2)),
    max_size=60,
)


def play(history: History, played: list[tuple[str, int]]) -> None:
    """Play the moves, asking for everything after each of them."""
    for move, operation in played:
        if move == "dispatch":
            history.dispatch(operation)
        elif move == "undo":
            history.undo(operation)
        elif move in ("crash", "rewind"):
            getattr(history, move)()
        else:
            if history.truth.get(operation) in (None, "free"):
                history.dispatch(operation)
            history.end(operation, move)
        for known, truth in history.truth.items():
            if truth == "done":
                assert isinstance(history.decide(known), Replay)


def stored_keyframe(state: SessionState) -> Keyframe:
    """The keyframe of this state, written down and read again."""
    made = state.keyframe()
    assert made is not None
    frame = read_keyframe(made.encode("sum"))
    assert frame is not None
    return frame


def restore(frame: Keyframe) -> SessionState:
    """The state of a keyframe. There are no messages in it."""

    def load(spans: Sequence[Span], said: bool) -> Transcript:
        transcript = Transcript()
        transcript.load(spans, (), "the test")
        return transcript

    restored = SessionState.from_keyframe(frame, load)
    assert restored is not None
    restored.end_reading(0)
    return restored


@given(moves)
@settings(max_examples=300, deadline=None)
@example([("completed", 0), ("crash", 0), ("rewind", 0), ("dispatch", 0)])
@example([("doubted", 0), ("landed", 0), ("undo", 0), ("completed", 0), ("dispatch", 0)])
def test_what_was_done_is_never_runnable_unless_it_was_undone(played: list[tuple[str, int]]) -> None:
    """Whatever happens in between; and what is tried again has the right key."""
    play(History(), played)


@given(moves)
@settings(max_examples=150, deadline=None)
def test_a_keyframe_keeps_the_whole_ledger(played: list[tuple[str, int]]) -> None:
    """Written down and read again, it is the same and decides the same."""
    history = History()
    play(history, played)
    frame = stored_keyframe(history.paper.state)
    restored = restore(frame)
    assert restored.facts.effects == history.paper.state.facts.effects
    before = {operation: history.decide(operation) for operation in range(3)}
    history.paper.state = restored
    assert {operation: history.decide(operation) for operation in range(3)} == before


@given(moves)
@settings(max_examples=100, deadline=None)
def test_what_is_open_is_what_nobody_knows(played: list[tuple[str, int]]) -> None:
    """The list of calls in doubt, the count in the head and the rows themselves agree."""
    history = History()
    play(history, played)
    facts = history.paper.state.facts
    expected = {row.issued for row in history.paper.rows.values() if row.status in ("running", "in_doubt")}
    assert set(facts.effects.open) == expected
    assert facts.head.in_doubt == len(expected)
    unknown = sorted(operation for operation, truth in history.truth.items() if truth == "unknown")
    assert sorted(int(row.operation[2:]) for row in facts.effects.in_doubt) == unknown


@given(moves, moves)
@settings(max_examples=100, deadline=None)
def test_a_ledger_that_goes_on_from_a_keyframe_misses_nothing(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    """What changed the world, and how much of it is open, is found without looking at every row."""
    history = History()
    play(history, before)
    frame = stored_keyframe(history.paper.state)
    restored = restore(frame)
    history.paper.state = restored
    play(history, after)
    effects = history.paper.state.facts.effects
    assert effects.count_open() == len(effects.open)
    for seq in (0, frame.seq):
        changes = [row for row in history.paper.rows.values() if row.issued > seq and row.changes_the_world]
        assert list(effects.iter_changes_since(seq)) == changes[::-1]


async def test_a_long_ledger_survives_a_keyframe_in_the_store(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened from it, the session still knows what it did."""
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_ENTRIES_MIN", 20)
    ran: list[int] = []

    @tool(side_effects={"mutate"})
    async def act(number: int) -> int:
        ran.append(number)
        if number == 7:
            raise ValueError("reset")
        return number

    registry = Registry([act])
    async with opened(store_url) as (store, session):
        for number in range(40):
            await registry.dispatch("act", {"number": number}, call_id=f"c{number}", session=session)
        assert engine_of(store).driver.find_keyframe(session.id) is not None
    async with opened(store_url) as (_, session):
        assert session.state.keyframe_seq > 0
        assert [row.call.id for row in session.in_doubt] == ["c7"]
        for number in range(40):
            found = await registry.dispatch("act", {"number": number}, session=session)
            assert found.status == ("in_doubt" if number == 7 else "completed")
    assert ran == list(range(40))


async def test_a_closed_session_is_not_kept_in_memory(store_url: Url) -> None:
    """A worker opens thousands of them, and each has used a tool."""

    @tool(side_effects={"mutate"})
    async def act() -> None: ...

    async with holdfast.open_store(store_url) as store:

        async def use() -> weakref.ref[holdfast.Session]:
            async with store.session("s") as session:
                await Registry([act]).dispatch("act", {}, session=session)
                return weakref.ref(session)

        found = await use()
        gc.collect()
        assert found() is None
