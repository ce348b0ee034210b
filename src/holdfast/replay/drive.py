"""Drive a recorded session with today's code."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import anyio
from msgspec.structs import replace

from ..agents.agent import Agent
from ..agents.outcome import Outcome
from ..core.head import Head
from ..errors import BadInput, BudgetSpent, HoldfastError
from ..ids import SessionId
from ..messages import AnyMessage, Json, Message
from ..session.session import Session
from ..store.opening import AnyStore, use_store
from ..store.store import Store, open_store
from ..tools.context import AnyContext
from ..tools.registry import Registry
from .compare import TurnEnd, compare_calls, compare_end, compare_live, goes_on, list_changes, list_gone
from .recording import CallRecord, Recording, RunEnd, Turn, check_driver, load_recording, read_recording
from .replay import Difference, SessionReplay
from .stage import LiveModel, RecordedModel, RecordingEnds, Stage

AnyAgent: TypeAlias = Agent[Any, Any]


class ReplayTurn:
    """One turn of a replay, for a loop of your own: the session to drive, and what stands in for the rest."""

    def __init__(self, stage: Stage, session: Session, messages: Sequence[AnyMessage]) -> None:
        self.session = session
        """An open session in memory, with all that was said before."""
        self.messages = messages
        """What was said to the loop at once; empty if it is to go on where it was."""
        self.is_live = stage.live
        """Whether the agent's own model is asked."""
        self._stage = stage

    async def ask(self) -> Json:
        """The next recorded reply, as your loop recorded it: in the format of its client, or as a `Message`.

        Where there is none, it raises `RecordingEnds`: let it pass.
        """
        reply = await self._stage.next_reply(self.session)
        message = reply.said.as_message()
        return message if isinstance(message, Message) else message.data

    def registry(self, registry: Registry) -> Registry:
        """The same registry, whose gates decide as before, and whose tools give the recorded results."""
        return registry.in_replay(self._stage.stand_in)

    def check_may_ask(self) -> None:
        """Raise `RecordingEnds` if a live model would be asked about what is not on record."""
        self._stage.check_may_ask()

    async def note_live_reply(self) -> None:
        """Count a reply of a live model."""
        await self._stage.note_live_reply(self.session)

    def take_call(self, tool: str, ctx: AnyContext, call_id: str = "") -> CallRecord:
        """The recorded call whose result stands in for the body of a tool that was entered. `call_id` is the
        model's own, where the ledger has another."""
        return self._stage.take_call(tool, ctx, call_id)

    def find_external(self, call_id: str) -> CallRecord | None:
        """The recorded call of the last reply that something outside of the session has answered."""
        replies = self._stage.recording.replies[: self._stage.given]
        calls = replies[-1].calls if replies else []
        return next((one for one in calls if one.id == call_id and one.course == "told"), None)

    async def answer(self) -> bool:
        """Answer what waits for a person as the person did, or approve what was not asked before. False if
        nothing was answered: the recording has no answer either."""
        return await self._stage.answer(self.session)


Loop: TypeAlias = Callable[[ReplayTurn], Awaitable[object]]
"""A loop of your own: it adds the messages of the turn, and drives the session until the next one."""


@runtime_checkable
class FrameworkAgent(Protocol):
    """An agent of another framework, with what drives it in a replay."""

    adapter: str
    """The label of its sessions."""
    name: str | None

    async def drive(self, turn: ReplayTurn) -> None:
        """Drive one turn."""


_FRAMEWORKS: Final = {
    "agents": "holdfast.adapters.openai_agents.replayed",
    "pydantic_ai": "holdfast.adapters.pydantic_ai.replayed",
}
"""By the package of an agent's class, the module whose `in_replay` makes a `FrameworkAgent` of it."""


Replayable: TypeAlias = Any
"""An `Agent`, a `Loop`, or an agent of another framework: of pydantic-ai with `Durable`, or of the OpenAI
Agents SDK."""


def find_framework(agent: object) -> str | None:
    """The module that drives agents of this kind; None if they are of no other framework."""
    # A user's own module may have the name of a package.
    kinds = (one for one in type(agent).__mro__ if one.__name__.endswith("Agent"))
    roots = (one.__module__.partition(".")[0] for one in kinds)
    return next((_FRAMEWORKS[root] for root in roots if root in _FRAMEWORKS), None)


def is_replayable(given: object) -> bool:
    """Whether this is an agent that a replay can drive."""
    return isinstance(given, Agent | FrameworkAgent) or find_framework(given) is not None


def is_loop(given: object) -> bool:
    """Whether this is a function that drives a turn, and not one that makes an agent."""
    if not callable(given) or isinstance(given, type) or is_replayable(given):
        return False
    try:
        wanted = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        return False
    return [one.default for one in wanted if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)][:1] == [
        inspect.Parameter.empty
    ]


