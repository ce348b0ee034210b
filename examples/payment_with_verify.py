"""A payment lands, the process is killed before it is recorded, and the next one finds out.

    python examples/payment_with_verify.py

The bank is a file that knows keys. The child process dies by SIGKILL inside the tool, right after the money
moved.
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


class Bank:
    """Remembers every payment by its key, as a good bank does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pay(self, key: str, cents: int) -> None:
        """Move the money, for good."""
        with self.path.open("a") as ledger:
            ledger.write(f"{key} {cents}\n")
            ledger.flush()
            os.fsync(ledger.fileno())

    def find(self, key: str) -> bool:
        """Whether a payment with this key arrived."""
        return any(line.startswith(key) for line in self.lines())

    def lines(self) -> list[str]:
        """All payments."""
        return self.path.read_text().splitlines() if self.path.exists() else []


async def was_charged(
    ctx: holdfast.ToolContext[Bank], order: str, cents: int
) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the bank before anything is tried again."""
    return holdfast.Landed(f"paid {order}") if ctx.deps.find(ctx.key) else holdfast.NotLanded()


@holdfast.tool(side_effects={"mutate"}, verify=was_charged, timeout_s=30)
async def charge(ctx: holdfast.ToolContext[Bank], order: str, cents: int) -> str:
    """Charge the card on file."""
    ctx.deps.pay(ctx.key, cents)
    if os.environ.get("DIE_IN_CHARGE"):
        os.kill(os.getpid(), signal.SIGKILL)  # The money has moved, and nobody wrote it down.
    return f"paid {order}"


async def work(home: Path) -> None:
    """One step of an agent: settle what is in doubt, then make the call of this step."""
    bank = Bank(home / "bank.txt")
    registry = holdfast.Registry([charge])
    async with holdfast.open_store(home / "agents.db") as store, store.session("order-42") as session:
        left = [effect.call.id for effect in session.in_doubt]
        if left:
            print(f"in doubt: {left}; asking the bank …")
            await session.settle(registry, deps=bank)
        result = await registry.dispatch(
            "charge", {"order": "42", "cents": 500}, call_id="c1", session=session, deps=bank
        )
        print(f"result: {result.content}")
        await session.checkpoint()


def main() -> None:
    """Die once, carry on once, and count the payments."""
    if len(sys.argv) > 1:
        anyio.run(work, Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, directory]
        killed = subprocess.run(command, env={**os.environ, "DIE_IN_CHARGE": "1"}, check=False)
        print(f"the first process ended with {signal.Signals(-killed.returncode).name}")
        subprocess.run(command, check=True)
        payments = Bank(Path(directory) / "bank.txt").lines()
        print(f"payments at the bank: {len(payments)}")
        assert len(payments) == 1


if __name__ == "__main__":
    main()
