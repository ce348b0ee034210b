"""Output of all commands: tables and text for people, JSON for programs, messages on stderr.

Titles, names, arguments, results and errors come from users, models and tools. Everything that people read
is printed here, and `visible` makes it plain text: no markup, no escape sequence that moves the cursor or
writes the clipboard, no character that reorders or hides its neighbours. JSON has exactly what is stored.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from ..formatting import BEYOND_ASCII
from ..formatting import visible as visible
from .exit_codes import Exit, Stop

NARROW: Final = 90
"""Below this many columns, tables leave out what is least important."""

_PIPED: Final = 200
"""The width for a pipe, which has none of its own."""

STANDING_STYLES: Final = {
    "running": "cyan",
    "held": "cyan",
    "completed": "green",
    "interrupted": "bold red",
    "failed": "red",
    "waiting": "yellow",
    "cancelled": "dim",
    "replica": "dim",
}
RUN_STYLES: Final = {**STANDING_STYLES, "paused": "yellow"}

_HIDDEN_IN_JSON: Final = re.compile(f"[{BEYOND_ASCII}]")


class SafeText(Text):
    """Styled text without control characters or markup."""

    def __init__(self, text: str = "", style: StyleType = "", *, lines: bool = False) -> None:
        super().__init__(visible(text, lines=lines), style)

    def append(self, text: Text | str, style: StyleType | None = None) -> SafeText:
        """Add escaped text at the end."""
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self


class SafeConsole(Console):
    """A console that prints strings without markup, and no control characters but its own styles.

    Strings are escaped before layout, and all other rendered text afterwards.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None, markup: bool = False) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, emoji=False, markup=markup)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a string."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape all segments but those with rich's own control codes."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text, lines=True), segment.style)

    def on_broken_pipe(self) -> None:
        """Leave it to the entry point, which has an exit code for it; rich would exit with an error."""
        raise BrokenPipeError


def stdout() -> Console:
    """The console for results. Colours only on terminals, as `NO_COLOR` and `TERM` say."""
    console = SafeConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = SafeConsole(width=_PIPED)
    return console


def stderr() -> Console:
    """The console for messages."""
    return SafeConsole(stderr=True)


def say(text: str) -> None:
    """Print a message on stderr. Lines after the first are indented."""
    message = SafeText(text.replace("\n", "\n  "), lines=True)
    stderr().print(message, soft_wrap=True)


def print_text(text: str, *, lines: bool = False, end: str = "\n") -> None:
    """Print plain text on stdout."""
    sys.stdout.write(visible(text, lines=lines) + end)
    sys.stdout.flush()


def is_narrow(console: Console) -> bool:
    """Whether tables must leave out columns."""
    return console.width < NARROW


def print_json(value: Any) -> None:
    """Print one object, indented; times in UTC."""
    sys.stdout.write(_as_json(msgspec.json.format(msgspec.json.encode(value), indent=2)) + "\n")


def print_line(value: Any) -> None:
    """Print one object on one line, and flush, for readers that follow."""
    sys.stdout.write(_as_json(msgspec.json.encode(value)) + "\n")
    sys.stdout.flush()


def escape_json(text: str) -> str:
    """Escape the control characters that JSON permits unescaped."""
    return text if text.isascii() and "\x7f" not in text else _HIDDEN_IN_JSON.sub(_escape_in_json, text)


def _as_json(encoded: bytes) -> str:
    return escape_json(encoded.decode())


def _escape_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def make_table(*columns: str, title: str | None = None) -> Table:
    """An empty table. A column whose name ends with `>` is flush right; one that ends with `…` wraps."""
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
    """Print names and values, one a line, without the empty ones."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        if value:
            grid.add_row(name, SafeText(value) if isinstance(value, str) else value)
    console.print(grid)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless `yes`; raise `Stop` if the answer is not yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Stop(Exit.USAGE, f"{question} There is no terminal to ask on: say --yes")
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Stop(Exit.ERROR, "nothing was done")
