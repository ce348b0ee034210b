"""What the agent changes: a bank and a post office, each with a book of its own that holdfast never reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec


class BookLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a book. `by` is the process that caused it."""

    what: str
    to: str
    cents: int = 0
    key: str = ""
    by: int


_decode_line = msgspec.json.Decoder(BookLine).decode


class Book:
    """An append-only file of lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, line: BookLine) -> None:
        """Append a line; durable on return."""
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[BookLine]:
        """All lines."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        return [_decode_line(line) for line in lines]


class World:
    """The books beside a database. `on_event` gets each event: `paid`, `posted`, `found`, `missed`."""

    def __init__(
        self, database: Path, on_event: Callable[[str, str], None] = lambda kind, text: None
    ) -> None:
        self.bank = Book(database.with_suffix(".bank.jsonl"))
        self.post = Book(database.with_suffix(".post.jsonl"))
        self._on_event = on_event

    def pay(self, customer: str, cents: int, *, key: str) -> str:
        """Move the money; return a receipt. Like many services, it pays again if it is asked again."""
        self.bank.write(BookLine(what="refund", to=customer, cents=cents, key=key, by=os.getpid()))
        self._on_event("paid", f"${cents / 100:.2f} to {customer}, key {key[:8]}")
        return _receipt(key)

    def find_payment(self, key: str) -> str | None:
        """The receipt of the payment with this key, if there is one."""
        found = any(line.key == key for line in self.bank.read())
        self._on_event("found" if found else "missed", f"key {key[:8]}")
        return _receipt(key) if found else None

    def send(self, customer: str, text: str) -> None:
        """Drop a letter into the letter box, which cannot be asked what is in it."""
        self.post.write(BookLine(what=f"letter: {text}", to=customer, by=os.getpid()))
        self._on_event("posted", f"a letter to {customer}")


def _receipt(key: str) -> str:
    return f"receipt {key[:8]}"
