"""The scenario: an agent pays and is killed, verifies, sends a letter and is killed, asks a person, and ends.

Nothing here sleeps to hit a moment: a process reports what happened in the world and waits to be killed.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from rich.markup import escape
from rich.table import Table

from .. import blocking
from ..cli.console import SafeText
from ..cli.formatting import count
from ..cli.timeline import Timeline, make_timeline_table
from ..core import entries as kinds
from ..records import Doubt, Entry
from .agent import SESSION, TASK
from .display import Display, make_code, make_facts, make_table
from .process import ProcessEvent
from .world import BookLine, World

_MODEL_DELAY_S = 0.25
_ORDINALS = ("1st", "2nd", "3rd", "4th")
_STYLES = ("cyan", "magenta", "blue", "green")
_decode_event = msgspec.json.Decoder(ProcessEvent).decode


class Scenario:
    """All of the demo, part by part."""

    def __init__(self, database: Path, *, fast: bool) -> None:
        self._database, self._world, self._display = database, World(database), Display(fast=fast)
        self._children = Children(database, delay_s=0.0 if self._display.fast else _MODEL_DELAY_S)

    def play(self) -> None:
        """Play all parts."""
        self._display.title(
            "holdfast",
            "An agent refunds an order and sends a letter. Its process is killed twice, each time "
            "[bold]after the effect and before its record[/]. Nothing is lost, and nothing happens "
            "twice.\n\n"
            "[dim]The processes are real, and so is SIGKILL. The model is a script: no key, no network.[/]",
        )
        self._pay()
        self._verify()
        self._ask_a_person()
        self._finish()
        self._compare_books_and_journal()
        self._list_commands()

    # -- the parts -----------------------------------------------------------------------------------

    def _pay(self) -> None:
        with self._children.start("--task", "--stop-after", "paid") as child:
            self._begin(child, "begins")
            self._display.line(child.style, "◀", "bold", SafeText(TASK, style="bold"))
            self._follow(child, until="paid")
            self._kill(child, "The bank has paid. The journal has only the intent to pay.")

    def _verify(self) -> None:
        with self._children.start("--stop-after", "posted") as child:
            self._begin(child, "resumes")
            self._display.say("[dim]Pay again, or not? pay_refund has a `verify`: it is called first.[/]")
            self._follow(child, until="posted")
            self._kill(child, "The letter is in the box. A letter box cannot be asked what is in it.")

    def _ask_a_person(self) -> None:
        with self._children.start() as child:
            self._begin(child, "resumes")
            self._display.say("[dim]Send it again, or not? send_letter has no `verify`: a person decides.[/]")
            self._follow(child, until=None)
        self._display.pause(0.6)
        note = "the post room remembers it"
        with blocking.open_store(self._database, create=False) as store:
            (doubt,) = store.in_doubt()
            self._show_doubt(doubt, note)
            answer = store.resolve(
                doubt.session, doubt.effect.call.id, "landed", by="you", result="posted", note=note
            )
            self._display.line("yellow", "✓", "bold green", f"{answer} by you, recorded")

    def _finish(self) -> None:
        with self._children.start() as child:
            self._begin(child, "resumes")
            self._follow(child, until=None)
        self._display.pause(0.5)

    def _compare_books_and_journal(self) -> None:
        display, children = self._display, self._children.started
        with blocking.open_store(self._database, create=False) as store:
            entries = list(store.tail(SESSION, follow=False))
            effects = store.load(SESSION).facts.effects.rows
        display.section("The books of the bank and the post office", "green")
        display.console.print(make_books_table(self._world, children))
        display.say(compare(self._world, entries))
        display.pause(0.8)
        display.section("The journal", "cyan")
        timeline = Timeline.of(entries, effects, held=False)
        # A column names the holder instead of rows for the leases.
        hidden = ("session", "lease", "other")
        timeline.moments[:] = [moment for moment in timeline.moments if moment.kind not in hidden]
        holders = {lease.name: label_holder(lease.name, children) for lease in timeline.leases}
        display.console.print(make_timeline_table(timeline, narrow=display.narrow, holders=holders))
        display.pause(0.5)

    def _list_commands(self) -> None:
        self._display.section("The database stays. Try:", "cyan")
        for command, why in list_commands(self._database):
            self._display.command(command, why)

    # -- what they are made of -----------------------------------------------------------------------

    def _begin(self, child: Child, what: str) -> None:
        self._display.pause(1.0)  # The process starts meanwhile; its events wait in the pipe.
        self._display.section(f"The {child.name} process {what} [dim](pid {child.pid})[/]", child.style)

    def _follow(self, child: Child, *, until: str | None) -> None:
        """Show the events of a process, to its end or to the event after which it must be killed."""
        for event in child.listen():
            self._show(child, event)
            if event.kind == until:
                return
        if until is not None or child.status != 0:
            raise SystemExit(f"the demo's own process ended with status {child.status}")

    def _kill(self, child: Child, situation: str) -> None:
        self._display.pause(0.5)
        child.kill()
        with blocking.open_store(self._database, create=False) as store:
            doubts = [
                escape(f"{doubt.effect.tool} (entry {doubt.effect.issued})") for doubt in store.in_doubt()
            ]
        assert child.status is not None
        self._display.killed(
            signal.Signals(-child.status).name,
            f"[bold]The {child.name} process is gone[/] (pid {child.pid}, exit status {child.status})",
            situation,
            *(f"[bold yellow]In doubt: {doubt}[/]" for doubt in doubts),
        )

    def _show_doubt(self, doubt: Doubt, note: str) -> None:
        effect = doubt.effect
        facts = make_facts(
            ("session", doubt.session),
            ("call", f"{effect.call.id}: {effect.tool} of {effect.at:%H:%M:%S} UTC"),
            ("why", effect.why),
        )
        display = self._display
        display.section("A person is asked", "yellow")
        display.panel("in doubt", facts, style="yellow")
        display.pause(0.6)
        display.say(f"You find out: {note}. So you say, from any process:")
        display.console.print(
            make_code(
                f'store.resolve("{doubt.session}", "{effect.call.id}", "landed", by="you",\n'
                f'              result="posted", note="{note}")'
            )
        )
        display.pause(0.6)

    def _show(self, child: Child, event: ProcessEvent) -> None:
        display, style, text = self._display, child.style, event.text
        match event.kind:
            case "said":
                display.line(style, "“", "bold", SafeText(text, style="italic"))
            case "called":
                display.line(style, "▸", "magenta", text)
            case "result":
                display.line(style, "✓", "green", SafeText(text, style="dim"))
            case "checkpoint":
                display.line(style, "◆", "cyan", SafeText(text, style="dim"))
            case "paid" | "posted":
                display.line(style, "●", "bold yellow", SafeText(f"the world: {text}", style="bold yellow"))
            case "found":
                found = f"verify asks the bank: {text} is in its book, so it is not paid again"
                display.line(style, "✓", "bold green", SafeText(found, style="bold green"))
            case "missed":
                display.line(style, "✗", "yellow", f"verify asks the bank: {text} is not in its book")
            case "doubt":
                refused = f"not run: {text} is in doubt, and only a person can tell"
                display.line(style, "?", "bold yellow", SafeText(refused, style="bold yellow"))
            case "completed":
                display.panel(f"★ completed, ${event.usd:.4f} in all", SafeText(text), style="bold green")
            case "waiting":
                display.line(style, "…", "bold yellow", SafeText("waiting for a person", style="bold yellow"))
            case _:
                raise AssertionError(event)


# -- processes ----------------------------------------------------------------------------------------


class Child:
    """A process that runs the agent, as its parent sees it."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.name, self.style = _ORDINALS[number], _STYLES[number]
        # In a process group of its own: a Ctrl-C reaches only the parent, which then ends the child.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; negative if a signal ended it."""
        return self._process.returncode

    def listen(self) -> Iterator[ProcessEvent]:
        """Its events, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield _decode_event(line)
        self._process.wait()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End it if it still runs, and close its pipes."""
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Children:
    """All child processes, in the order of their start."""

    def __init__(self, database: Path, *, delay_s: float) -> None:
        program = [sys.executable, "-m", "holdfast.demo.process"]
        self._command = [*program, str(database), "--delay-s", str(delay_s)]
        self.started: list[Child] = []

    @contextmanager
    def start(self, *arguments: str) -> Iterator[Child]:
        """Start the next one. It does not outlive the block."""
        child = Child(len(self.started), [*self._command, *arguments])
        self.started.append(child)
        try:
            yield child
        finally:
            child.close()


