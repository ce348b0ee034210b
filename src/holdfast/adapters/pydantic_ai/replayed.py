"""Drive a recorded session with today's agent, for `holdfast replay`.

The agent runs as it always does, with its capabilities, toolsets and output, over a session in memory. What
stands in for the model and for the tools takes the place of two handlers of `Durable`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, Final

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolRequests

from ...errors import BadInput
from ...formats.pydantic_ai import FORMAT, load, to_pydantic_ai
from ...messages import AnyMessage, ForeignMessage, Json
from ...replay.drive import ReplayTurn
from ...replay.recording import CallRecord
from ...replay.stage import RecordingEnds
from ...tools.outcome import NotDone
from ..run_errors import RunWaits
from .context import EFFECT
from .history import give_result

_TURN: Final[ContextVar[ReplayTurn | None]] = ContextVar("holdfast_pydantic_ai_replay", default=None)


def find_replay() -> ReplayTurn | None:
    """The turn that is being replayed; None in a real run, and inside of a tool."""
    return None if EFFECT.find() is not None else _TURN.get()


def in_replay(agent: AbstractAgent[Any, Any], *, deps: Any = None) -> ReplayedAgent:
    """An agent for `replay_session` and its like. It needs `Durable` among its capabilities; `deps` are for
    its instructions and its tools' `prepare` functions. The bodies of tools are not run."""
    return ReplayedAgent(agent, deps)


class ReplayedAgent:
    """An agent that is driven over recorded sessions."""

    adapter = "pydantic-ai"

    def __init__(self, agent: AbstractAgent[Any, Any], deps: Any) -> None:
        self.agent, self.deps = agent, deps
        self.name = agent.name

    async def drive(self, turn: ReplayTurn) -> None:
        """Drive one turn: to its end, or to where the recording ends."""
        history, prompt = _read_opening(turn)
        token = _TURN.set(turn)
        stand_in = (
            nullcontext() if turn.is_live else self.agent.override(model=_NeverAsked(_find_model(self.agent)))
        )
        try:
            with stand_in:
                while await self._run(turn, history, prompt):
                    pass
        finally:
            _TURN.reset(token)

    async def _run(self, turn: ReplayTurn, history: list[ModelMessage], prompt: Any) -> bool:
        """Run the agent once. True if it is to be run again: what it waited for was answered."""
        try:
            result = await self.agent.run(prompt, message_history=history or None, deps=self.deps)
            waits = isinstance(result.output, DeferredToolRequests)
        except RunWaits:
            waits = True
        except (RecordingEnds, _NoDurable):
            raise
        except Exception:
            if not turn.session.state.facts.runs:
                raise  # It has not come to the run: the agent cannot be run like this.
            return False  # The run has recorded why it failed.
        return waits and await turn.answer()


def _read_opening(turn: ReplayTurn) -> tuple[list[ModelMessage], Any]:
    """What the agent is given: the history, and the prompt."""
    history: list[ModelMessage] = to_pydantic_ai(list(turn.session.transcript))
    said = [_as_request(message) for message in turn.messages]
    if not said:
        return history, None
    prompts = [part.content for part in said[-1].parts if isinstance(part, UserPromptPart)]
    if not prompts:
        return [*history, *said], None
    prompt: Any = prompts[0] if len(prompts) == 1 else [one for each in prompts for one in _as_list(each)]
    return [*history, *said[:-1]], prompt


def _as_request(message: AnyMessage) -> ModelRequest:
    if isinstance(message, ForeignMessage) and message.format == FORMAT:
        loaded = load(message.data)
        if isinstance(loaded, ModelRequest):
            return loaded
    (made,) = to_pydantic_ai([message])
    assert isinstance(made, ModelRequest), "only replies of the model are responses"
    return made


def _as_list(content: Any) -> Sequence[Any]:
    return [content] if isinstance(content, str) else content


def _find_model(agent: AbstractAgent[Any, Any]) -> Model:
    """The agent's model, whose profile decides how it is asked for output; another one if it has none, or
    none that can be made here."""
    model: Any = agent.model
    if isinstance(model, str):
        from pydantic_ai.models import infer_model

        try:
            model = infer_model(model)
        except (UserError, ImportError, ValueError, KeyError):
            model = None  # Such as for want of a key.
    return model if isinstance(model, Model) else TestModel()


class _NoDurable(BadInput):
    pass


class _NeverAsked(WrapperModel):
    """The model of an agent whose replies come from the record."""

    async def request(self, *args: Any, **options: Any) -> ModelResponse:
        raise _NoDurable(
            "a replay needs an agent with Durable among its capabilities: its model would have been asked"
        )


async def ask_recorded(turn: ReplayTurn) -> ModelResponse:
    """The next recorded reply."""
    said = load(await turn.ask())
    if not isinstance(said, ModelResponse):
        raise BadInput(f"session {turn.session.id!r} has replies that are not pydantic-ai's")
    # A run signs its own.
    said.run_id = None
    return said


def stand_in_model(
    turn: ReplayTurn, handler: Callable[[ModelRequestContext], Awaitable[ModelResponse]]
) -> Callable[[ModelRequestContext], Awaitable[ModelResponse]]:
    """What takes the place of asking the model."""

    async def ask(request: ModelRequestContext) -> ModelResponse:
        if not turn.is_live:
            return await ask_recorded(turn)
        turn.check_may_ask()
        response = await handler(request)
        await turn.note_live_reply()
        return response

    return ask


def stand_in_tool(turn: ReplayTurn, call: ToolCallPart) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """What takes the place of the body of a tool."""

    async def give(args: dict[str, Any]) -> Any:
        effect = EFFECT.find()
        assert effect is not None, "a body is entered by the ledger"
        try:
            known = turn.take_call(call.tool_name, effect, call.tool_call_id)
        except NotDone as error:
            # The other calls of the reply are still looked at. Then the replay stops.
            raise ToolFailed(str(error)) from error
        return _give(known)

    return give


def _give(call: CallRecord) -> Any:
    part: Any = call.answer_part if isinstance(call.answer_part, dict) else {}
    result = call.result
    assert result is not None
    kept: Json = result.value if result.value is not None or result.text == "null" else result.text
    if part.get("part_kind") == "retry-prompt" or part.get("outcome") == "retried":
        raise ModelRetry(str(part.get("content")))
    if part.get("outcome") in ("failed", "denied"):
        raise ToolFailed(str(part.get("content")))
    if result.is_error:
        raise RecordedFailure(result.text)
    return give_result(kept)


class RecordedFailure(Exception):
    """A tool raised this, in the recorded words."""
