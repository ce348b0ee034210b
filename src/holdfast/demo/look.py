"""How the demo looks: one console, a few kinds of line, and time to read them."""

from __future__ import annotations

import sys
import time
from io import TextIOWrapper

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

_NARROW = 64


class Look:
    """Speaks to the audience. Without a terminal there is nobody to wait for, and nothing is in colour."""

    def __init__(self, pace: float) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self.console = Console(highlight=False)
        self.pace = pace if self.console.is_terminal else 0.0

    @property
    def narrow(self) -> bool:
        """Whether columns must be saved."""
        return self.console.width < _NARROW

    def pause(self, seconds: float) -> None:
        """Give people time to read."""
        time.sleep(seconds * self.pace)

    def title(self, text: str, subtitle: str) -> None:
        """What this is."""
        self.console.print()
        self.console.print(
            Panel(Text(subtitle), title=f"[bold]{text}[/]", border_style="cyan", padding=(1, 2))
        )

    def act(self, number: int, text: str) -> None:
        """The next part begins."""
        self.console.print()
        self.console.print(Rule(f"[bold]{number}. {text}[/]", align="left", style="cyan"))
        self.pause(0.4)

    def say(self, text: str) -> None:
        """Narration."""
        self.console.print(Padding(Text.from_markup(text), (0, 0, 0, 1)))

    def line(self, sign: str, style: str, text: Text | str) -> None:
        """Something happened."""
        grid = Table.grid(padding=(0, 1))
        grid.add_column(style=style, width=2, justify="right")
        grid.add_column()
        grid.add_row(sign, text if isinstance(text, Text) else Text(text))
        self.console.print(grid)

    def killed(self, what: str) -> None:
        """The moment it is all about."""
        self.console.print()
        self.console.print(Panel(Text(what, style="bold"), title="SIGKILL", border_style="red", style="red"))

    def panel(self, title: str, *parts: RenderableType, style: str = "green") -> None:
        """Something to look at for a while."""
        self.console.print()
        self.console.print(
            Panel(Group(*parts), title=f"[bold]{title}[/]", title_align="left", border_style=style)
        )