# -- what happened ------------------------------------------------------------------------------------


def make_books_table(world: World, children: Sequence[Child]) -> Table:
    """All lines of both books."""
    names = {child.pid: SafeText(child.name, style=child.style) for child in children}
    table = make_table()
    for title in ("book", "what", "to"):
        table.add_column(title)
    table.add_column("amount", justify="right", no_wrap=True)
    table.add_column("process", no_wrap=True)
    books: list[tuple[str, list[BookLine]]] = [("bank", world.bank.read()), ("post", world.post.read())]
    for book, lines in books:
        for line in lines:
            amount = f"${line.cents / 100:.2f}" if line.cents else ""
            what, to = SafeText(line.what), SafeText(line.to)
            table.add_row(book, what, to, amount, names.get(line.by, str(line.by)))
    return table


def compare(world: World, entries: Sequence[Entry]) -> str:
    """What happened by the books, and what would have happened without a ledger."""
    payments, letters = len(world.bank.read()), len(world.post.read())
    naive_payments, naive_letters = (
        count_naive_executions(entries, "pay_refund"),
        count_naive_executions(entries, "send_letter"),
    )
    return (
        f"[bold green]{count(payments, 'payment')}, {count(letters, 'letter')}.[/] "
        f"By the journal, {naive_payments} processes came to the payment without a result, and "
        f"{naive_letters} to the letter. Running the call each time: {count(naive_payments, 'payment')}, "
        f"{count(naive_letters, 'letter')}."
    )


