"""Durable runs of the SDK in the crash matrix: agents whose tools act in its world, and are killed anywhere.

    clerk    look, charge and bill at once; asks the scout, an agent as a tool; refunds, which a person
             approves by way of a `RunState`; hands over to the closer
    scout    charges, and answers
    closer   sees nothing of the tools before it; charges, and says that it is done

The models are scripts that know from their input where they are, as real ones do. What each was given is
noted in a file: no recorded reply may be asked for again, and a reply that was cut off is asked for with the
very same input.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from agents import Agent, FunctionTool, RunState, Usage, function_tool, handoff, set_tracing_disabled
from agents.extensions.handoff_filters import remove_all_tools
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from anyio.lowlevel import checkpoint

from holdfast import Landed, NotLanded, Store, ToolContext
from holdfast.adapters.openai_agents import (
    DurableRunner,
    HoldfastSession,
    RunWaits,
    as_tools,
    current_effect,
    effects,
)

from ..crash.fork_server import Line
from ..matrix import answering_person
from ..matrix.boundaries import at
from ..matrix.effect_log import World
from ..matrix.matrix_process import Life, Report, run
from ..matrix.matrix_tools import TOOLS
from ..matrix.matrix_tools import world as get_world
from ..matrix.scenarios import Play, Scenario, go_on

SESSION: Final = "order-7"
PROMPT: Final = "Settle order 7."
_ASKS_MAX: Final = 30
"""Replies of an agent in one process: many more than any of them has to give."""

Turns = Sequence[Sequence[tuple[str, dict[str, str]]] | str]
"""What a model says, turn by turn: calls, or a text that is its last word."""


class Script:
    """The models of a play, and what they were given."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "asked"
        self.asked: list[str] = []
        """The replies that models gave in this process."""

    def model(self, agent: str, turns: Turns) -> ScriptedModel:
        """The model of an agent."""

        def reply(call: ModelCall) -> ModelStep:
            items = call.input if isinstance(call.input, list) else []
            made = {item.get("call_id") for item in items}
            turn = next(
                (
                    at_
                    for at_, said in enumerate(turns)
                    if isinstance(said, str) or _call_id(agent, at_, 0) not in made
                ),
            )
            label = f"{agent} {turn}"
            at(f"{label}: before it is asked")
            self._note(label, call.input)
            at(f"{label}: after it was asked")
            return ModelStep(
                output=_say(agent, turn, turns[turn]),
                response_id=_response_id(label),
                usage=Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15),
            )

        return ScriptedModel([ModelStep.respond(reply)] * _ASKS_MAX)

    def _note(self, label: str, given: object) -> None:
        self.asked.append(label)
        digest = sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
        with open(self._file, "a") as file:
            file.write(json.dumps([label, digest]) + "\n")

    def inputs(self) -> dict[str, list[str]]:
        """What each reply was asked for with, by whichever process."""
        found: dict[str, set[str]] = {}
        for line in self._file.read_text().splitlines():
            label, digest = json.loads(line)
            found.setdefault(label, set()).add(digest)
        return {label: sorted(digests) for label, digests in found.items()}


def _say(agent: str, turn: int, said: Sequence[tuple[str, dict[str, str]]] | str) -> list[Any]:
    if isinstance(said, str):
        return [assistant_message(said, item_id=f"msg-{agent}-{turn}")]
    return [
        function_call(name, args, call_id=_call_id(agent, turn, place))
        for place, (name, args) in enumerate(said)
    ]


def _call_id(agent: str, turn: int, place: int) -> str:
    return f"call-{agent}-{turn}-{place}"


def _response_id(label: str) -> str:
    return f"reply of {label}"


async def find_recorded(store: Store, labels: Sequence[str]) -> set[str]:
    """The replies that are on record, whichever session has them."""
    said = [
        bytes(entry.content or b"")
        async for head in store.sessions()
        async for entry in store.tail(head.session, follow=False)
    ]
    return {label for label in labels if any(f'"{_response_id(label)}"'.encode() in one for one in said)}


# -- agents ----------------------------------------------------------------------------------------------


def what(value: str) -> dict[str, str]:
    """The argument of every tool."""
    return {"what": value}


def toolbox(*names: str) -> list[FunctionTool]:
    """Tools of the matrix, under the SDK."""
    return as_tools(*(TOOLS[name] for name in names))


def make_refund() -> FunctionTool:
    """A tool of the SDK that a person must approve, in the SDK's way."""

    async def verify(ctx: ToolContext[Any], what: str) -> Landed | NotLanded:
        at("refund: verify is asked")
        found = get_world().find(ctx.key)
        return Landed(found.result) if found is not None else NotLanded()

    async def refund(what: str) -> str:
        """Refund something."""
        at("refund: before")
        await checkpoint()
        deed = get_world().land(current_effect(), "refund", what)
        await checkpoint()
        at("refund: after")
        return deed.result

    declare = effects(side_effects="mutate", verify=verify)
    return declare(function_tool(refund, needs_approval=True, failure_error_function=None))


