"""What commands speak through: tables for people, JSON for programs, messages on stderr.

Titles, names, arguments, results and errors were written by users, models and tools. Everything that is shown
to people is printed here, and `visible` makes sure that it is only text: no markup, no escape sequence that
moves the cursor or writes the clipboard, no character that reorders or hides what is beside it. What
programs read (`--json`) says exactly the same as the store.
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

from .exit_codes import Exit, Stop

NARROW: Final = 90
"""Below this many columns, tables leave out what is least important."""

_PIPED: Final = 200
"""The width for a pipe, which has none: wide enough to cut nothing that fits a line."""


_BEYOND_ASCII: Final = (
    "\x7f-\x9f"  # DEL and the C1 controls
    "\xad\u061c\u180e\u200b\u200e\u200f"  # invisible, or marks of a direction
    "\u2028-\u202e\u2060-\u206f"  # line separators, overrides of the direction, invisible operators
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # byte order mark, annotations, invisible copies of ASCII
)
_HIDDEN: Final = re.compile(f"[\\x00-\\x1f{_BEYOND_ASCII}\\ud800-\\udfff]")
_HIDDEN_IN_LINES: Final = re.compile(f"[\\x00-\\x08\\x0b-\\x1f{_BEYOND_ASCII}\\ud800-\\udfff]")
_HIDDEN_IN_JSON: Final = re.compile(f"[{_BEYOND_ASCII}]")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, lines: bool = False) -> str:
    """The text with every character that a terminal would act on written as an escape: `\\x1b`, `\\u202e`.

    With `lines`, ends of lines and tabs stay: for text that has lines of its own.
    """
    if text.isascii() and text.isprintable():
        return text
    if lines:
        return _HIDDEN_IN_LINES.sub(_escape, text.replace("\r\n", "\n"))
    return _HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    one = found[0]
    code = ord(one)
    if code < 0x100:
        return _ESCAPES.get(one) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class SafeText(Text):
    """Styled text of which no character is a control. Nothing in it is markup."""

    def __init__(self, text: str = "", style: StyleType = "", *, lines: bool = False) -> None:
        super().__init__(visible(text, lines=lines), style)

    def append(self, text: Text | str, style: StyleType | None = None) -> SafeText:
        """Add to its end."""
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self


class SafeConsole(Console):
    """Prints strings as they are, without markup, and no control character but its own styles.

    Strings are made visible before they are laid out. What else is rendered is looked at once more.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None, markup: bool = False) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, emoji=False, markup=markup)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as text."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Anything as segments; those with a control code are rich's own."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text, lines=True), segment.style)

    def on_broken_pipe(self) -> None:
        """Whoever started the command knows what that means; by itself, rich would call it an error."""
        raise BrokenPipeError


def stdout() -> Console:
    """For what was asked for. Colours on terminals only, as `NO_COLOR` and `TERM` have it."""
    console = SafeConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = SafeConsole(width=_PIPED)
    return console


def say(text: str) -> None:
    """A message beside the output. Its first line alone begins at the margin."""
    said = SafeText(text.replace("\n", "\n  "), lines=True)
    SafeConsole(stderr=True).print(said, soft_wrap=True)


def print_text(text: str, *, lines: bool = False, end: str = "\n") -> None:
    """Plain text that was asked for."""
    sys.stdout.write(visible(text, lines=lines) + end)
    sys.stdout.flush()


def is_narrow(console: Console) -> bool:
    """Whether columns must be saved."""
    return console.width < NARROW


def print_json(value: Any) -> None:
    """One object; times in UTC."""
    sys.stdout.write(_as_json(msgspec.json.format(msgspec.json.encode(value), indent=2)) + "\n")


def print_line(value: Any) -> None:
    """One object on a line of its own, for those who follow."""
    sys.stdout.write(_as_json(msgspec.json.encode(value)) + "\n")
    sys.stdout.flush()


def escape_json(text: str) -> str:
    """The same JSON, with the controls that JSON allows as they are written as escapes."""
    return text if text.isascii() and "\x7f" not in text else _HIDDEN_IN_JSON.sub(_escape_in_json, text)


def _as_json(encoded: bytes) -> str:
    return escape_json(encoded.decode())


def _escape_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


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
            grid.add_row(name, SafeText(value) if isinstance(value, str) else value)
    console.print(grid)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if a person agrees, on a terminal, or has agreed beforehand."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Stop(Exit.USAGE, f"{question} Nobody is here to be asked: say --yes")
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Stop(Exit.ERROR, "nothing was done")
