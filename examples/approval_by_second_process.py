"""A call waits for a person, the process ends, and the answer comes from another one.

    python examples/approval_by_second_process.py [STORE]

Three processes, one after another: the agent asks, Ann agrees to less, the agent goes on.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import anyio

import holdfast
from holdfast.agents import Prompt, ScriptedModel
from holdfast.messages import Message, ToolCall, ToolResult


@holdfast.tool(side_effects={"mutate"}, needs_approval=lambda order, cents: cents > 1000)
async def refund(order: str, cents: int) -> str:
    """Give the money back."""
    return f"refunded {cents} cents for order {order}"


def answer(prompt: Prompt) -> str | ToolCall:
    """Stands in for a model."""
    match prompt.messages[-1]:
        case Message(blocks=(ToolResult(content=done),)):
            return f"Done: {done}."
    return ToolCall(id="call_0", name="refund", args={"order": "42", "cents": 9900})


agent = holdfast.Agent(ScriptedModel(answer), tools=[refund])


async def work(url: str) -> None:
    """Go on with the session, or begin it, as far as it goes."""
    async with holdfast.open_store(url) as store:
        try:
            outcome = await agent.resume("order-42", store=store)
        except holdfast.errors.NotFound:
            outcome = await agent.run("The kettle leaks. Refund it.", session="order-42", store=store)
        print(f"agent: {outcome.status}: {outcome.output or outcome.reason}", flush=True)


async def person(url: str) -> None:
    """See what waits, and agree, but to less."""
    async with holdfast.open_store(url) as store:
        async for head in store.sessions(status="waiting"):
            for question in (await store.load(head.session)).facts.effects.questions.values():
                print(f"ann: {question.tool} {question.args}? Half of it is fair.", flush=True)
                less = {**question.args, "cents": 4900}
                await store.approve(head.session, question.call.id, by="ann", args=less)


def main(url: str | None) -> None:
    """Three processes, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        if url in (None, "memory:"):  # A store in memory would die with the first process.
            url = f"sqlite:{folder}/agents.db"
        for role in ("agent", "person", "agent"):
            subprocess.run([sys.executable, __file__, "--as", role, str(url)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        anyio.run({"agent": work, "person": person}[sys.argv[2]], sys.argv[3])
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
