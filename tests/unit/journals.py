"""Random journals that a session could have written, and a second opinion on what they say.

`Script` writes entries through the state, which folds them as a session does. Beside it goes `Witness`, who
keeps the transcript in the simplest way there is: a list of messages, copied whole at every checkpoint and
copied back by a rewind.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from hypothesis import strategies as st

from holdfast import Budget
from holdfast.content.lazy import has_marks
from holdfast.core.codec import GENESIS, Chunk, NewEntry, Page, seal
from holdfast.core.entries import (
    Body,
    BudgetChanged,
    CallRef,
    CheckpointDropped,
    CheckpointTaken,
    InboxCancel,
    InboxMessage,
    InboxTaken,
    LeaseReleased,
    LeaseTaken,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PlanChanged,
    ResultContent,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunStarted,
    ScratchpadSet,
    SessionClosed,
    SessionForked,
    SessionLabelled,
    SessionOpened,
    SessionRewound,
    Span,
    StateSet,
    StateUnset,
    SummaryChanged,
    ToolAnnotated,
    ToolCompleted,
    ToolDiscarded,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolRan,
    ToolRefused,
    ToolSettled,
    TranscriptCompacted,
)
from holdfast.core.pages import read_contents, span_of
from holdfast.core.session_state import LoadTranscript
from holdfast.core.transcript import Transcript
from holdfast.core.transcript_items import Content, Contents
from holdfast.ids import SessionId
from holdfast.messages import CallPart, Message, Role, Text, ToolCall, encode_message
from holdfast.records import Plan, PlanStep, Reservation, SessionState, Usage

START = datetime(2026, 1, 1, tzinfo=UTC)
Said: TypeAlias = list[Any]
"""What a message says: its role and text, or the texts of results by position."""


class Witness:
    """The transcript, naively."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.versions: dict[int, tuple[list[Said], list[Said], int]] = {}
        self.wishes: dict[int, int] = {}
        """How many calls each reply makes."""
        self.in_step = False
        self.queued: list[Said] = []
        self.taken = 0

    def say(self, seq: int, role: str, text: str, wishes: int = 0) -> None:
        self.said.append([seq, role, text])
        self.wishes[seq] = wishes
        self.let_in()

    def let_in(self) -> None:
        """What was sent joins where no call waits for its result."""
        if not self.is_amid_step():
            self.said += self.queued
            self.queued = []

    def is_amid_step(self) -> bool:
        spoken = [one for one in self.said if one[1] != "tool"]
        if self.in_step or not spoken or spoken[-1][1] != "assistant":
            return self.in_step
        given = [one[2] for one in self.said if one[1] == "tool" and one[0] == spoken[-1][0]]
        return sum(map(len, given)) < self.wishes.get(spoken[-1][0], 0)

    def submit(self, number: int, seq: int, text: str) -> None:
        if number <= self.taken:
            return
        self.taken = number
        self.queued.append([seq, "user", text])
        self.let_in()

    def answer(self, reply: int, index: int, text: str) -> None:
        if not any(one[0] == reply and one[1] == "assistant" for one in self.said):
            return
        for one in self.said:
            if one[0] == reply and one[1] == "tool":
                one[2][index] = text
                break
        else:
            self.said.append([reply, "tool", {index: text}])
        self.let_in()

    def end_step(self, version: int) -> None:
        self.in_step = False
        self.let_in()
        self.versions[version] = copy.deepcopy(self.said), list(self.queued), self.taken

    def rewind(self, version: int) -> None:
        said, queued, self.taken = self.versions[version]
        self.said, self.in_step, self.queued = copy.deepcopy(said), False, list(queued)

    def compact(self, first: int, last: int, text: str) -> None:
        inside = [place for place, one in enumerate(self.said) if first <= one[0] <= last]
        if inside:
            self.said[inside[0] : inside[-1] + 1] = [[last, "user", text]]
        self.let_in()

    @property
    def spoken(self) -> list[tuple[str, Any]]:
        """Without the numbers of the entries."""
        return [
            (role, [text[index] for index in sorted(text)] if role == "tool" else text)
            for _, role, text in self.said
        ]


