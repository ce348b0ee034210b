"""Drive a recorded session with today's agents, for `holdfast replay`.

The run goes through `DurableRunner` as it always does, over a session in memory. What stands in for the
models and for the bodies of tools takes their place where the runner would enter them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig
from agents.models.interface import ModelTracing

from ...errors import BadInput
from ...messages import OPENAI_AGENTS, AnyMessage, ForeignMessage, Message, Text
from ...replay.drive import ReplayTurn
from ...replay.recording import CallRecord
from ...replay.stage import RecordingEnds
from ..run_errors import RunWaits
from .context import EFFECT
from .items import InputItem
from .replies import ReplyOnRecord
from .tool_calls import give_output

_TURN: Final[ContextVar[ReplayTurn | None]] = ContextVar("holdfast_openai_agents_replay", default=None)


def find_replay() -> ReplayTurn | None:
    """The turn that is being replayed; None in a real run, and inside of a tool."""
    return None if EFFECT.find() is not None else _TURN.get()


def in_replay(agent: Agent[Any], *, runner: Any = None, **options: Any) -> ReplayedRuns:
    """An agent for `replay_session` and its like. `runner` is your `DurableRunner.with_options(…)`, `options`
    are what you pass to its `run`, such as `context=`, `max_turns=` and `run_config=`."""
    from .runner import DurableRunner

    return ReplayedRuns(agent, DurableRunner if runner is None else runner, options)


class ReplayedRuns:
    """The runs of an agent over recorded sessions."""

    adapter = "openai-agents"

    def __init__(self, agent: Agent[Any], runner: Any, options: dict[str, Any]) -> None:
        self.agent, self.runner = agent, runner
        self.name: str | None = agent.name
        self._options = options

    async def drive(self, turn: ReplayTurn) -> None:
        """Drive one turn: to its end, or to where the recording ends."""
        given = [item for message in turn.messages for item in _list_items(message)]
        token = _TURN.set(turn)
        try:
            while await self._run(turn, given):
                pass
        finally:
            _TURN.reset(token)

    async def _run(self, turn: ReplayTurn, given: list[InputItem]) -> bool:
        """Run the agent once. True if it is to be run again: what it waited for was answered."""
        from .session import HoldfastSession

        options = dict(self._options)
        config = options.get("run_config") or RunConfig()
        if isinstance(config, RunConfig):
            config = replace(config, tracing_disabled=True)
            if not turn.is_live:
                config = replace(config, model_provider=_NoProvider())
        options["run_config"] = config
        session = HoldfastSession(turn.session.id, turn.session.store)
        try:
            result = await self.runner.run(self.agent, given, session=session, **options)
            waits = bool(result.interruptions)
        except RunWaits:
            waits = True
        except RecordingEnds:
            raise
        except Exception as error:
            ended = _find_end(error)
            if ended is not None:
                raise ended from error
            if not turn.session.state.facts.runs:
                raise  # It has not come to the run: the agent cannot be run like this.
            return False  # The run has recorded why it failed.
        return waits and await turn.answer()


def _find_end(error: BaseException | None) -> RecordingEnds | None:
    """The end of the recording, which the SDK may have wrapped in an error of its own."""
    while error is not None and not isinstance(error, RecordingEnds):
        error = error.__cause__ or error.__context__
    return error


def _list_items(message: AnyMessage) -> list[InputItem]:
    if isinstance(message, ForeignMessage) and message.format == OPENAI_AGENTS:
        found: list[InputItem] = message.data["items"]
        return found
    if isinstance(message, Message):
        text = "".join(block.text for block in message.blocks if isinstance(block, Text))
        return [{"role": message.role, "content": text}]
    raise BadInput(f"a message in the format {message.format!r} is no input of the OpenAI Agents SDK")


class _NoProvider(ModelProvider):
    """Models whose replies come from the record. A real provider may want a key."""

    def get_model(self, model_name: str | None) -> Model:
        return _NoModel()


class _NoModel(Model):
    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        raise BadInput("a model would be asked outside of the run that is replayed")

    def stream_response(self, *args: Any, tracing: ModelTracing | None = None, **options: Any) -> Any:
        raise BadInput("a model would be asked outside of the run that is replayed")


async def ask(turn: ReplayTurn, live: Callable[[], Any]) -> ModelResponse:
    """The next recorded reply, or that of a live model."""
    if turn.is_live:
        turn.check_may_ask()
        response: ModelResponse = await live()
        await turn.note_live_reply()
        return response
    said = await turn.ask()
    if not (isinstance(said, dict) and "reply" in said):
        raise BadInput(f"session {turn.session.id!r} has replies that are not those of DurableRunner")
    return ReplyOnRecord(0, (), said).as_response()


def give_recorded(turn: ReplayTurn, tool: str, call_id: str) -> Any:
    """What takes the place of what the body of a tool gives."""
    effect = EFFECT.find()
    assert effect is not None, "a body is entered by the ledger"
    call: CallRecord = turn.take_call(tool, effect, call_id)
    result = call.result
    assert result is not None
    if result.is_error:
        raise RecordedToolError(result.text)
    return give_output(result.value if result.value is not None or result.text == "null" else result.text)


class RecordedToolError(Exception):
    """A tool raised this, in the recorded words."""
