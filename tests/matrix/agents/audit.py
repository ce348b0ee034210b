"""What an agent's run comes to: read off the journals and the model's log, and not off what the fold says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import Store
from holdfast.core.entries import ModelFailed, ModelReplied, ModelRequested
from holdfast.records import Reservation, SessionState, Usage

from ..matrix_process import Life
from .matrix_agents import SCRIPT, SESSION, TASK, Log


class Books(Struct, frozen=True, kw_only=True):
    """All requests of all sessions, as the journals have them; sessions are named by their tasks."""

    states: Mapping[str, SessionState]
    in_flight: Mapping[str, Mapping[int, Reservation]]
    """What has no outcome: by task, and by the entry that reserved it."""
    usage: Usage
    usd: float

    @property
    def reserved(self) -> Reservation:
        """All that is in flight."""
        every = (one for open in self.in_flight.values() for one in open.values())
        return sum(every, Reservation())

    @property
    def root(self) -> SessionState:
        """The session that all work for."""
        return next(state for state in self.states.values() if state.facts.head.session == SESSION)


async def read_books(store: Store) -> Books:
    """Add up everybody's lines."""
    states: dict[str, SessionState] = {}
    in_flight: dict[str, dict[int, Reservation]] = {}
    usage, usd = Usage(), 0.0
    async for head in store.sessions():
        state = await store.load(head.session)
        task = getattr(state.transcript[0], "text", "") if state.transcript else f"nothing in {head.session}"
        states[task], open = state, dict[int, Reservation]()
        async for entry in store.tail(head.session, follow=False):
            body = entry.body
            if isinstance(body, ModelRequested):
                open[entry.seq] = body.reserved
            elif isinstance(body, ModelReplied | ModelFailed):
                open.pop(body.request or 0)
                usage, usd = usage + body.usage, usd + body.cost_usd
        if open:
            in_flight[task] = open
    return Books(states=states, in_flight=in_flight, usage=usage, usd=usd)


def find_bad_accounts(books: Books) -> Iterator[str]:
    """The root's budget is what all replies cost, its delegates' included, and what was in flight at a kill;
    nothing is held for anybody any more."""
    for task, state in books.states.items():
        held = {id: one for id, one in state.facts.delegates.items() if one.held is not None}
        if held:
            yield f"{task}: held for delegates: {held}"
        own, reserved = books.in_flight.get(task, {}), state.budget.reserved
        if reserved.tokens != sum(one.tokens for one in own.values()):
            yield f"{task}: reserved {reserved}, in flight {own}"
    budget = books.root.budget
    tokens = books.usage.tokens + books.reserved.tokens
    if budget.tokens + budget.reserved.tokens != tokens:
        yield f"the budget says {budget}, the journals {tokens} tokens"
    usd = books.usd + books.reserved.usd
    if abs(budget.usd + budget.reserved.usd - usd) > 1e-9:
        yield f"the budget says {budget}, the journals {usd} USD"


def find_needless_requests(books: Books, log: Log) -> Iterator[str]:
    """The model was asked for every reply once, and once more for each request in flight at a kill."""
    asked = Counter((one.task, one.place) for one in log.read())
    for task, state in books.states.items():
        replies = sum(message.role == "assistant" for message in state.transcript)
        times = [asked.pop((task, place), 0) for place in range(len(SCRIPT.get(task, ())))]
        lost = len(books.in_flight.get(task, {}))
        if not (all(times[:replies]) and sum(times) <= replies + lost):
            yield f"{task}: asked {times} times for {replies} replies, {lost} requests in flight at kills"
    yield from (f"asked for {place}, which nobody needs" for place in asked)


def find_miscounted_steps(books: Books, log: Log) -> Iterator[str]:
    """The model is told when a reply is the last one, and only then; no budget here is ever short. After a
    pause the steps count anew."""
    told = {(one.task, one.place) for one in log.read() if one.last}
    paused = any(run.status == "paused" for run in books.root.facts.runs.values())
    expected = set() if paused or TASK not in books.states else {(TASK, len(SCRIPT[TASK]) - 1)}
    if told != expected:
        yield f"told of the last reply: {told} instead of {expected}"


async def tell_end(life: Life) -> dict[str, Any]:
    """What must be the same, whoever was killed on the way: ids and times are left out, and so is what was in
    flight at the kills."""
    books, log = await read_books(life.store), Log(life.folder)
    life.problems += find_bad_accounts(books)
    life.problems += find_needless_requests(books, log)
    life.problems += find_miscounted_steps(books, log)
    budget = books.root.budget
    end: dict[str, Any] = {
        "tokens": budget.tokens + budget.reserved.tokens - books.reserved.tokens,
        "usd": round(budget.usd + budget.reserved.usd - books.reserved.usd, 9),
        "usage": msgspec.to_builtins(books.usage),
    }
    for task, state in books.states.items():
        facts = state.facts
        end[task] = {
            "transcript": tell_transcript(state),
            "status": facts.head.status,
            "plan": msgspec.to_builtins(facts.plan),
            "state": tell_values(state),
            "versions": len(facts.checkpoints),
            "steps": state.budget.steps,
            "tools": dict(sorted(facts.counters.per_tool.items())),
        }
    return end


_ID = re.compile(r"-[0-9a-f]{16}(/\d+\.\d+)?")


def tell_transcript(state: SessionState) -> list[dict[str, Any]]:
    """Its messages, without what depends on when they were written."""
    return [_clean(message) for message in state.transcript]


def tell_values(state: SessionState) -> dict[str, str]:
    """The state by key. A message's id depends on what came before it, its place does not."""
    told = {key: bytes(value).decode() for key, value in state.facts.values.items()}
    for place, message in enumerate(state.transcript):
        told = {key: text.replace(f'"{message.id}"', f'"message {place}"') for key, text in told.items()}
    return told


def _clean(message: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(message)
    text = msgspec.json.encode({key: value for key, value in found.items() if key not in ("id", "at")})
    cleaned: dict[str, Any] = msgspec.json.decode(_ID.sub("-ID", text.decode()))
    return cleaned