class Script:
    """A journal that is being written."""

    def __init__(self, name: str = "s") -> None:
        self.state = SessionState(SessionId(name))
        self.witness = Witness()
        self.new: list[NewEntry] = []
        self.calls: list[CallRef] = []
        self.run: str | None = None
        self.write(SessionOpened(id=name, uid="uid-1", labels={"first": "yes"}))
        self.write(LeaseTaken(holder="h1", name="test:1"))

    def write(self, body: Body, content: bytes | None = None) -> int:
        """Make and fold an entry; its `seq`."""
        at = START + timedelta(seconds=self.seq)
        self.new.append(self.state.append(body, at, self.run, content))
        return self.seq

    @property
    def seq(self) -> int:
        """Of the last entry."""
        return self.state.seq

    def fold(self, until: int | None = None) -> SessionState:
        """The state after the first entries, folded anew."""
        return fold(self.new[:until])

    # -- one method for each thing that can happen; `a` and `b` are small numbers ---------------------

    def add(self, a: int, b: int) -> None:
        role: Role = ("user", "system", "assistant")[a % 3]
        text = f"words {self.seq}"
        key = f"key {self.seq}" if b % 4 == 1 else None
        message = Message(role=role, blocks=(Text(text),))
        seq = self.write(MessageAdded(role=role, key=key), encode_message(message))
        self.witness.say(seq, role, text)

    def request(self, a: int, b: int) -> None:
        self.write(ModelRequested(model="m", reserved=Reservation(a / 8, b)))
        self.witness.in_step = True

    def reply(self, a: int, b: int) -> None:
        text = f"reply {self.seq}"
        wishes = tuple(ToolCall(id=f"call_{index}", name="ab"[index % 2]) for index in range(a % 3))
        message = Message(role="assistant", blocks=(Text(text), *wishes))
        body = ModelReplied(
            parts=tuple(CallPart(wish.id, wish.name) for wish in wishes),
            request=next(iter(self.state.facts.requests), None),
            usage=Usage(input_tokens=a, output_tokens=b),
            cost_usd=b / 8,
        )
        seq = self.write(body, encode_message(message))
        self.witness.say(seq, "assistant", text, len(wishes))
        self.calls += [CallRef(id=wish.id, reply=seq, index=index) for index, wish in enumerate(wishes)]

    def fail_request(self, a: int, b: int) -> None:
        self.write(
            ModelFailed(request=next(iter(self.state.facts.requests), None), error="no", cost_usd=a / 8)
        )

    def answer(self, a: int, b: int) -> None:
        """A result for any call that was ever made, also one that was left behind."""
        if not self.calls:
            return
        call, text = self.calls[-1 - a % len(self.calls)], f"result {self.seq}"
        bodies: tuple[Body, ...] = (
            ToolRefused(call=call, tool="t", gate="policy", fingerprint=f"f{a % 2}"),
            ToolCompleted(call=call),
            ToolRan(call=call, tool="t", args={"n": b}, fingerprint=f"f{a % 2}"),
        )
        body = bodies[b % len(bodies)]
        self.write(body, msgspec.json.encode(ResultContent(text=text, value=a)))
        self.witness.answer(call.reply or 0, call.index, text)

    def issue(self, a: int, b: int) -> None:
        call = self.calls[-1 - a % len(self.calls)] if self.calls and b % 2 else CallRef(id=f"own {self.seq}")
        self.write(
            ToolIssued(
                call=call,
                tool="ab"[a % 2],
                args={"n": b},
                fingerprint=f"f{a % 2}",
                operation=f"op {a % 3}",
                scope="session",
                side_effects=(("mutate",), ("write",), ())[b % 3],
                key=f"key {self.seq}",
            )
        )

    def end_effect(self, a: int, b: int) -> None:
        rows = self.state.facts.effects.rows
        if not rows:
            return
        row = rows[list(rows)[-1 - a % len(rows)]]
        text = f"outcome {self.seq}"
        outcomes: list[tuple[Body, bool]] = [
            (ToolCompleted(call=row.call, issued=row.issued), True),
            (ToolFailed(call=row.call, issued=row.issued, error="no", final=False), False),
            (ToolFailed(call=row.call, issued=row.issued, error="no"), True),
            (ToolInDoubt(call=row.call, issued=row.issued, why="lost"), False),
            (ToolInDoubt(call=row.call, issued=row.issued, why="lost", told=True), True),
            (ToolDiscarded(call=row.call, issued=row.issued), False),
            (ToolSettled(call=row.call, issued=row.issued, verdict="landed", by="me", told=True), True),
            (ToolSettled(call=row.call, issued=row.issued, verdict="gave_up", by="me"), False),
            (ToolAnnotated(issued=row.issued, notes={f"n{a}": b}), False),
        ]
        body, told = outcomes[b % len(outcomes)]
        self.write(body, msgspec.json.encode(ResultContent(text=text)) if told else None)
        if told:
            self.witness.answer(row.call.reply or 0, row.call.index, text)

    def set_state(self, a: int, b: int) -> None:
        value = msgspec.Raw(msgspec.json.encode({"value": [b, self.seq]}))
        self.write(StateSet(key=f"k{a % 4}", value=value))

    def unset_state(self, a: int, b: int) -> None:
        self.write(StateUnset(key=f"k{a % 4}"))

    def configure(self, a: int, b: int) -> None:
        plan = Plan(goal=f"g{b}", steps=(PlanStep(id="1", what="x", status="done", evidence=f"e{self.seq}"),))
        bodies: list[Body] = [
            PlanChanged(plan=plan if b % 2 else None),
            SummaryChanged(summary=f"summary {self.seq}"),
            BudgetChanged(budget=Budget(usd=a, tokens=b)),
            SessionLabelled(labels={f"l{a}": None if b % 2 else f"v{b}"}),
            ScratchpadSet(root=f"/tmp/{a}"),
            SessionClosed(status="failed" if b % 2 else "active", reason=f"r{a}"),
        ]
        self.write(bodies[a % len(bodies)])

    def start_run(self, a: int, b: int) -> None:
        self.run = f"run-{self.seq}"
        self.write(RunStarted(agent=f"agent{a}", config={"depth": b}, resumes=b % 3 == 0))

    def end_run(self, a: int, b: int) -> None:
        ends: list[Body] = [
            RunCompleted(output=a),
            RunFailed(reason="error"),
            RunCancelled(),
            RunPaused(reason="a"),
        ]
        self.write(ends[a % 4])
        self.run = None

    def change_holder(self, a: int, b: int) -> None:
        if a % 2:
            self.write(LeaseReleased())
        self.write(LeaseTaken(holder=f"h{b}", name=f"test:{b}"))

    def checkpoint(self, a: int, b: int) -> None:
        version = self.state.facts.head.version + 1
        why = tuple(map(str, self.state.problems))
        self.write(CheckpointTaken(version=version, why=why, name=f"n{a}" if b % 2 else None))
        self.witness.end_step(version)

    def drop(self, a: int, b: int) -> None:
        if offered := self.state.checkpoints:
            self.write(CheckpointDropped(version=offered[a % len(offered)].version))

    def rewind(self, a: int, b: int) -> None:
        """To any version that is offered, also one that an earlier rewind left behind."""
        if not (offered := self.state.checkpoints):
            return
        target = offered[-1 - a % len(offered)]
        then = self.fold(target.seq - self.first_seq + 1)
        if then.facts.plan != self.state.plan:
            self.write(PlanChanged(plan=then.facts.plan))
        if then.facts.summary != self.state.summary:
            self.write(SummaryChanged(summary=then.facts.summary))
        self.write(
            SessionRewound(
                version=target.version,
                seq=target.seq,
                transcript=tuple(then.transcript_fold.spans),
                state=then.facts.values,
            )
        )
        self.witness.rewind(target.version)

    def take_in(self, a: int, b: int) -> None:
        """An item of the inbox; one in four was taken in before."""
        number = self.state.facts.head.taken + (0 if a % 4 == 3 else 1)
        if b % 4 == 3:
            self.write(InboxTaken(number=number, item=InboxCancel(by="you", reason=f"r{a}")))
            self.witness.taken = max(self.witness.taken, number)
            return
        self.write(InboxTaken(number=number, item=InboxMessage(role="user", key=f"key {self.seq}")))
        text = f"submitted {self.seq}"
        content = encode_message(Message(role="user", blocks=(Text(text),)))
        seq = self.write(MessageAdded(role="user", inbox=number), content)
        self.witness.submit(number, seq, text)

    def compact(self, a: int, b: int) -> None:
        items = self.state.transcript_fold.items
        if not items:
            return
        places = sorted((a % len(items), b % len(items)))
        first, last = sorted(items[place].seq for place in places)
        text = f"in short {self.seq}"
        content = encode_message(Message(role="user", blocks=(Text(text),)))
        self.write(TranscriptCompacted(span=Span(first, last)), content)
        self.witness.compact(first, last, text)

    @property
    def first_seq(self) -> int:
        """Of the first entry that is written here."""
        return self.new[0].entry.seq

    # -- forks ----------------------------------------------------------------------------------------

    def fork(self, version: int) -> Script:
        """A journal that goes on where that version was taken."""
        point = self.state.get_checkpoint(version)
        fork = Script.__new__(Script)
        fork.new = self.new[: point.seq]
        fork.state = fold(fork.new)
        fork.state.facts.head.session = SessionId("fork")
        fork.witness = copy.deepcopy(self.witness)
        fork.witness.rewind(version)
        fork.witness.taken = 0
        fork.calls, fork.run = [call for call in self.calls if (call.reply or 0) <= point.seq], None
        fork.write(
            SessionForked(
                id="fork",
                uid="uid-2",
                origin="s",
                origin_uid="uid-1",
                version=version,
                labels={"fork": "yes"},
            )
        )
        return fork


