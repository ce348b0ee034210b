"""Two agents debate, a moderator sends them back once, the process is killed, and the debate goes on.

    python examples/moderated_debate.py [STORE]

The models are scripted, so it runs offline. The first process dies in the middle of a turn. The second one
resumes: nothing that was said is asked for again, and the log has every reply once, also those that were left
behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio

import holdfast
from holdfast import Agent
from holdfast.agents import Decision, Prompt, ScriptedModel, Thread
from holdfast.messages import ToolCall

LOG = Path("debate.jsonl")
ARGUMENTS = {
    "pro": ["Tests pay for themselves.", "They found two bugs this week."],
    "con": ["They take time. By the way, nice weather.", "They take an hour a day."],
}


def debater(name: str) -> Agent[None, str]:
    """Says its first argument, and after the moderator's note a better one."""

    def speak(prompt: Prompt) -> str:
        if "DIE_IN_THE_SECOND_TURN" in os.environ and name == "con":
            os.kill(os.getpid(), signal.SIGKILL)
        return ARGUMENTS[name][_was_reminded(prompt)]

    return Agent(ScriptedModel(speak), name=name)


def _was_reminded(prompt: Prompt) -> bool:
    return any("the topic" in message.text for message in prompt.messages)


def decide(prompt: Prompt) -> ToolCall:
    """Stands in for the moderator's model."""
    last = prompt.messages[-1].text
    if "weather" in last:
        args = {"type": "STEP_BACK", "rollback": 1, "note": "Keep to the topic.", "clear_summaries": True}
    elif "two bugs" in last:
        args = {"type": "STOP", "note": "We are agreed."}
    else:
        args = {"type": "CONTINUE"}
    return ToolCall(id="call_0", name="final_result", args=args)


def make_thread() -> Thread:
    """The same in every process."""
    return Thread(
        [debater("pro"), debater("con")],
        moderator=Agent(ScriptedModel(decide), name="moderator", output_type=Decision),
        summarizer=Agent(ScriptedModel(lambda prompt: f"{len(prompt.messages)} messages"), name="scribe"),
        max_iterations=8,
        log=LOG,
    )


async def debate(url: str) -> None:
    """Begin, or go on."""
    thread = make_thread()
    async with holdfast.open_store(url) as store:
        begun = [head async for head in store.sessions() if head.messages]
        if begun:
            outcome = await thread.resume("debate", store=store)
        else:
            outcome = await thread.run("Do we need tests?", session="debate", store=store)
        print(f"{outcome.status}: {outcome.output}")


def main(url: str) -> None:
    """Once to be killed, once to the end."""
    if url != "memory:":  # What is in memory dies with its process.
        environment = {**os.environ, "DIE_IN_THE_SECOND_TURN": "1"}
        killed = subprocess.run([sys.executable, __file__, url, "--go"], env=environment, check=False)
        print(f"the first process ended with {killed.returncode}")
    anyio.run(debate, url)
    for line in LOG.read_text().splitlines():
        record = json.loads(line)
        action = (record["actions"] or {}).get("type", "")
        said = record["content"] if isinstance(record["content"], str) else record["content"].get("note", "")
        print(f"  {record['iter']}  {record['agent_id']:9}  {action:9}  {said}")


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "sqlite:debate.db"
    if "--go" in sys.argv:
        anyio.run(debate, chosen)
    else:
        main(chosen)