def count_naive_executions(entries: Iterable[Entry], tool: str) -> int:
    """How often a program without a ledger would run the tool: once for its intent, and once for each later
    run that finds no outcome."""
    executions, open_calls = 0, set[int]()
    for entry in entries:
        match entry.body:
            case kinds.ToolIssued(tool=name) if name == tool:
                open_calls.add(entry.seq)
                executions += 1
            case kinds.RunStarted():
                executions += len(open_calls)
            case kinds.ToolCompleted() | kinds.ToolFailed() | kinds.ToolSettled() as outcome:
                open_calls.discard(outcome.issued or 0)
            case _:
                pass
    return executions


def label_holder(name: str, children: Sequence[Child]) -> SafeText:
    """The child whose lease has this name, in its colour; else it is the demo itself, in your place."""
    for child in children:
        if name.rpartition(":")[2] == str(child.pid):
            return SafeText(child.name, style=child.style)
    return SafeText("you", style="bold yellow")


# -- what to try next ---------------------------------------------------------------------------------


def list_commands(database: Path) -> Iterator[tuple[str, str]]:
    """Shell commands, each with what it shows. The first one goes where the others work."""
    world, shell, name = World(database), find_sqlite_shell(), shlex.quote(database.name)
    books = shlex.join([world.bank.path.name, world.post.path.name])
    url = shlex.quote(f"sqlite:{database.name}")
    folder, python = shlex.quote(str(database.parent)), shlex.quote(sys.executable)
    yield f"cd {folder}; py={python}; export HOLDFAST_STORE={url}", "everything is here"
    yield f"$py -m holdfast show {SESSION}", "the session: its holders, its steps, where it was killed"
    yield f"cat {books}", "the books of the bank and the post office"
    yield f'{shell} {name} "SELECT tool, attempt, status FROM effects"', "the side effects"
    yield f'{shell} {name} "SELECT step, role, text FROM messages"', "the messages"
    yield f'{shell} {name} "SELECT run, status, reason FROM runs"', "the four runs; two have no end"
    yield f"$py -m holdfast.demo.process {name}", "resume once more: the same outcome, nothing is run"
    yield (
        f"$py -m holdfast fork {SESSION} --version 1",
        "what if? a new session, from before the payment",
    )


def find_sqlite_shell() -> str:
    """SQLite's own shell if it is new enough for the views, else that of apsw."""
    with suppress(OSError, ValueError):
        version = subprocess.run(["sqlite3", "-version"], capture_output=True, text=True).stdout
        if [int(part) for part in version.split()[0].split(".")] >= [3, 38]:
            return "sqlite3"
    return "$py -m apsw"