def make_whole(script: Script) -> Agent[Any]:
    """The clerk, with everything."""
    scout = Agent(
        name="scout",
        model=script.model("scout", [[("charge", what("3"))], "It is at the door."]),
        tools=[*toolbox("charge")],
    )
    closer = Agent(
        name="closer",
        model=script.model("closer", [[("charge", what("2"))], "All is settled."]),
        tools=[*toolbox("charge")],
    )
    turns: Turns = [
        [("look", what("1")), ("charge", what("1")), ("bill", what("1"))],
        [("ask_scout", {"input": "Where is it?"})],
        [("refund", what("1"))],
        [("transfer_to_closer", {})],
    ]
    return Agent(
        name="clerk",
        instructions="Settle orders.",
        model=script.model("clerk", turns),
        tools=[
            *toolbox("look", "charge", "bill"),
            scout.as_tool("ask_scout", "Find out where something is."),
            make_refund(),
        ],
        handoffs=[handoff(closer, input_filter=remove_all_tools)],
    )


def make_batch(*names: str) -> Callable[[Script], Agent[Any]]:
    """An agent that calls these tools at once."""

    def make(script: Script) -> Agent[Any]:
        turns: Turns = [[(name, what("1")) for name in names], "All is done."]
        return Agent(name="clerk", model=script.model("clerk", turns), tools=[*toolbox(*names)])

    return make


# -- the play --------------------------------------------------------------------------------------------

PAUSED: Final = "paused.json"
APPROVED: Final = "approved.json"
REPLIES: Final = ("clerk 0", "clerk 1", "clerk 2", "clerk 3", "scout 0", "scout 1", "closer 0", "closer 1")


def keep(file: Path, state: RunState[Any, Any]) -> None:
    """What an application does with a run that is paused."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(state.to_json()))
    os.replace(new, file)


async def drive(store: Store, agent: Agent[Any], given: Any, *, streamed: bool) -> Any:
    """The same call, whatever was killed before it."""
    session = HoldfastSession(SESSION, store)
    if not streamed:
        return await DurableRunner.run(agent, given, session=session, run_key="order-7")
    result = DurableRunner.run_streamed(agent, given, session=session, run_key="order-7")
    async for event in result.stream_events():
        if event.type == "run_item_stream_event":
            at(f"event {event.name}")
        elif event.type == "raw_response_event" and event.data.type == "response.completed":
            at("event response.completed")
    return result


def play(make: Callable[[Script], Agent[Any]], *, streamed: bool) -> Play:
    """Begin, or go on, as far as it goes without a person."""

    async def go(life: Life) -> bool:
        set_tracing_disabled(True)
        script = Script(life.folder)
        agent, approved = make(script), life.folder / APPROVED
        given: Any = PROMPT
        if approved.exists():
            given = await RunState.from_json(agent, json.loads(approved.read_text()))
        recorded = await find_recorded(life.store, REPLIES)
        try:
            result = await drive(life.store, agent, given, streamed=streamed)
        except RunWaits:
            return False
        finally:
            again = sorted(recorded.intersection(script.asked))
            life.expect(not again, f"on record, and asked for again: {again}")
        if result.interruptions:
            at("interrupted")
            keep(life.folder / PAUSED, result.to_state())
            return False
        at("ended")
        life.end |= {
            "output": result.final_output,
            "agent": result.last_agent.name,
            "items": await HoldfastSession(SESSION, life.store).get_items(),
            "given back": result.to_input_list(),
            "inputs": script.inputs(),
        }
        return True

    return go


def _scenarios(name: str, make: Callable[[Script], Agent[Any]], happens: Mapping[str, int]) -> dict[str, Any]:
    return {
        f"{name}{', streamed' if streamed else ''}": Scenario(
            play=play(make, streamed=streamed), effects=happens
        )
        for streamed in (False, True)
    }


SCENARIOS: Final[dict[str, Scenario]] = {
    **_scenarios(
        "everything", make_whole, {"charge 1": 1, "bill 1": 1, "charge 3": 1, "refund 1": 1, "charge 2": 1}
    ),
    # Neither can find out: a person says what became of them.
    **_scenarios(
        "nobody knows", make_batch("send", "charge", "mail"), {"send 1": 1, "charge 1": 1, "mail 1": 1}
    ),
    # The ledger asks, and the answer comes by way of the store.
    **_scenarios(
        "approved in the store", make_batch("wipe_checked", "charge"), {"wipe_checked 1": 1, "charge 1": 1}
    ),
}


def live(line: Line, folder: str, scheme: str, scenario: str, target: Sequence[Any] | None = None) -> Report:
    """In a child: begin, or go on."""
    return go_on(SCENARIOS[scenario], folder, scheme, target)


def answer(
    line: Line, folder: str, scheme: str, scenario: str, target: Sequence[Any] | None = None
) -> Report:
    """In a child: the person who is asked, by the store or by way of a `RunState`."""
    place = Path(folder)
    if not (place / PAUSED).exists() or (place / APPROVED).exists():
        return answering_person.answer(line, folder, scheme, scenario, target)

    async def approve(life: Life) -> str:
        agent = make_whole(Script(place))
        state = await RunState.from_json(agent, json.loads((place / PAUSED).read_text()))
        for item in state.get_interruptions():
            state.approve(item)
        at("approved")
        keep(place / APPROVED, state)
        return "answered"

    return run(folder, scheme, target, approve)


def world_of(folder: str) -> World:
    """What has happened there."""
    return World(Path(folder) / "world")
