"""Journals of agents that worked, were killed, waited and were rewound, with times of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from holdfast.cli.entry_text import describe
from holdfast.cli.html_page import PageData
from holdfast.core import entries as kinds
from holdfast.core.budget import Budget, Usage
from holdfast.core.codec import NewEntry
from holdfast.core.entries import Body, CallRef, Entry, Parent
from holdfast.core.session_state import SessionState
from holdfast.drawing.from_journal import draw_journal
from holdfast.drawing.model import Drawing
from holdfast.drivers.contract import Done
from holdfast.engine.committer import make_append
from holdfast.ids import SessionId
from holdfast.messages import CallPart, Json, Message, Text, ToolCall, encode_message
from holdfast.store.store import Store
from tests.internals import engine_of

START = datetime(2026, 11, 19, 9, 30, tzinfo=UTC)


class Author:
    """Writes a journal, entry by entry; time passes as it is told."""

    def __init__(self, session: str = "order-42", *, parent: str | None = None) -> None:
        self.state = SessionState(SessionId(session))
        self.now = START
        self.entries: list[Entry] = []
        self.new: list[NewEntry] = []
        """The same entries, as they are committed."""
        self.run: str | None = None
        opened = kinds.SessionOpened(
            id=session, uid=f"u-{session}", agent="clerk", parent=Parent(session=parent) if parent else None
        )
        self.add(opened)

    def add(self, body: Body, content: bytes | None = None) -> int:
        """The next entry; its `seq`."""
        self.new.append(self.state.append(body, self.now, self.run, content))
        self.entries.append(self.new[-1].entry)
        return self.state.seq

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)

    def take(self, holder: str) -> None:
        """A process takes the lease and begins a run, or continues the one that has no end."""
        self.add(kinds.LeaseTaken(holder=f"h-{holder}", name=holder))
        before = self.run
        self.run = f"run-{self.state.seq}"
        self.add(kinds.RunStarted(agent="clerk", model="sonnet-9", loop="agent", continues=before))

    def release(self) -> None:
        """The run is completed, the lease given back."""
        self.add(kinds.RunCompleted())
        self.run = None
        self.add(kinds.LeaseReleased())

    def say(self, said: str) -> None:
        """A message of the user."""
        message = Message(role="user", blocks=(Text(said),))
        self.add(kinds.MessageAdded(role="user", title=said[:60]), encode_message(message))

    def request(self) -> int:
        """A request to the model."""
        return self.add(kinds.ModelRequested(model="sonnet-9"))

    def reply(self, said: str, *calls: ToolCall, took_s: float = 1.0, usd: float = 0.004) -> int:
        """A request and its reply; its `seq`."""
        asked = self.request()
        self.wait(took_s)
        calls = tuple(replace(call, id=f"c{asked + 1}-{index}") for index, call in enumerate(calls))
        message = Message(role="assistant", blocks=(Text(said), *calls))
        body = kinds.ModelReplied(
            parts=tuple(CallPart(call.id, call.name) for call in calls),
            request=asked,
            usage=Usage(input_tokens=900, output_tokens=130),
            cost_usd=usd,
        )
        return self.add(body, encode_message(message))

    def issue(self, reply: int, index: int, tool: str, args: Json, *, attempt: int = 1, id: str = "") -> int:
        """The intent of a mutating call."""
        return self.add(
            kinds.ToolIssued(
                call=CallRef(id=id or f"c{reply}-{index}", reply=reply, index=index),
                tool=tool,
                args=args,
                fingerprint=f"f{reply}{index}",
                operation=f"{reply}.{index}",
                scope="call",
                side_effects=("mutate",),
                key=f"key-{reply}-{index}-4f1b9c",
                attempt=attempt,
            )
        )

    def complete(self, reply: int, index: int, issued: int, said: str, *, took_s: float) -> None:
        """The outcome of a call."""
        self.add(
            kinds.ToolCompleted(
                call=CallRef(id=f"c{reply}-{index}", reply=reply, index=index),
                issued=issued,
                latency_ms=1000 * took_s,
            ),
            _result(said),
        )

    def ran(self, reply: int, index: int, tool: str, args: Json, said: str, *, took_s: float) -> None:
        """A harmless call, from beginning to end."""
        self.add(
            kinds.ToolRan(
                call=CallRef(id=f"c{reply}-{index}", reply=reply, index=index),
                tool=tool,
                args=args,
                fingerprint=f"f{reply}{index}",
                side_effects=("read",),
                latency_ms=1000 * took_s,
            ),
            _result(said),
        )

    def checkpoint(self) -> int:
        """The end of a step; its version."""
        version = self.state.facts.head.version + 1
        self.add(kinds.CheckpointTaken(version=version))
        return version

    def rewind(self, version: int) -> None:
        """Back to a version."""
        target = self.state.get_checkpoint(version)
        spans = (kinds.Span(1, target.seq),)
        self.add(kinds.SessionRewound(version=version, seq=target.seq, transcript=spans))

    def draw(self, *, held: bool = False, delegates: dict[str, Drawing] | None = None) -> Drawing:
        """The drawing."""
        drawn = draw_journal(
            self.state.facts.head.session,
            self.entries,
            self.state.facts.effects.rows,
            describe=describe,
            held=held,
            now=self.now,
            delegates=delegates,
            cap_usd=self.state.budget.caps.usd,
        )
        assert drawn is not None
        return drawn

    def page_data(self, *, held: bool = False, delegates: dict[str, Drawing] | None = None) -> PageData:
        """What the page of this session is made of."""
        return PageData(
            head=self.state.facts.head,
            held=held,
            state=self.state,
            entries=self.entries,
            delegates=delegates or {},
            now=self.now,
        )


def store_journal(store: Store, author: Author) -> None:
    """Write a journal into a store, in one commit."""
    engine = engine_of(store)
    item = make_append(author.new, after=None, head=replace(author.state.facts.head))
    assert isinstance(engine.committer.commit_now(item), Done)


def _result(said: str) -> bytes:
    return msgspec.json.encode({"text": said})


def write_eventful() -> tuple[Author, dict[str, Drawing]]:
    """Killed with a call in doubt, parallel calls, a delegate, a budget, a rewind, an approval."""
    author = Author()
    author.take("agent@web-1")
    author.add(kinds.BudgetChanged(budget=Budget(usd=0.08)))
    author.say("Refund order 42 and tell the customer")
    names = ("look_up", "read_mails", "search_policy")
    calls = [ToolCall(id=f"x{n}", name=name, args={"order": "42"}) for n, name in enumerate(names)]
    reply = author.reply("I will look at the order, the mails and the policy.", *calls, took_s=2.4)
    author.wait(0.8)
    author.ran(reply, 0, "look_up", {"order": "42"}, "order 42: 9900 cents, delivered", took_s=0.8)
    author.wait(0.6)
    author.ran(reply, 2, "search_policy", {"query": "refund after delivery"}, "30 days", took_s=1.4)
    author.wait(0.9)
    author.ran(reply, 1, "read_mails", {"customer": "ann@example.com"}, "two mails", took_s=2.3)
    author.checkpoint()
    reply = author.reply(
        "The refund is due.", ToolCall(id="p", name="charge_back", args={"cents": 9900}), took_s=1.7
    )
    issued = author.issue(reply, 0, "charge_back", {"order": "42", "cents": 9900})
    author.wait(0.4)
    noted = {
        "holdfast.request": {"method": "POST", "url": "https://bank.example/refunds", "key": "key-4f1b9c"}
    }
    author.add(kinds.ToolAnnotated(issued=issued, notes=noted))
    author.wait(7460)  # Killed: another process finds the session two hours later.
    author.take("agent@web-2")
    author.wait(0.3)
    settled = kinds.ToolSettled(
        call=CallRef(id=f"c{reply}-0", reply=reply), issued=issued, verdict="landed", by="verify", told=True
    )
    author.add(settled, _result("refund r-77 exists"))
    author.checkpoint()
    helper = Author("order-42-helper", parent="order-42")
    helper.now = author.now
    reply = author.reply(
        "A helper writes the letter.", ToolCall(id="d", name="writer", args={"task": "letter"}), took_s=1.2
    )
    author.add(kinds.DelegateStarted(session="order-42-helper"))
    helper.now = author.now
    helper.take("agent@web-2")
    inner = helper.reply(
        "Drafting.", ToolCall(id="h", name="load_template", args={"name": "sorry"}), took_s=1.1
    )
    helper.wait(0.5)
    helper.ran(inner, 0, "load_template", {"name": "sorry"}, "Dear …", took_s=0.5)
    helper.checkpoint()
    helper.reply("Dear Ann, …", took_s=1.9)
    helper.checkpoint()
    helper.release()
    author.now = helper.now
    author.add(
        kinds.DelegateEnded(
            session="order-42-helper", usage=Usage(input_tokens=1800), cost_usd=0.006, steps=2
        )
    )
    author.ran(reply, 0, "writer", {"task": "letter"}, "Dear Ann, …", took_s=3.5)
    version = author.checkpoint()
    author.reply("I sent it to the wrong customer, didn't I?", took_s=1.0)
    author.checkpoint()
    author.rewind(version)
    reply = author.reply("May I send the letter?", ToolCall(id="s", name="send_letter", args={"to": "Ann"}))
    call = CallRef(id=f"c{reply}-0", reply=reply)
    asked = author.add(
        kinds.ApprovalAsked(call=call, tool="send_letter", args={"to": "Ann"}, why="letters need a person")
    )
    author.add(kinds.RunPaused(reason="approval"))
    author.add(kinds.LeaseReleased())
    author.wait(1900)
    author.take("agent@web-1")
    author.add(kinds.ApprovalGiven(call=call, asked=asked, by="ann"))
    issued = author.issue(reply, 0, "send_letter", {"to": "Ann"})
    author.wait(0.7)
    author.add(kinds.ToolFailed(call=call, issued=issued, error="the post office is closed", final=False))
    author.wait(0.4)
    issued = author.issue(reply, 0, "send_letter", {"to": "Ann"}, attempt=2)
    author.wait(0.9)
    author.complete(reply, 0, issued, "posted", took_s=0.9)
    author.checkpoint()
    reply = author.reply(
        "Last, the ledger.", ToolCall(id="l", name="book", args={"entry": "refund"}), took_s=1.3
    )
    author.issue(reply, 0, "book", {"entry": "refund 42"})
    author.wait(0.2)
    author.add(kinds.ToolReported(issued=author.state.seq), b'"writing"')
    return author, {"order-42-helper": helper.draw()}


def write_steps(count: int, *, killed_at: int | None = None, session: str = "long") -> Author:
    """Many steps of a request and two calls, with a kill in one of them."""
    author = Author(session)
    author.take("agent@batch-1")
    author.say("Go through all files, one by one")
    for number in range(1, count + 1):
        reply = author.reply(
            f"File {number}.",
            ToolCall(id=f"r{number}", name="read_file", args={"path": f"src/{number}.py"}),
            ToolCall(id=f"e{number}", name="edit_file", args={"path": f"src/{number}.py", "line": number}),
            took_s=0.8 + number % 7 / 5,
        )
        author.wait(0.1 + number % 3 / 10)
        author.ran(reply, 0, "read_file", {"path": f"src/{number}.py"}, "x = 1", took_s=0.1)
        issued = author.issue(reply, 1, "edit_file", {"path": f"src/{number}.py", "line": number})
        author.wait(0.2 + number % 5 / 10)
        if number == killed_at:
            author.wait(45)
            author.take("agent@batch-2")
            call = CallRef(id=f"c{reply}-1", reply=reply, index=1)
            author.add(
                kinds.ToolSettled(call=call, issued=issued, verdict="not_landed", by="verify", told=False)
            )
            issued = author.issue(reply, 1, "edit_file", {"path": f"src/{number}.py"}, attempt=2)
            author.wait(0.4)
        author.complete(reply, 1, issued, "edited", took_s=0.2 + number % 5 / 10)
        author.checkpoint()
    author.reply("All files are done.")
    author.checkpoint()
    author.release()
    return author
