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


@holdfast.tool(side_effects={"mutate"}, needs_approval=lambda order, cents: cents > 1000)
async def refund(order: str, cents: int) -> str:
    """Give the money back."""
    return f"refunded {cents} for {order}"


async def agent(url: str) -> None:
    """Ask for a refund; if somebody has agreed meanwhile, make it."""
    registry = holdfast.Registry([refund])
    async with holdfast.open_store(url) as store, store.session("order-42") as session:
        result = await registry.dispatch(
            "refund", {"order": "42", "cents": 9900}, call_id="r1", session=session
        )
        print(f"agent: {result.status}: {result.content}", flush=True)


async def person(url: str) -> None:
    """See what waits, and agree, but to less."""
    async with holdfast.open_store(url) as store:
        (question,) = (await store.load("order-42")).facts.effects.questions.values()
        print(f"ann: {question.tool} {question.args}? {question.why}.", flush=True)
        answer = await store.approve(
            "order-42", "r1", by="ann", args={"order": "42", "cents": 4900}, note="half is fair"
        )
        print(f"ann: approved, with another amount ({answer})", flush=True)


def main(url: str | None) -> None:
    """Three processes, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        if url in (None, "memory:"):  # A store in memory would die with the first process.
            url = f"sqlite:{folder}/agents.db"
        for role in ("agent", "person", "agent"):
            subprocess.run([sys.executable, __file__, "--as", role, str(url)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        anyio.run({"agent": agent, "person": person}[sys.argv[2]], sys.argv[3])
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
