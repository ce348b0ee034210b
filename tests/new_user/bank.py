"""The world outside of the programs: a bank, whose book is a file in the working directory.

Where there is a file `power-cut`, the process is killed right after the next payment, once.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

BOOK = Path("bank.txt")
POWER_CUT = Path("power-cut")


def pay_back(order: str, cents: int) -> str:
    """Pay money back. It is done when this returns, or the process has ended in it."""
    with BOOK.open("a") as book:
        book.write(f"{cents} cents for {order}\n")
    if POWER_CUT.exists():
        POWER_CUT.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"refunded {cents} cents for {order}"


def list_payments() -> list[str]:
    """What is in the book."""
    return BOOK.read_text().splitlines() if BOOK.exists() else []
