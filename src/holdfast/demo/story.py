"""The story: an agent pays and is killed, asks the bank, writes and is killed, asks a person, and ends.

Nothing here sleeps to hit a moment: a process says what has landed in the world and waits to be killed.
"""

from __future__ import annotations

import signal
from pathlib import Path

from rich.markup import escape

from .. import blocking
from ..cli.console import SafeText
from ..records import Doubt
from .agent import SESSION, TASK
from .children import Child, Children
from .display import Look, make_code, make_facts
from .next_steps import list_commands
from .process import Told
from .timeline import Timeline
from .verdict import make_books, tell_books
from .world import World

_MODEL_DELAY_S = 0.25


class Stage:
    """The play, act by act."""

    def __init__(self, database: Path, *, fast: bool) -> None:
        self._database, self._world, self._look = database, World(database), Look(fast=fast)
        self._children = Children(database, delay_s=0.0 if self._look.hurried else _MODEL_DELAY_S)

    def play(self) -> None:
        """All of it."""
        self._look.title(
            "holdfast",
            "An agent is to refund an order and to write a letter. Its process is killed twice, each time "
            "[bold]after the deed and before the record of it[/]. Nothing is lost, and nothing happens "
            "twice.\n\n"
            "[dim]The processes are real, and so is SIGKILL. The model is a script: no key, no network.[/]",
        )
        self._pay()
        self._verify()
        self._ask_a_person()
        self._finish()
        self._look_back()
        self._what_next()

    # -- the acts ------------------------------------------------------------------------------------

    def _pay(self) -> None:
        with self._children.start("--task", "--stop-after", "paid") as child:
            self._open(child, "begins")
            self._look.line(child.style, "◀", "bold", SafeText(TASK, style="bold"))
            self._follow(child, until="paid")
            self._kill(child, "The bank has paid. The journal says only that it was about to be asked.")

    def _verify(self) -> None:
        with self._children.start("--stop-after", "posted") as child:
            self._open(child, "resumes")
            self._look.say("[dim]Pay again, or not? pay_refund has a `verify`: that is asked first.[/]")
            self._follow(child, until="posted")
            self._kill(child, "The letter is in the box. Nobody can ask a letter box what is in it.")

    def _ask_a_person(self) -> None:
        with self._children.start() as child:
            self._open(child, "resumes")
            self._look.say("[dim]Send it again, or not? send_letter has no `verify`, and nobody guesses.[/]")
            self._follow(child, until=None)
        self._look.pause(0.6)
        note = "the post room remembers it"
        with blocking.open_store(self._database, create=False) as store:
            (doubt,) = store.in_doubt()
            self._show_inbox(doubt, note)
            answer = store.resolve(
                doubt.session, doubt.effect.call.id, "landed", by="you", result="posted", note=note
            )
            self._look.line("yellow", "✓", "bold green", f"{answer}, by you, on record")

    def _finish(self) -> None:
        with self._children.start() as child:
            self._open(child, "resumes")
            self._follow(child, until=None)
        self._look.pause(0.5)

    def _look_back(self) -> None:
        look = self._look
        with blocking.open_store(self._database, create=False) as store:
            entries = list(store.tail(SESSION, follow=False))
        look.act("What the world's own books say", "green")
        look.console.print(make_books(self._world, self._children.born))
        look.say(tell_books(self._world, entries))
        look.pause(0.8)
        look.act("What the journal says", "cyan")
        look.console.print(Timeline(self._children.born, narrow=look.narrow).read(entries))
        look.pause(0.5)

    def _what_next(self) -> None:
        self._look.act("The database stays. Try:", "cyan")
        for command, why in list_commands(self._database):
            self._look.command(command, why)

    # -- what they are made of -----------------------------------------------------------------------

    def _open(self, child: Child, what: str) -> None:
        self._look.pause(1.0)  # The process starts meanwhile, and what it tells waits in its pipe.
        self._look.act(f"The {child.name} process {what} [dim](pid {child.pid})[/]", child.style)

    def _follow(self, child: Child, *, until: str | None) -> None:
        """Show what the process tells, to its end or up to the moment when it must be killed."""
        for told in child.listen():
            self._show(child, told)
            if told.kind == until:
                return
        if until is not None or child.status != 0:
            raise SystemExit(f"the demo's own process ended with status {child.status}")

    def _kill(self, child: Child, meanwhile: str) -> None:
        self._look.pause(0.5)
        child.kill()
        with blocking.open_store(self._database, create=False) as store:
            doubts = [
                escape(f"{doubt.effect.tool} (entry {doubt.effect.issued})") for doubt in store.in_doubt()
            ]
        assert child.status is not None
        self._look.killed(
            signal.Signals(-child.status).name,
            f"[bold]The {child.name} process is gone[/] (pid {child.pid}, exit status {child.status})",
            meanwhile,
            *(f"[bold yellow]In doubt: {doubt}[/]" for doubt in doubts),
        )

    def _show_inbox(self, doubt: Doubt, note: str) -> None:
        effect = doubt.effect
        facts = make_facts(
            ("session", doubt.session),
            ("call", f"{effect.call.id}: {effect.tool} of {effect.at:%H:%M:%S} UTC"),
            ("why", effect.why),
        )
        look = self._look
        look.act("The inbox: a person is asked", "yellow")
        look.panel("in doubt", facts, style="yellow")
        look.pause(0.6)
        look.say(f"You go and see: {note}. So you say, from any process:")
        look.console.print(
            make_code(
                f'store.resolve("{doubt.session}", "{effect.call.id}", "landed", by="you",\n'
                f'              result="posted", note="{note}")'
            )
        )
        look.pause(0.6)

    def _show(self, child: Child, told: Told) -> None:
        look, whose = self._look, child.style
        match told.kind:
            case "said":
                look.line(whose, "“", "bold", SafeText(told.text, style="italic"))
            case "called":
                look.line(whose, "▸", "magenta", told.text)
            case "result":
                look.line(whose, "✓", "green", SafeText(told.text, style="dim"))
            case "kept":
                look.line(whose, "◆", "cyan", SafeText(told.text, style="dim"))
            case "paid" | "posted":
                look.line(whose, "●", "bold yellow", SafeText(f"the world: {told.text}", style="bold yellow"))
            case "found":
                found = f"verify asks the bank: {told.text} is in its book, so it is not run again"
                look.line(whose, "✓", "bold green", SafeText(found, style="bold green"))
            case "missed":
                look.line(whose, "✗", "yellow", f"verify asks the bank: {told.text} is not in its book")
            case "doubt":
                refused = f"not run: {told.text} is in doubt, and only a person can tell"
                look.line(whose, "?", "bold yellow", SafeText(refused, style="bold yellow"))
            case "completed":
                look.panel(f"★ completed, ${told.usd:.4f} in all", SafeText(told.text), style="bold green")
            case "waiting":
                look.line(whose, "…", "bold yellow", SafeText("waiting for a person", style="bold yellow"))
            case _:
                raise AssertionError(told)
