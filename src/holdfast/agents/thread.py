"""Threads: several agents take turns in one session, and a moderator may stop them or send them back.

The turns are read from the transcript, and the position of the thread is part of the session's state. So a
killed thread goes on with the same loop, and a rewind takes everything back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from ..content.encode import ALL_INLINE, pack_value
from ..core.budget import Budget
from ..core.entries import Body, StateSet, SummaryChanged
from ..core.fold import THREAD, Checkpoint, ThreadPlace
from ..errors import BadInput
from ..ids import check_list
from ..limits import ITERATIONS_MAX
from ..messages import AnyMessage, ForeignMessage, Message, Text, as_message
from ..session.inbox import message_entry
from ..session.rewind import return_to
from ..session.run import Run
from ..session.session import Session
from ..store.opening import AnyStore
from .agent import Agent, check_message
from .delegate import check_not_delegate
from .experiment import LogFile
from .loop import AgentLoop, drive_lock, ignore_event, queue_message
from .outcome import Outcome, OutcomeStatus, conclude
from .output import FinalOutput
from .thread_view import MARK, MemberView, ThreadRole, mark_of

AnyAgent: TypeAlias = Agent[Any, Any]


@dataclass(frozen=True)
class Decision:
    """A moderator's decision at the end of an iteration. Use it as the moderator's `output_type`.

    STEP_BACK goes back by `rollback` iterations, the current one included. `note` is shown to the other
    agents. `clear_summaries` also deletes the running summary.
    """

    type: Literal["CONTINUE", "STOP", "STEP_BACK"]
    note: str = ""
    rollback: int = 1
    clear_summaries: bool = False


Order: TypeAlias = Callable[[Session, int], str]
"""Names the agent that speaks in an iteration. After a crash it is called again, and must name the same."""


class Thread:
    """Agents that take turns in one session.

    In each iteration one of the `agents` speaks (in turn, or as `order` says), then the `advisors`, the
    `moderator` (its `output_type` is `Decision`) and the `summarizer`; its text becomes the running summary.
    `max_iterations` includes those that a step back left behind. `window`: how many messages an agent sees.
    `log`: a file for the experiment log.
    """

    def __init__(
        self,
        agents: Sequence[AnyAgent],
        *,
        moderator: AnyAgent | None = None,
        summarizer: AnyAgent | None = None,
        advisors: Sequence[AnyAgent] = (),
        order: Order | None = None,
        name: str = "thread",
        max_iterations: int = ITERATIONS_MAX,
        budget: Budget | None = None,
        window: int | None = None,
        log: str | Path | None = None,
    ) -> None:
        if not agents:
            raise BadInput("a thread needs at least one agent")
        if max_iterations < 1 or (window is not None and window < 1):
            raise BadInput(f"max_iterations={max_iterations} and window={window} must be at least 1")
        self.name, self._order, self._first = name, order, agents[0]
        self._max_iterations, self._budget, self._window = max_iterations, budget, window
        self._log = None if log is None else LogFile(Path(log))
        self._cast: dict[str, tuple[AnyAgent, ThreadRole]] = {}
        for agent in check_list("agents", agents):
            self._add(agent, "agent")
        for agent in check_list("advisors", advisors):
            self._add(agent, "advisor")
        if moderator is not None:
            given = moderator.output_type
            if not (isinstance(given, type) and issubclass(given, Decision)):
                raise BadInput(
                    f"the moderator's output_type is {given!r}; it must be holdfast.agents.Decision"
                )
            self._add(moderator, "moderator")
        if summarizer is not None:
            self._add(summarizer, "summarizer")

    def _add(self, agent: AnyAgent, role: ThreadRole) -> None:
        if agent.name is None:
            raise BadInput("an agent in a thread needs a name: Agent(name=…)")
        if agent.name in self._cast:
            raise BadInput(f"two agents of the thread are called {agent.name!r}")
        self._cast[agent.name] = agent, role

    # -- driving ---------------------------------------------------------------------------------------

    async def run(
        self,
        message: str | Message | ForeignMessage,
        *,
        session: str | Session,
        store: AnyStore | None = None,
        deps: object = None,
        labels: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> Outcome[str]:
        """Give the thread a topic, and drive it until it is stopped or reaches `max_iterations`."""
        check_message(message)
        opening = self._first.open_session(session, store, labels=labels, wait_s=wait_s)
        async with opening as opened:
            return await self._drive(opened, message, deps)

    async def resume(
        self, session: str | Session, *, store: AnyStore | None = None, deps: object = None, wait_s: float = 0
    ) -> Outcome[str]:
        """Continue the thread where it stands."""
        async with self._first.open_session(session, store, create=False, wait_s=wait_s) as opened:
            return await self._drive(opened, None, deps)

    async def _drive(
        self, session: Session, message: str | Message | ForeignMessage | None, deps: object
    ) -> Outcome[str]:
        with drive_lock(session):
            await check_not_delegate(session)
            for agent, _ in self._cast.values():
                agent.loop_config.client.check(self._budget or session.budget.caps)
            if self._budget is not None and session.budget.caps != self._budget:
                await session.set_budget(self._budget)
            config = {
                "cast": {name: role for name, (_, role) in self._cast.items()},
                "max_iterations": self._max_iterations,
                "window": self._window,
            }
            beginning = Run(
                session,
                agent=self.name,
                run_id=None,
                parent=None,
                model=None,
                instructions=None,
                tools={},
                config=config,
                resumes=message is None,
                loop="thread",
            )
            async with beginning as run:
                talk = _ThreadLoop(
                    self._cast, session, run, deps, order=self._order, window=self._window, log=self._log
                )
                outcome = await talk.go(message, self._max_iterations)
                _end(run, outcome)
                return outcome


def _end(run: Run, outcome: Outcome[str]) -> None:
    if outcome.status == "completed":
        run.complete()
    elif outcome.status == "waiting":
        run.pause(outcome.reason)
    elif outcome.status == "cancelled":
        run.cancel(outcome.reason)
    else:
        run.fail(outcome.reason, outcome.error)


class _ThreadLoop:
    """One drive of a thread."""

    def __init__(
        self,
        cast: Mapping[str, tuple[AnyAgent, ThreadRole]],
        session: Session,
        run: Run,
        deps: object,
        *,
        order: Order | None,
        window: int | None,
        log: LogFile | None,
    ) -> None:
        self._cast, self._session, self._run, self._deps = cast, session, run, deps
        self._order, self._window, self._log = order, window, log
        self._speakers = self._names("agent")

    async def go(self, message: str | Message | ForeignMessage | None, max_iterations: int) -> Outcome[str]:
        """Iterate until the thread is stopped or interrupted."""
        if message is not None:
            unfinished = await self._add_topic(message)
            if unfinished is not None:
                return unfinished
        if not len(self._session.transcript):
            why = f"session {self._session.id!r} has no message to go on from"
            return self._conclude("failed", reason="no_message", error=why)
        while True:
            await self._mark()
            await self._write_log()
            place = self._place()
            if place.stopped:
                return self._conclude("completed")
            if self._count_turns() - place.turns_before >= max_iterations:
                return self._conclude("completed", reason="iteration_limit")
            unfinished = await self._iterate(place)
            if unfinished is not None:
                await self._write_log()
                return unfinished

    async def _iterate(self, place: ThreadPlace) -> Outcome[str] | None:
        """Run one iteration. Return the outcome of a turn that did not complete."""
        decision, summary = Decision("CONTINUE"), self._session.summary
        for name in self._list_turns(place.iteration):
            _, role = self._cast[name]
            outcome = await self._turn(name, place)
            if outcome.status != "completed":
                return replace(outcome, run=self._run.id)
            if role == "moderator":
                assert isinstance(outcome.output, Decision), outcome.output
                decision = outcome.output
            elif role == "summarizer":
                summary = str(outcome.output)
        stop = self._session.cancel_requested
        if stop is not None:
            # Before a step back: its note is a new message, which would withdraw the request to cancel.
            return self._conclude("cancelled", reason=stop)
        if decision.type == "STEP_BACK":
            await self._step_back(decision, place)
            return None
        stopped = decision.type == "STOP"
        entries = [_summary_entry(summary)] if summary != self._session.summary else []
        self._session._writer.record_all(
            [*entries, self._set(replace(place, iteration=place.iteration + 1, stopped=stopped))]
        )
        return None

    # -- turns -----------------------------------------------------------------------------------------

    def _names(self, role: ThreadRole) -> list[str]:
        return [name for name, (_, own) in self._cast.items() if own == role]

    def _list_turns(self, iteration: int) -> list[str]:
        """The names of the agents that speak in an iteration, in order."""
        if self._order is None:
            speaker = self._speakers[iteration % len(self._speakers)]
        else:
            speaker = self._order(self._session, iteration)
            if speaker not in self._speakers:
                raise BadInput(f"order() said {speaker!r}; the agents are {self._speakers}")
        return [speaker, *self._names("advisor"), *self._names("moderator"), *self._names("summarizer")]

    async def _turn(self, name: str, place: ThreadPlace) -> Outcome[Any]:
        agent, role = self._cast[name]
        view = MemberView(
            agent=name,
            role=role,
            window=self._window,
            topic=place.topic,
            metadata={MARK: {"role": role, "iter": place.iteration}},
        )
        ended = self._find_ended(agent, view, place)
        if ended is not None:
            return conclude(self._session, self._run.id, "completed", output=ended.output)
        loop = AgentLoop(agent.loop_config, self._session, deps=self._deps, on_event=ignore_event, view=view)
        return await loop.go(None)

    def _find_ended(self, agent: AnyAgent, view: MemberView, place: ThreadPlace) -> FinalOutput | None:
        """The agent's output in this iteration, if it has given it."""
        transcript = self._session.transcript
        authors = [_author(message) for message in transcript]
        said = [
            index
            for index, (name, iteration) in enumerate(authors)
            if name == view.agent and iteration == place.iteration
        ]
        if not said:
            return None
        others = [index for index, (name, _) in enumerate(authors) if name is not None and index > said[-1]]
        if not others and not self._session.continuable:
            return None  # Only the last speaker can have calls without results.
        found = agent.loop_config.output.find(transcript[: others[0] if others else len(transcript)])
        return found if isinstance(found, FinalOutput) else None

    async def _add_topic(self, message: str | Message | ForeignMessage) -> Outcome[str] | None:
        """Add a topic, after finishing the iteration that a dead process left unfinished."""
        place = self._place()
        if len(self._session.transcript) and not place.stopped and not self._is_at_boundary():
            unfinished = await self._iterate(place)
            if unfinished is not None:
                await queue_message(self._session, message)
                return unfinished
            place = self._place()
        given = as_message(message)
        said = await message_entry(self._session._writer.engine, given)
        place = ThreadPlace(
            iteration=place.iteration,
            first=place.iteration,
            turns_before=self._count_turns(),
            topic=given.id or f"m{self._session.state.seq + 1}",
        )
        self._session._writer.record_all([said, self._set(place)])
        return None

    # -- position --------------------------------------------------------------------------------------

    def _place(self) -> ThreadPlace:
        return self._session.get(THREAD, ThreadPlace) if THREAD in self._session.keys else ThreadPlace()

    def _set(self, place: ThreadPlace) -> tuple[Body, bytes | None]:
        encoded = self._session._writer.engine.values.encode(place)
        return StateSet(key=THREAD, value=Raw(pack_value(encoded, ALL_INLINE).content)), None

    def _count_turns(self) -> int:
        """Count all turns, also those before a step back: a rewind does not touch runs."""
        runs = self._session.state.facts.runs.values()
        return sum(run.agent in self._speakers and run.status == "completed" for run in runs)

    def _find_mark(self, iteration: int) -> Checkpoint | None:
        name = _mark_name(iteration)
        return next((one for one in reversed(self._session.state.path()) if one.name == name), None)

    def _is_at_boundary(self) -> bool:
        mark = self._find_mark(self._place().iteration)
        return mark is not None and not self._session.state.facts.changed

    async def _mark(self) -> None:
        """Take a checkpoint at the beginning of the iteration, to step back to."""
        if self._find_mark(self._place().iteration) is None:
            # Without a change since the last checkpoint, no second one would be taken.
            self._session._writer.record_all([self._set(self._place())])
            await self._session.checkpoint(name=_mark_name(self._place().iteration))

    async def _step_back(self, decision: Decision, place: ThreadPlace) -> None:
        """Go back to the beginning of an iteration, and add the moderator's note, in one commit."""
        target = max(place.first, place.iteration - max(decision.rollback, 1) + 1)
        mark = self._find_mark(target)
        assert mark is not None, f"every iteration has a mark: {target}"
        also: list[tuple[Body, bytes | None]] = [
            _summary_entry("" if decision.clear_summaries else self._session.summary)
        ]
        also += [await message_entry(self._session._writer.engine, note) for note in self._list_notes(mark)]
        if decision.note:
            name = self._names("moderator")[0]
            metadata = {MARK: {"role": "moderator", "iter": place.iteration}}
            note = Message(role="user", blocks=(Text(f"[{name}] {decision.note}"),), metadata=metadata)
            also.append(await message_entry(self._session._writer.engine, note))
        await return_to(self._session, mark, also=also)

    def _list_notes(self, mark: Checkpoint) -> list[AnyMessage]:
        """The notes of earlier steps back to this point: they are added again."""
        later = (item.read() for item in self._session.state.transcript_fold.items if item.seq > mark.seq)
        return list(takewhile(_is_note, later))

    # -- the end ---------------------------------------------------------------------------------------

    async def _write_log(self) -> None:
        if self._log is not None:
            await self._log.catch_up(self._session)

    def _conclude(self, status: OutcomeStatus, *, reason: str = "", error: str = "") -> Outcome[str]:
        """Make the outcome, with the last reply of an agent as its output."""
        said = (
            message.text
            for message in reversed(self._session.transcript)
            if isinstance(message, Message) and message.agent in self._speakers
        )
        return conclude(
            self._session, self._run.id, status, output=next(said, None), reason=reason, error=error
        )


def _mark_name(iteration: int) -> str:
    return f"iteration {iteration}"


def _summary_entry(summary: str) -> tuple[Body, bytes | None]:
    return SummaryChanged(summary=summary), None


def _is_note(message: AnyMessage) -> bool:
    """Whether it is a moderator's note on a step back."""
    return (
        isinstance(message, Message)
        and message.role == "user"
        and mark_of(message).get("role") == "moderator"
    )


def _author(message: object) -> tuple[str | None, object]:
    """The author and the iteration of a reply."""
    if not isinstance(message, Message) or message.role != "assistant":
        return None, None
    return message.agent, mark_of(message).get("iter")