def as_driver(agent: Any) -> AnyAgent | Loop | FrameworkAgent:
    """What a replay can drive: an agent of another framework gets what drives it."""
    module = None if isinstance(agent, Agent | FrameworkAgent) else find_framework(agent)
    if module is not None:
        made: FrameworkAgent = import_module(module).in_replay(agent)
        return made
    if not isinstance(agent, Agent | FrameworkAgent) and not callable(agent):
        raise BadInput(f"{type(agent).__name__} is no agent, and no function that drives a session")
    found: AnyAgent | Loop | FrameworkAgent = agent
    return found


async def replay_session(
    store: AnyStore,
    session: str,
    agent: Replayable,
    *,
    version: int | None = None,
    live_model: bool = False,
) -> SessionReplay:
    """Drive a recorded session with today's `agent`, from the beginning or from a version on.

    Recorded replies and results stand in for the model and for the world: no tool is run, no request is made,
    and nothing is written to the store. `live_model`: the agent's own model is asked, in a world that stays
    recorded. `agent` is a `holdfast.Agent`, an agent of pydantic-ai with `Durable` or of the OpenAI Agents
    SDK (as it is, or by `in_replay`), or a function that is a loop of your own; it is given each turn.
    """
    async with use_store(store) as found:
        recording = await read_recording(found, session, version=version)
    return await replay_recording(recording, agent, live_model=live_model)


async def replay_all(
    store: AnyStore,
    agent: Replayable,
    *,
    choose: Callable[[Head], bool] = lambda head: True,
    live_model: bool = False,
) -> AsyncIterator[tuple[SessionId, SessionReplay | HoldfastError]]:
    """Replay every session whose last run was this agent's, and that `choose` takes; delegates are left out.

    A session that cannot be replayed gives the error that says why.
    """
    driver = as_driver(agent)
    name = driver.name if isinstance(driver, Agent | FrameworkAgent) else None
    if name is None:
        raise BadInput("an agent whose sessions are to be found needs a name")
    async with use_store(store) as found:
        heads = [head async for head in found.sessions()]
        for head in heads:
            if head.agent != name or head.parent is not None or not choose(head):
                continue
            try:
                yield head.session, await replay_session(found, head.session, agent, live_model=live_model)
            except HoldfastError as error:
                yield head.session, error


async def replay_recording(
    recording: Recording | str, agent: Replayable, *, live_model: bool = False
) -> SessionReplay:
    """Replay what `read_recording` gave, or the same as JSON."""
    if isinstance(recording, str):
        recording = load_recording(recording)
    driver = as_driver(agent)
    _check(recording, driver, live_model)
    async with open_store("memory:", inline_bytes=None, result_chars=None) as store:
        return await _Drive(store, recording, driver, live=live_model).go()


def check_recording(recording: Recording | str, agent: Any) -> None:
    """Raise `AssertionError` with the report if today's agent would do anything differently: for tests.

    `agent` is what `replay_session` takes, or a function that makes it. For code without an event loop.
    """
    made: Any = agent if is_replayable(agent) or is_loop(agent) else agent()
    replay = anyio.run(replay_recording, recording, made)
    assert not replay.differs, str(replay)


def check_fits(recording: Recording, agent: Any) -> None:
    """Refuse a recording that an agent of another framework has made."""
    driver = as_driver(agent)
    if isinstance(driver, Agent):
        check_driver(recording, "")
    elif isinstance(driver, FrameworkAgent):
        check_driver(recording, driver.adapter)


def _check(recording: Recording, agent: AnyAgent | Loop | FrameworkAgent, live: bool) -> None:
    check_fits(recording, agent)
    if live and not isinstance(agent, Agent | FrameworkAgent):
        raise BadInput("live_model=True is for agents: a loop of your own asks what it likes")
    if not recording.turns:
        raise BadInput(
            f"session {recording.session!r} has nothing to replay: no message is on record, or none after "
            "the version"
        )


