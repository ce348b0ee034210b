"""Two workers share a store; one is killed in the middle of its work, and the other one goes on with it.

    python examples/fleet.py [STORE]

Orders are submitted, each to a session of its own. Every parcel leaves the house once.
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
from holdfast import Landed, NotLanded, ToolContext
from holdfast.agents import Prompt, ScriptedModel
from holdfast.messages import ToolCall

ORDERS = ("kettle", "teapot", "samovar", "thermos")
SHIPPED = Path(os.environ.get("SHIPPED", "shipped.log"))
DOOMED = "--doomed" in sys.argv


def was_shipped(ctx: ToolContext[None], parcel: str) -> Landed | NotLanded:
    """Ask the warehouse."""
    shipped = SHIPPED.read_text().splitlines() if SHIPPED.exists() else []
    return Landed(f"{parcel} was shipped") if f"{ctx.key} {parcel}" in shipped else NotLanded()


@holdfast.tool(side_effects={"mutate"}, verify=was_shipped, timeout_s=10)
def ship(ctx: ToolContext[None], parcel: str) -> str:
    """Hand a parcel to the carrier."""
    with SHIPPED.open("a") as log:
        log.write(f"{ctx.key} {parcel}\n")
    if DOOMED:
        os.kill(os.getpid(), signal.SIGKILL)  # The parcel has left, and there is no record of it.
    return f"{parcel} is on its way"


def answer(prompt: Prompt) -> str | ToolCall:
    """Stands in for a model."""
    last = prompt.messages[-1]
    if last.role == "tool":
        return "Shipped."
    return ToolCall(id="call_0", name="ship", args={"parcel": last.text.removeprefix("Ship the ")})


shipper = holdfast.Agent(ScriptedModel(answer), name="shipper", tools=[ship])


async def submit(url: str) -> None:
    """Put work into the inboxes. With a key, submitting again changes nothing."""
    async with holdfast.open_store(url) as store:
        for order in ORDERS:
            await store.submit(f"order-{order}", f"Ship the {order}", agent="shipper", key=order)


async def work(url: str) -> None:
    """A worker, until there is nothing to do."""
    async with holdfast.open_store(url) as store:
        await holdfast.workers.Worker(store, shipper, concurrency=1).run(until_idle=True)


async def report(url: str) -> None:
    """What became of the orders."""
    async with holdfast.open_store(url) as store:
        async for head in store.sessions():
            print(f"{head.session}: {head.status} after {head.runs} run(s)")


def main(url: str | None) -> None:
    """Submit, a worker that dies, a worker that does not."""
    with tempfile.TemporaryDirectory() as folder:
        if url in (None, "memory:"):  # A store in memory would die with the first process.
            url = f"sqlite:{folder}/agents.db"
        environment = {**os.environ, "SHIPPED": f"{folder}/shipped.log"}

        def start(*arguments: str) -> int:
            command = [sys.executable, __file__, "--as", *arguments]
            return subprocess.run(command, env=environment).returncode

        start("submit", str(url))
        died = start("work", str(url), "--doomed")
        print("the first worker was killed" if died == -signal.SIGKILL else f"unexpected: {died}")
        start("work", str(url))
        start("report", str(url))
        shipped = Path(environment["SHIPPED"]).read_text().split()[1::2]
        print(f"{len(shipped)} parcels, {len(set(shipped))} of them different")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        anyio.run({"submit": submit, "work": work, "report": report}[sys.argv[2]], sys.argv[3])
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
