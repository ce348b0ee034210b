"""How the demo looks: one console, a few kinds of line, and time to read them."""

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


class Look:
    """Speaks to the audience. Without a terminal there is nobody to wait for, and nothing is in colour."""

    def __init__(self, *, fast: bool) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self.console = SafeConsole(markup=True)
        self.hurried = fast or not self.console.is_terminal

    @property
    def narrow(self) -> bool:
        """Whether columns must be saved."""
        return self.console.width < _NARROW

    def pause(self, seconds: float) -> None:
        """Give people time to read."""
        if not self.hurried:
            threads.sleep(seconds)

    def title(self, text: str, subtitle: str) -> None:
        """What this is. Like all that the play itself says, it may have markup."""
        self.console.print()
        self.console.print(
            Panel(Text.from_markup(subtitle), title=f"[bold]{text}[/]", border_style="cyan", padding=(1, 2))
        )

    def act(self, text: str, style: str) -> None:
        """The next part begins."""
        self.console.print()
        self.console.print(Rule(f"[bold]{text}[/]", align="left", style=style))

    def say(self, text: str) -> None:
        """Narration."""
        self._hang(Text("  "), Text("  "), Text.from_markup(text))

    def line(self, whose: str, sign: str, style: str, text: str | Text) -> None:
        """Something happened in the process whose colour this is."""
        bar = Text("┃ ", style=whose)
        first = Text.assemble(bar, (f"{sign} ", style))
        self._hang(first, Text.assemble(bar, "  "), text if isinstance(text, Text) else SafeText(text))

    def killed(self, title: str, *lines: str) -> None:
        """The moment it is all about."""
        body = Group(*(Text.from_markup(line) for line in lines))
        self.console.print(
            Panel(
                body, title=f"[bold white on red] ✗ {title} [/]", title_align="left", border_style="bold red"
            )
        )

    def panel(self, title: str, *parts: RenderableType, style: str) -> None:
        """Something to look at for a while."""
        self.console.print(
            Panel(Group(*parts), title=f"[bold]{title}[/]", title_align="left", border_style=style)
        )

    def command(self, command: str, why: str) -> None:
        """Something to copy: no frame around it, and broken by the terminal alone."""
        self.console.print(SafeText(f"# {why}", style="dim"), soft_wrap=True)
        self.console.print(SafeText(command, style="bold"), soft_wrap=True)

    def _hang(self, first: Text, rest: Text, text: Text) -> None:
        """Text with something before its first line, and before those that it is broken into."""
        for number, line in enumerate(text.wrap(self.console, self.console.width - len(first))):
            line.rstrip()
            self.console.print(Text.assemble(rest if number else first, line))


def make_table() -> Table:
    """An empty one, as wide as the terminal."""
    return Table(expand=True, box=box.ROUNDED, header_style="bold", border_style="dim")


def make_code(source: str) -> Syntax:
    """Python, in the colours of the terminal."""
    return Syntax(
        source, "python", theme="ansi_dark", background_color="default", word_wrap=True, padding=(0, 2)
    )


def make_facts(*rows: tuple[str, str]) -> Table:
    """Names and what they stand for."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in rows:
        grid.add_row(name, SafeText(value))
    return grid