class _Drive:
    """One replay."""

    def __init__(
        self, store: Store, recording: Recording, agent: AnyAgent | Loop | FrameworkAgent, *, live: bool
    ) -> None:
        self._store, self._recording, self._agent = store, recording, agent
        self._stage = Stage(recording, live=live)
        self._live = live
        self._id = recording.session

    async def go(self) -> SessionReplay:
        """Drive turn by turn, until the first that does not end as it did."""
        recording, stage = self._recording, self._stage
        differences: list[Difference] = []
        stopped = ""
        turns = 0
        labels = {"agent_framework": recording.adapter} if recording.adapter else None
        async with self._store.session(self._id, labels=labels) as session:
            for said in recording.history:
                await session.add(said.as_message())
            if recording.history:
                await session.checkpoint()
            for number, turn in enumerate(recording.turns):
                turns += 1
                stage.turn, stage.stop = turn, None
                before = stage.given
                end = await self._drive_turn(session, turn)
                await session.flush()
                found = await self._compare(number, turn, before, end)
                differences += found
                stopped = self._find_stop(turn, end, found)
                if stopped:
                    break
                stage.given = stage.given if self._live else turn.last
            await session.flush()
            replayed = await read_recording(self._store, self._id)
        return SessionReplay(
            session=recording.session,
            agent=recording.agent,
            version=recording.version,
            turns=turns,
            replies=len(recording.replies),
            given=stage.given,
            live=self._live,
            differences=tuple(differences),
            changes=tuple(list_changes(recording, replayed)) if isinstance(self._agent, Agent) else (),
            stopped=stopped if turns < len(recording.turns) or stage.stop == "missing" else "",
        )

    async def _compare(self, number: int, turn: Turn, before: int, end: TurnEnd) -> list[Difference]:
        replayed = await read_recording(self._store, self._id)
        if self._live:
            found = list(compare_live(self._recording, turn, replayed.replies[before:], number))
        else:
            found = compare_calls(self._recording, replayed.replies, number)
        if self._live:
            # It may take as many replies as it likes.
            end = replace(end, given=turn.last)
        differs = any(one.reply == end.given or self._live for one in found)
        other = compare_end(turn, number, end, differs=differs)
        if other is not None:
            found.append(other)
            found += list_gone(self._recording, number, end.given, f"the run has ended: {end.words}")
        return found

    def _find_stop(self, turn: Turn, end: TurnEnd, found: Sequence[Difference]) -> str:
        """Why what follows cannot be replayed; empty if it can."""
        if end.stop == "missing":
            return f"no result is on record of {self._stage.missing}"
        if self._live:
            return "" if end.status == "completed" else end.words
        if end.stop == "asked":
            return "the model would be asked again, and no reply is on record" if goes_on(turn.end) else ""
        return end.words if any(one.kind in ("budget", "steps", "output", "end") for one in found) else ""

    # -- one turn --------------------------------------------------------------------------------------

    async def _drive_turn(self, session: Session, turn: Turn) -> TurnEnd:
        stage = self._stage
        try:
            if isinstance(self._agent, Agent):
                outcome = await self._drive_agent(session, self._agent, turn)
                return TurnEnd(
                    given=stage.given, status=outcome.status, reason=outcome.reason, error=outcome.error
                )
            drive = self._agent.drive if isinstance(self._agent, FrameworkAgent) else self._agent
            return await self._drive_loop(session, drive, turn)
        except RecordingEnds:
            return TurnEnd(given=stage.given, stop=stage.stop)

    async def _drive_agent(self, session: Session, agent: AnyAgent, turn: Turn) -> Outcome[Any]:
        stage = self._stage
        own = agent.budget is not None

        async def before_request(session: Session) -> None:
            await stage.before_request(session, own_budget=own)

        model: Any
        if self._live:
            model = LiveModel(stage, session, agent.loop_config.client.model)
        else:
            model = RecordedModel(stage, session, agent.model_name)
        stand_in = agent.in_replay(model, stage.stand_in, before_request)
        messages = [said.as_message() for said in turn.opening]
        for message in messages[:-1]:
            await session.add(message)
        if messages:
            outcome = await stand_in.run(messages[-1], session=session)
        else:
            outcome = await stand_in.resume(session)
        past = list(turn.ends)
        while True:
            if outcome.status == "waiting":
                if not await stage.answer(session):
                    return outcome
            elif not self._went_on(turn, past, outcome):
                return outcome
            outcome = await stand_in.resume(session)

    def _went_on(self, turn: Turn, past: list[RunEnd], outcome: Outcome[Any]) -> bool:
        """Whether the recorded run ended like this, too, and was resumed."""
        given = self._stage.given
        if self._live or outcome.status == "completed" or given >= turn.last:
            return False
        for one in past:
            if (one.replies, one.status, one.reason) == (given, outcome.status, outcome.reason):
                past.remove(one)
                return True
        return False

    async def _drive_loop(self, session: Session, loop: Loop, turn: Turn) -> TurnEnd:
        stage = self._stage
        messages = [said.as_message() for said in turn.opening]
        try:
            await loop(ReplayTurn(stage, session, messages))
        except BudgetSpent as spent:
            return TurnEnd(given=stage.given, status="failed", reason="budget_spent", error=str(spent))
        await session.flush()
        runs = session.state.facts.runs
        last = runs[next(reversed(runs))] if runs else None
        if last is None or turn.end is None:
            status, reason = ("completed", "") if turn.end is None else (turn.end.status, turn.end.reason)
            return TurnEnd(given=stage.given, status=status, reason=reason)
        return TurnEnd(given=stage.given, status=last.status, reason=last.reason)
