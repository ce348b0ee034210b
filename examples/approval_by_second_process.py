"""A call waits for a person, the process ends, and the answer comes from another one.

python examples/approval_by_second_process.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

import holdfast


@holdfast.tool(side_effects={"mutate"}, needs_approval=True)
async def refund(order: str, cents: int) -> str:
    """Give the money back."""
    return f"refunded {cents} for {order}"


async def agent(database: Path) -> None:
    """Ask for a refund; if somebody has agreed meanwhile, make it."""
    registry = holdfast.Registry([refund])
    async with holdfast.open_store(database) as store, store.session("order-42") as session:
        result = await registry.dispatch(
            "refund", {"order": "42", "cents": 9900}, call_id="r1", session=session
        )
        print(f"agent: {result.status}: {result.content}", flush=True)


async def person(database: Path) -> None:
    """Agree, but to less."""
    async with holdfast.open_store(database) as store:
        answer = await store.approve(
            "order-42", "r1", by="ann", args={"order": "42", "cents": 4900}, note="half is fair"
        )
        print(f"ann: approved, with another amount ({answer})", flush=True)


def main() -> None:
    """Three processes, one after another."""
    if len(sys.argv) > 2:
        anyio.run({"agent": agent, "person": person}[sys.argv[1]], Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as directory:
        for role in ("agent", "person", "agent"):
            subprocess.run([sys.executable, __file__, role, f"{directory}/agents.db"], check=True)


if __name__ == "__main__":
    main()
