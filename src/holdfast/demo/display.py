"""The output of the demo: one console, a few kinds of lines, and pauses to read them."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..cli.console import SafeConsole, SafeText
from ..system import threads

_NARROW = 70


class Display:
    """Prints the demo. Without a terminal there are no pauses and no colours."""

    def __init__(self, *, fast: bool) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self.console = SafeConsole(markup=True)
        self.fast = fast or not self.console.is_terminal

    @property
    def narrow(self) -> bool:
        """Whether tables must leave out columns."""
        return self.console.width < _NARROW

    def pause(self, seconds: float) -> None:
        """Give people time to read."""
        if not self.fast:
            threads.sleep(seconds)

    def title(self, text: str, subtitle: str) -> None:
        """Print the title. Texts of the demo itself may have markup."""
        self.console.print()
        self.console.print(
            Panel(Text.from_markup(subtitle), title=f"[bold]{text}[/]", border_style="cyan", padding=(1, 2))
        )

    def section(self, text: str, style: str) -> None:
        """Print the heading of the next part."""
        self.console.print()
        self.console.print(Rule(f"[bold]{text}[/]", align="left", style=style))

    def say(self, text: str) -> None:
        """Print an explanation."""
        self._hang(Text("  "), Text("  "), Text.from_markup(text))

    def line(self, process_style: str, sign: str, style: str, text: str | Text) -> None:
        """Print an event of the process with this style."""
        bar = Text("┃ ", style=process_style)
        first = Text.assemble(bar, (f"{sign} ", style))
        self._hang(first, Text.assemble(bar, "  "), text if isinstance(text, Text) else SafeText(text))

    def killed(self, title: str, *lines: str) -> None:
        """Print that a process was killed."""
        body = Group(*(Text.from_markup(line) for line in lines))
        self.console.print(
            Panel(
                body, title=f"[bold white on red] ✗ {title} [/]", title_align="left", border_style="bold red"
            )
        )

    def panel(self, title: str, *parts: RenderableType, style: str) -> None:
        """Print a panel."""
        self.console.print(
            Panel(Group(*parts), title=f"[bold]{title}[/]", title_align="left", border_style=style)
        )

    def command(self, command: str, why: str) -> None:
        """Print a command to copy: without a frame, and wrapped only by the terminal."""
        self.console.print(SafeText(f"# {why}", style="dim"), soft_wrap=True)
        self.console.print(SafeText(command, style="bold"), soft_wrap=True)

    def _hang(self, first: Text, rest: Text, text: Text) -> None:
        """Print text with a prefix before its first line, and another before the lines that it wraps to."""
        for number, line in enumerate(text.wrap(self.console, self.console.width - len(first))):
            line.rstrip()
            self.console.print(Text.assemble(rest if number else first, line))


def make_table() -> Table:
    """An empty table, as wide as the terminal."""
    return Table(expand=True, box=box.ROUNDED, header_style="bold", border_style="dim")


def make_code(source: str) -> Syntax:
    """Python source, in the colours of the terminal."""
    return Syntax(
        source, "python", theme="ansi_dark", background_color="default", word_wrap=True, padding=(0, 2)
    )


def make_facts(*rows: tuple[str, str]) -> Table:
    """A table of names and values."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in rows:
        grid.add_row(name, SafeText(value))
    return grid
