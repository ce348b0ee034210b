"""What the tests of durable runs share: models that answer by what they are shown, an office that pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents import Agent, RunHooks, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.testing.model import ModelCall

import holdfast
from holdfast.adapters.openai_agents import effects

Item = dict[str, Any]


class Cut(Exception):
    """The run is cut off here."""


def answering(reply: Callable[[list[Item]], Any]) -> ScriptedModel:
    """A model that replies to what it is shown, however often it was made anew."""

    def respond(call: ModelCall) -> ModelStep:
        given: Any = call.input
        found = reply([{"role": "user", "content": given}] if isinstance(given, str) else given)
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelStep(output=found, usage=usage, response_id=f"r{len(given)}")

    return ScriptedModel([ModelStep.respond(respond)] * 100)


def since_asked(items: Sequence[Item]) -> list[Item]:
    """The items after the last one of the user's."""
    places = [place for place, item in enumerate(items) if item.get("role") == "user"]
    return list(items[places[-1] + 1 :]) if places else list(items)


def count_turns(items: Sequence[Item]) -> int:
    """How many replies there are after the last message of the user's: their calls are numbered by turn."""
    calls = [str(item["call_id"]) for item in since_asked(items) if item.get("type") == "function_call"]
    return len({call.split("-")[0] for call in calls})


def call(name: str, id: str, **args: Any) -> Any:
    """A call in a reply."""
    return function_call(name, args, call_id=id)


def say(text: str) -> list[Any]:
    """A reply of text."""
    return [assistant_message(text, item_id=f"m-{text}")]


class Office:
    """An agent that pays twice at once, looks, and answers; it can be cut off on the way."""

    def __init__(self, cut: str | None = None) -> None:
        self.cut, self.paid, self.looked = cut, list[int](), 0
        self.model = answering(self.reply)
        self.agent: Agent[Any] = Agent(
            name="clerk", model=self.model, tools=self.make_tools(), instructions="Pay what is due."
        )

    def reply(self, items: list[Item]) -> Any:
        """The reply of the model."""
        match count_turns(items):
            case 0 if "Pay" in items[-1]["content"]:
                if self.cut == "before the model":
                    raise Cut
                return [call("pay", "t0-a", cents=1), call("pay", "t0-b", cents=2)]
            case 1:
                return [call("look", "t1-a")]
            case _:
                return say(f"Paid {sorted(self.paid)}.")

    def make_tools(self) -> list[Any]:
        """The tools of the agent."""

        def was_paid(cents: int) -> holdfast.Landed | holdfast.NotLanded:
            return holdfast.Landed(f"paid {cents}") if cents in self.paid else holdfast.NotLanded()

        @effects(side_effects="mutate", verify=was_paid)
        @function_tool(failure_error_function=None)
        async def pay(cents: int) -> str:
            """Pay."""
            if self.cut == "in a tool" and cents == 2:
                raise Cut
            self.paid.append(cents)
            return f"paid {cents}"

        @effects(side_effects="read")
        @function_tool
        def look() -> dict[str, int]:
            """Look."""
            self.looked += 1
            return {"paid": len(self.paid)}

        return [pay, look]

    @property
    def hooks(self) -> RunHooks[Any]:
        """Hooks that cut the run off at its end."""
        return _CutAtEnd(self)


class _CutAtEnd(RunHooks[Any]):
    def __init__(self, office: Office) -> None:
        self._office = office

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """After the last reply, before it is saved."""
        if self._office.cut == "after the model":
            raise Cut


async def play(runner: Any, agent: Agent[Any], given: Any, *, streamed: bool = False, **options: Any) -> Any:
    """Run an agent, streamed or not; its result."""
    if not streamed:
        return await runner.run(agent, given, **options)
    result = runner.run_streamed(agent, given, **options)
    async for _ in result.stream_events():
        pass
    return result


async def approve(store: holdfast.Store, paused: Any, *, by_state: bool) -> Any:
    """Approve the call that the first run of session `ann` waits for, by a `RunState` or by way of the store;
    what the run is called with next, None if it is the same."""
    if by_state:
        state = paused.to_state()
        state.approve(paused.interruptions[0])
        return state
    (asked,) = (await store.load("ann")).facts.effects.questions.values()
    await store.approve("ann", asked.call.id, by="cat")
    return None


def kinds_of(items: Sequence[Any]) -> list[str]:
    """Who said it, or what it is."""
    return [item.get("role") or item["type"] for item in items]


async def get_root_cause(work: Any) -> BaseException:
    """What an awaitable raised, and what that came from."""
    try:
        await work
    except Exception as error:
        found: BaseException = error
        while found.__cause__ is not None:
            found = found.__cause__
        return found
    raise AssertionError("nothing was raised")
