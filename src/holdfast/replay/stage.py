"""The stage of a replay: the recording, and what stands in for the model and for the world.

The stage hands out recorded replies in their order, and the recorded result of each call. It invents nothing:
where the recording ends, or has no result, the replay stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..agents.model import Model, ModelEvent, Prompt, Reply, TextDelta
from ..core.budget import Usage
from ..core.effects import Question
from ..core.entries import DelegateEnded
from ..errors import BadInput, HoldfastError
from ..messages import Json, Message
from ..session.session import Session
from ..tools.canonical import NotCanonical, normalise
from ..tools.context import AnyContext
from ..tools.declaration import AnyTool, Hook
from ..tools.outcome import NotDone
from .recording import CallRecord, CallResult, Others, Recording, ReplyRecord, Turn

StopKind: TypeAlias = Literal["asked", "missing"]
"""`asked`: the model would be asked after the last reply of the turn. `missing`: a call has no recorded
result."""


class RecordingEnds(HoldfastError):
    """The replay cannot go on: what would follow is not on record."""


class Stage:
    """What is given to today's code, and how far it has come."""

    def __init__(self, recording: Recording, *, live: bool) -> None:
        self.recording, self.live = recording, live
        self.turn = Turn()
        self.given = 0
        """How many replies were given."""
        self.stop: StopKind | None = None
        self.missing = ""
        """Of the first call without a recorded result: what it is."""
        self._served: Counter[tuple[int, str]] = Counter()
        self._used: set[tuple[int, int]] = set()
        """With a live model: the recorded calls whose results were handed out."""

    # -- the model -------------------------------------------------------------------------------------

    def check_may_ask(self) -> None:
        """Refuse a request whose reply would follow what is not on record."""
        if self.missing:
            self.stop = "missing"
            raise RecordingEnds(f"no result is on record of {self.missing}")

    async def next_reply(self, session: Session) -> ReplyRecord:
        """The next recorded reply of the turn, after the messages that came while it was made are sent."""
        self.check_may_ask()
        if self.given >= self.turn.last:
            self.stop = "asked"
            raise RecordingEnds("the model would be asked again, and no reply is on record")
        reply = self.recording.replies[self.given]
        self.given += 1
        await self._send_joined(session)
        return reply

    async def _send_joined(self, session: Session) -> None:
        joined = self.turn.joined.get(self.given, ())
        for said in joined:
            await session.store.submit(session.id, said.as_message())
        if joined:
            await session.take_in()

    async def note_live_reply(self, session: Session) -> None:
        """Count a reply of a live model."""
        self.given += 1
        await self._send_joined(session)

    async def before_request(self, session: Session, *, own_budget: bool) -> None:
        """Bring the spending of the session to where it was: what delegates and lost requests have cost."""
        if self.live:
            return
        if self.given < self.turn.last:
            reply = self.recording.replies[self.given]
            caps = replace(reply.caps, seconds=None)  # A replay takes no time.
            if not own_budget and session.budget.caps != caps:
                await session.set_budget(caps)
            _note_others(session, reply.others)
        elif self.turn.end is not None:
            _note_others(session, self.turn.end.others)

    async def answer(self, session: Session) -> bool:
        """Answer what is asked as the person did, or approve what was not asked before; False if there is no
        answer on record."""
        answered = False
        for question in list(session.state.facts.effects.questions.values()):
            call = self.find_asked(question)
            if call is not None and call.asked and call.approved is None:
                continue
            if call is not None and call.asked and call.approved is False:
                await session.store.refuse(session.id, question.asked, by=_BY, reason=call.answer)
            else:
                args = call.corrected if call is not None and call.asked else msgspec.UNSET
                corrected = {} if args is msgspec.UNSET else {"args": args}
                await session.store.approve(session.id, question.asked, by=_BY, **corrected)
            answered = True
        if answered:
            await session.take_in()
        return answered

    # -- the world -------------------------------------------------------------------------------------

    def stand_in(self, tool: AnyTool) -> Hook:
        """The body that stands in for that of a tool."""

        async def recorded(ctx: AnyContext, /, **values: Any) -> Any:
            call = self.take_call(tool.name, ctx)
            assert call.result is not None
            return _give(tool.name, call.result)

        return Hook(recorded, True, True)

    def take_call(self, tool: str, ctx: AnyContext, call_id: str = "") -> CallRecord:
        """The recorded call whose result stands in for a body that was entered; `NotDone` if there is none,
        after which the replay stops. `call_id` is the model's own, where the ledger has another."""
        call = self._find(tool, ctx, call_id or ctx.call_id)
        if call is None or call.result is None or not _has_outcome(call, live=self.live):
            self.missing = self.missing or f"{tool}, called {call_id or ctx.call_id!r}"
            raise NotDone("no result is on record")
        return call

    def _find(self, tool: str, ctx: AnyContext, call_id: str) -> CallRecord | None:
        if self.live:
            return self._find_equal(tool, _args_of(ctx))
        if not self.given:
            return None
        reply = self.given - 1
        same = [one for one in self.recording.replies[reply].calls if one.id == call_id]
        place = self._served[reply, call_id]
        self._served[reply, call_id] += 1
        return same[min(place, len(same) - 1)] if same else None

    def _find_equal(self, tool: str, args: Json) -> CallRecord | None:
        """The first recorded call of the turn, or a later one, with these arguments, that was not used."""
        for reply in range(self.turn.first, len(self.recording.replies)):
            for index, call in enumerate(self.recording.replies[reply].calls):
                place = (reply, index)
                known = call.args if call.checked is UNSET else call.checked
                if place in self._used or call.tool != tool or _normal(known) != _normal(args):
                    continue
                if call.course in ("ran", "told"):
                    self._used.add(place)
                    return call
        return None

    def find_asked(self, question: Question) -> CallRecord | None:
        """The recorded call that a person is asked about now."""
        if self.live:
            replies = self.recording.replies[self.turn.first :]
            calls = [one for reply in replies for one in reply.calls if one.tool == question.tool]
            return next((one for one in calls if _normal(one.args) == _normal(question.args)), None)
        calls = self.recording.replies[self.given - 1].calls if self.given else []
        place = question.call.index
        return calls[place] if place < len(calls) else None


