"""An agent hands work to others, everything is killed, and nothing that was found out is lost.

    python examples/delegate_research.py [STORE]

The editor asks two scouts at once. Each is an agent with a session of its own, and each orders a map, which
costs money. The process is killed while both are at work. The next one resumes the editor alone; its scouts
go on where they were, and no map is ordered twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

import holdfast
from holdfast import ToolContext
from holdfast.agents import Prompt, ScriptedModel
from holdfast.messages import Message, ToolCall, ToolResult

FACTS = {"Lyon": "two rivers", "Bern": "one river and a moat of hills"}


@holdfast.tool(side_effects={"mutate"})
async def order_map(ctx: ToolContext[Path], city: str) -> str:
    """Order a map of a city."""
    with ctx.deps.open("a") as book:
        book.write(f"a map of {city}\n")
    return f"a map of {city}"


@holdfast.tool(side_effects={"read"})
async def study(city: str) -> str:
    """Study the map of a city."""
    await anyio.sleep(0.1)
    if "DIE_WHILE_STUDYING" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return FACTS[city]


def scout(prompt: Prompt) -> str | ToolCall:
    """Stands in for the scouts' model: a map first, then a close look at it."""
    city = prompt.messages[0].text.removeprefix("What is special about ").removesuffix("?")
    done = [block for message in prompt.messages for block in results_in(message)]
    if len(done) < 2:
        return ToolCall(id="call_0", name=("order_map", "study")[len(done)], args={"city": city})
    return f"{city} has {done[1].content}."


def edit(prompt: Prompt) -> str | list[ToolCall]:
    """Stands in for the editor's model: hand out the work, then put it together."""
    found = results_in(prompt.messages[-1])
    if found:
        return " ".join(str(block.content) for block in found)
    tasks = {city: f"What is special about {city}?" for city in FACTS}
    return [ToolCall(id=city, name="scout", args={"task": task}) for city, task in tasks.items()]


def results_in(message: object) -> list[ToolResult]:
    """The results of tool calls in a message."""
    blocks = message.blocks if isinstance(message, Message) else ()
    return [block for block in blocks if isinstance(block, ToolResult)]


scouts = holdfast.Agent(ScriptedModel(scout), name="scout", tools=[order_map, study])
editor = holdfast.Agent(
    ScriptedModel(edit),
    name="editor",
    tools=[scouts.as_tool(description="Find out about a city.")],
    budget=holdfast.Budget(tokens=500_000),
)


async def work(url: str, orders: Path) -> None:
    """Begin, or go on; then show who did what."""
    async with holdfast.open_store(url) as store:
        interrupted = [head.session async for head in store.sessions(interrupted=True)]
        print(f"  interrupted: {', '.join(interrupted) or 'nothing'}", flush=True)
        if interrupted:
            outcome = await editor.resume("atlas", store=store, deps=orders)
        else:
            outcome = await editor.run("Compare Lyon and Bern.", session="atlas", store=store, deps=orders)
        print(f"  editor: {outcome.output}")
        async for head in store.sessions(parent="atlas"):
            print(f"  {head.session}: {head.status}, {head.usage.tokens} tokens")
        print(f"  all of it together: {outcome.usage.tokens} tokens", flush=True)


def main(url: str | None) -> None:
    """Die once, carry on once, and count the maps."""
    with tempfile.TemporaryDirectory() as folder:
        if url in (None, "memory:"):  # A store in memory would die with the first process.
            url = f"sqlite:{folder}/agents.db"
        orders = Path(folder) / "orders.txt"
        command = [sys.executable, __file__, "--work", str(url), str(orders)]
        print("an editor and two scouts begin …", flush=True)
        killed = subprocess.run(command, env={**os.environ, "DIE_WHILE_STUDYING": "1"}, check=False)
        print(f"  all of them ended with {signal.Signals(-killed.returncode).name}", flush=True)
        print("the editor is resumed …", flush=True)
        subprocess.run(command, check=True)
        print("ordered: " + ", ".join(sorted(orders.read_text().splitlines())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        anyio.run(work, sys.argv[2], Path(sys.argv[3]))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
