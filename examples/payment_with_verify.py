"""A payment lands, the process is killed before it is recorded, and the next one finds out.

    python examples/payment_with_verify.py [STORE]

The bank is a file that knows keys. The first process dies by SIGKILL inside the tool, right after the money
moved. The second one resumes the same session: it finds the call in doubt, asks the bank, and pays nothing.
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
from holdfast.messages import ToolCall


class Bank:
    """Remembers every payment by its key, as a good bank does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pay(self, key: str, cents: int) -> None:
        """Move the money, for good."""
        with self._path.open("a") as book:
            book.write(f"{key} {cents}\n")
            book.flush()
            os.fsync(book.fileno())

    def find(self, key: str) -> bool:
        """Whether a payment with this key arrived."""
        return any(line.startswith(key) for line in self.payments())

    def payments(self) -> list[str]:
        """All of them."""
        return self._path.read_text().splitlines() if self._path.exists() else []


async def was_charged(
    ctx: holdfast.ToolContext[Bank], order: str, cents: int
) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the bank before anything is tried again."""
    print("  in doubt: asking the bank …", flush=True)
    return holdfast.Landed(f"paid {order}") if ctx.deps.find(ctx.key) else holdfast.NotLanded()


@holdfast.tool(side_effects={"mutate"}, verify=was_charged, timeout_s=30)
async def charge(ctx: holdfast.ToolContext[Bank], order: str, cents: int) -> str:
    """Charge the card on file."""
    ctx.deps.pay(ctx.key, cents)
    if "DIE_IN_CHARGE" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)  # The money has moved, and there is no record of it.
    return f"paid {order}"


agent = holdfast.Agent(
    holdfast.agents.ScriptedModel(
        [
            [
                "I will charge the card.",
                ToolCall(id="call_0", name="charge", args={"order": "42", "cents": 500}),
            ],
            "Order 42 is paid.",
        ]
    ),
    tools=[charge],
)


async def work(url: str, bank: Bank) -> None:
    """Resume what there is, or else begin; what comes of it is the same."""
    async with holdfast.open_store(url) as store:
        try:
            outcome = await agent.resume("order-42", store=store, deps=bank)
        except holdfast.errors.NotFound:
            outcome = await agent.run("Charge order 42.", session="order-42", store=store, deps=bank)
        print(f"  {outcome.status}: {outcome.output}", flush=True)


def main(url: str | None) -> None:
    """Die once, carry on once, and count the payments."""
    with tempfile.TemporaryDirectory() as folder:
        if url in (None, "memory:"):  # A store in memory would die with the first process.
            url = f"sqlite:{folder}/agents.db"
        command = [sys.executable, __file__, "--work", str(url), f"{folder}/bank.txt"]
        print("a process charges the card …", flush=True)
        killed = subprocess.run(command, env={**os.environ, "DIE_IN_CHARGE": "1"}, check=False)
        print(f"  it ended with {signal.Signals(-killed.returncode).name}", flush=True)
        print("another one goes on …", flush=True)
        subprocess.run(command, check=True)
        print(f"payments at the bank: {len(Bank(Path(folder) / 'bank.txt').payments())}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        anyio.run(work, sys.argv[2], Bank(Path(sys.argv[3])))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