_BY = "the recording"
_OTHERS = "recorded.elsewhere"
"""Stands for all that has spent money of the session, its recorded replies aside."""


def _note_others(session: Session, others: Others) -> None:
    if others != Others():
        usage = Usage(output_tokens=others.tokens)
        ended = DelegateEnded(session=_OTHERS, usage=usage, cost_usd=others.usd, steps=others.steps)
        session._writer.record(ended)


def _args_of(ctx: AnyContext) -> Json:
    """The arguments of the call, as its intent has them."""
    effects = ctx.session.state.facts.effects
    rows = [effects.rows[issued] for issued in effects.open]
    return next((row.args for row in reversed(rows) if row.call.id == ctx.call_id), None)


def _normal(args: Json) -> bytes:
    try:
        return msgspec.json.encode(normalise(args))
    except NotCanonical:
        return msgspec.json.encode(repr(args))


def _has_outcome(call: CallRecord, *, live: bool) -> bool:
    """Whether the recorded result is that of the call itself."""
    if call.course == "repeated":
        # It is made anew if the earlier call, whose result it got, is no part of the recording.
        return not call.again
    return call.course in ("ran", "told")


def _give(tool: str, result: CallResult) -> Any:
    if result.is_error:
        raise _as_error(tool, result.text)
    if result.parts:
        return list(result.parts)
    return result.value if result.value is not None or result.text == "null" else result.text


def _as_error(tool: str, text: str) -> NotDone:
    """An error that the model is told of in the recorded words: `pay raised ValueError: no such card`."""
    name, colon, said = text.removeprefix(f"{tool} raised ").partition(": ")
    if text.startswith(f"{tool} raised ") and colon and name.isidentifier():
        named: type[NotDone] = type(name, (NotDone,), {})
        return named(said)
    return NotDone(text)


class RecordedModel:
    """A model that gives the recorded replies, under the name of today's."""

    def __init__(self, stage: Stage, session: Session, name: str) -> None:
        self._stage, self._session, self.name = stage, session, name

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield the next recorded reply."""
        reply = await self._stage.next_reply(self._session)
        message = reply.said.as_message()
        if not isinstance(message, Message):
            raise BadInput(
                f"session {self._stage.recording.session!r} has replies in the format {message.format!r}, "
                "which no holdfast.Agent has: replay it with a function that is your loop"
            )
        yield Reply(message=message, usage=reply.usage, model=reply.model)


class LiveModel:
    """A real model, as long as the world it acts in is on record."""

    def __init__(self, stage: Stage, session: Session, model: Model) -> None:
        self._stage, self._session, self._model = stage, session, model
        self.name = model.name
        self.links = bool(getattr(model, "links", False))

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model."""
        self._stage.check_may_ask()
        async with aclosing(self._model.ask(prompt)) as events:
            async for event in events:
                if not isinstance(event, TextDelta):
                    await self._stage.note_live_reply(self._session)
                yield event
