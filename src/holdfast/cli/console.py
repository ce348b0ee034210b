"""What commands speak through: tables for people, JSON for programs, messages on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from .exits import Exit, Stop

NARROW: Final = 90
"""Below this many columns, tables leave out what is least important."""

_PIPED: Final = 200
"""The width for a pipe, which has none: wide enough to cut nothing that fits a line."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever started the command knows what that means; by itself, rich would call it an error."""
        raise BrokenPipeError


def stdout() -> Console:
    """For what was asked for. Colours on terminals only, as `NO_COLOR` and `TERM` have it."""
    console = _Console(highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = _Console(highlight=False, emoji=False, width=_PIPED)
    return console


def say(text: str) -> None:
    """A message beside the output."""
    _Console(stderr=True, highlight=False, emoji=False).print(Text(text), soft_wrap=True)


def is_narrow(console: Console) -> bool:
    """Whether columns must be saved."""
    return console.width < NARROW


def print_json(value: Any) -> None:
    """One object; times in UTC."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_line(value: Any) -> None:
    """One object on a line of its own, for those who follow."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def make_table(*columns: str, title: str | None = None) -> Table:
    """A plain table. A column whose name ends with `>` is flush right, with `…` may be cut, else is whole."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    for name in columns:
        cut = name.endswith("…")
        right = name.endswith(">")
        table.add_column(
            name.rstrip("…>"),
            justify="right" if right else "left",
            no_wrap=not cut,
            overflow="fold" if cut else "ellipsis",
            ratio=1 if cut else None,
        )
    return table


def print_facts(console: Console, rows: Sequence[tuple[str, RenderableType | str | None]]) -> None:
    """Names and values, one a line; what is empty is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        if value:
            grid.add_row(name, Text(value) if isinstance(value, str) else value)
    console.print(grid)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if a person agrees, on a terminal, or has agreed beforehand."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Stop(Exit.USAGE, f"{question} Nobody is here to be asked: say --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Stop(Exit.ERROR, "nothing was done")
