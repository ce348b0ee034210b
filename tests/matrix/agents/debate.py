"""A moderated debate with a step back, an advisor, a summary and a live log: what children do, and what it
comes to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from holdfast import Agent
from holdfast.agents import Decision, Prompt, ScriptedModel, Thread, experiment_log
from holdfast.errors import NotFound
from holdfast.messages import ToolCall

from ...crash.fork_server import Line
from ..boundaries import at
from ..matrix_process import Life, Report
from ..matrix_tools import TOOLS
from ..scenarios import Scenario, go_on
from .audit import tell_transcript, tell_values

SESSION: Final = "debate"
SCHEMA: Final = json.loads((Path(__file__).parents[3] / "docs" / "experiment-log.schema.json").read_text())
DECISIONS: Final[Sequence[dict[str, Any]]] = (
    {"type": "CONTINUE", "note": "Be brief."},
    {"type": "CONTINUE"},
    {"type": "STEP_BACK", "rollback": 2, "note": "Off topic.", "clear_summaries": True},
    {"type": "CONTINUE"},
    {"type": "STOP"},
)
ROLLBACK: Final = 2


def _replies(prompt: Prompt) -> int:
    return sum(message.role == "assistant" for message in prompt.messages)


def _stepped_back(prompt: Prompt) -> bool:
    return any("Off topic." in message.text for message in prompt.messages)


def _decide(prompt: Prompt) -> ToolCall:
    at("model: mod")
    place = _replies(prompt) + ROLLBACK * _stepped_back(prompt)
    return ToolCall(id="call_0", name="final_result", args=DECISIONS[place])


def _pro(prompt: Prompt) -> ToolCall | str:
    """Charges something in each of its turns, and says so."""
    at("model: pro")
    last = prompt.messages[-1]
    if last.role == "tool":
        return f"pro charged, having said {_replies(prompt)}"
    return ToolCall(id="call_0", name="charge", args={"what": "2" if _stepped_back(prompt) else "1"})


def _con(prompt: Prompt) -> str:
    at("model: con")
    return f"con heard {len(prompt.messages)}{' after all' if _stepped_back(prompt) else ''}"


def _make(folder: Path) -> Thread:
    def talker(name: str, script: Any, **options: Any) -> Agent[Any, Any]:
        return Agent(ScriptedModel(script), name=name, **options)

    return Thread(
        [talker("pro", _pro, tools=[TOOLS["charge"]]), talker("con", _con)],
        advisors=[talker("aid", lambda prompt: f"aid saw {len(prompt.messages)}")],
        moderator=talker("mod", _decide, output_type=Decision),
        summarizer=talker("sum", lambda prompt: f"{len(prompt.messages)} messages"),
        log=folder / "log.jsonl",
    )


async def _play(life: Life) -> bool:
    thread = _make(life.folder)
    try:
        begun = len((await life.store.load(SESSION)).transcript) > 0
    except NotFound:
        begun = False
    if begun:
        outcome = await thread.resume(SESSION, store=life.store)
    else:
        outcome = await thread.run("Debate", session=SESSION, store=life.store)
    life.expect(outcome.status == "completed", f"{outcome}")
    return outcome.status == "completed"


async def _tell_end(life: Life) -> dict[str, Any]:
    """The thread as it stands, and the live log, which says what the journal says and is as its schema has
    it. How often a model was asked is not the same: what was in flight is asked for again."""
    state = await life.store.load(SESSION)
    records = [record async for record in experiment_log(life.store, SESSION)]
    written = [json.loads(line) for line in (life.folder / "log.jsonl").read_text().splitlines()]
    life.expect(written == json.loads(json.dumps(records)), f"the log says {written}, the journal {records}")
    validator = jsonschema_rs.validator_for(SCHEMA)
    for record in written:
        life.expect(validator.is_valid(record), f"{record}")
    return {
        "transcript": tell_transcript(state),
        "summary": state.summary,
        "log": [[one["iter"], one["agent_id"], one["role"], one["content"]] for one in written],
        "marks": [one.name for one in state.path() if one.name],
        "state": tell_values(state),
    }


DEBATE: Final = "a moderated debate"
_SCENARIO: Final = Scenario(play=_play, effects={"charge 1": 1, "charge 2": 1}, end=_tell_end)


def live(line: Line, folder: str, scheme: str, scenario: str, target: Sequence[Any] | None = None) -> Report:
    """In a child: go on with the debate."""
    return go_on(_SCENARIO, folder, scheme, target)