def fold(new: Iterable[NewEntry]) -> SessionState:
    """The state after these entries."""
    state = SessionState(SessionId("s"))
    for one in new:
        if isinstance(one.entry.body, SessionForked):
            state.facts.head.session = SessionId("fork")
        state.apply(one.entry)
    return state


def chunks_of(new: Sequence[NewEntry], *, commit: int = 7, ends: int | None = None) -> list[Chunk]:
    """The chunks of these entries, `commit` of which are committed at once."""
    chunks: list[Chunk] = []
    for first in range(0, len(new), commit):
        after = chunks[-1].sum if chunks else GENESIS
        chunks += seal(new[first : first + commit], after, ends=ends)
    return chunks


def page_of_span(chunks: Sequence[Chunk], span: Span, *, said: bool) -> Page:
    """The chunks that hold these entries, and some beside them."""
    held = [one for one in chunks if one.seq >= span.first and span_of(one.facts, "").first <= span.last]
    return Page.of(held, said=said)


def transcript_of(chunks: Sequence[Chunk]) -> LoadTranscript:
    """How the transcript of a keyframe is read from these chunks."""

    def load(spans: Sequence[Span], said: bool) -> Transcript:
        transcript = Transcript(contents=contents_of(chunks))
        transcript.load(spans, [page_of_span(chunks, span, said=said) for span in spans], "the test")
        return transcript

    return load


