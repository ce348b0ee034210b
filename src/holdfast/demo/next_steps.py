"""What to try on the database that stays."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .agent import SESSION
from .world import World


def list_commands(database: Path) -> Iterator[tuple[str, str]]:
    """Commands for a shell, each with what it is good for. The first one leads to where the others work."""
    world, shell, name = World(database), find_shell(), shlex.quote(database.name)
    books = shlex.join([world.bank.path.name, world.post.path.name])
    url = shlex.quote(f"sqlite:{database.name}")
    place, python = shlex.quote(str(database.parent)), shlex.quote(sys.executable)
    yield f"cd {place}; py={python}; export HOLDFAST_STORE={url}", "everything is here"
    yield f"$py -m holdfast show {SESSION}", "the whole story: who held it, what it did, where it broke off"
    yield f"cat {books}", "the world's own books"
    yield f'{shell} {name} "SELECT tool, attempt, status FROM effects"', "what was done to the world"
    yield f'{shell} {name} "SELECT step, role, text FROM messages"', "what was said"
    yield f'{shell} {name} "SELECT run, status, reason FROM runs"', "the four lives; two have no end"
    yield f"$py -m holdfast.demo.process {name}", "resume once more: the same outcome, nothing is run"
    yield (
        f"$py -m holdfast fork {SESSION} --version 1",
        "what if? a session of its own, from before the payment",
    )


def find_shell() -> str:
    """A shell that understands the views: SQLite's own if it is current, else the one that apsw brings."""
    with suppress(OSError, ValueError):
        version = subprocess.run(["sqlite3", "-version"], capture_output=True, text=True).stdout
        if [int(part) for part in version.split()[0].split(".")] >= [3, 38]:
            return "sqlite3"
    return "$py -m apsw"