def contents_of(chunks: Sequence[Chunk]) -> Contents:
    """What was said in these chunks, for a state that is folded without it."""

    def read(spans: Sequence[Span], own: bool) -> dict[int, Content]:
        found: dict[int, Content] = {}
        for span in spans:
            page = page_of_span(chunks, span, said=True)
            eager = own and not has_marks(page.said or b"")
            contents = read_contents(page, "the test", checked_after=span.last, may_be_messages=eager)
            found |= {seq: content for seq, content in contents if span.first <= seq <= span.last}
        return found

    return Contents(read)


ACTIONS: tuple[Callable[[Script, int, int], None], ...] = (
    Script.add,
    Script.request,
    Script.reply,
    Script.reply,
    Script.fail_request,
    Script.answer,
    Script.answer,
    Script.issue,
    Script.end_effect,
    Script.end_effect,
    Script.set_state,
    Script.unset_state,
    Script.configure,
    Script.start_run,
    Script.end_run,
    Script.change_holder,
    Script.checkpoint,
    Script.checkpoint,
    Script.checkpoint,
    Script.drop,
    Script.rewind,
    Script.rewind,
    Script.take_in,
    Script.take_in,
    Script.compact,
)
numbers = st.integers(0, 11)
steps = st.tuples(st.sampled_from(ACTIONS), numbers, numbers)
# Long ones, because much must have happened before it can be rewound; short ones, to be readable.
plots = st.lists(steps, min_size=20, max_size=60) | st.lists(steps, max_size=20)
Plot: TypeAlias = Sequence[tuple[Callable[[Script, int, int], None], int, int]]


def perform(script: Script, plot: Plot) -> Script:
    """Let it all happen."""
    for action, a, b in plot:
        action(script, a, b)
    return script


def picture(state: SessionState) -> dict[str, Any]:
    """All that can be known of a state, to be compared with another's; but for the sum of its last chunk,
    which a state does not have before it is committed."""
    fold = state.transcript_fold
    facts = msgspec.json.decode(msgspec.json.encode(state.facts))
    del facts["head"]["sum"]
    facts |= {"dropped": sorted(state.facts.dropped)}
    return {
        "facts": facts,
        "order": [
            list(part) for part in (state.facts.runs, state.facts.checkpoints, state.facts.effects.rows)
        ],
        "transcript": list(state.transcript),
        "problems": state.problems,
        "spans": fold.spans,
        "in step": fold.in_step,
        "queued": [item.read() for item in fold.queued],
    }


def spoken(state: SessionState) -> list[tuple[str, Any]]:
    """What the transcript says, in the witness's words."""
    found: list[tuple[str, Any]] = []
    for message in state.transcript:
        assert isinstance(message, Message)
        if message.role == "tool":
            found.append(("tool", [block.content for block in message.blocks]))  # type: ignore[union-attr]
        else:
            found.append((message.role, message.text))
    return found
