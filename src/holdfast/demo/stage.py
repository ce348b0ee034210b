"""The director: starts the process, kills it, starts another one, and tells what happens."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from .. import Entry, SessionState, open_store
from ..limits import LEASE_TERM_S
from .look import Look
from .story import SESSION, Event
from .timeline import make_timeline

_decode_event = msgspec.json.Decoder(Event).decode
_PACE_S = 0.35


class Actor:
    """A process of its own, and what it tells."""

    def __init__(self, database: Path, *, pace_s: float, stuck_in: str | None = None) -> None:
        command = [sys.executable, "-m", "holdfast.demo.story", str(database), str(pace_s)]
        # Its own session: a Ctrl-C is for the director alone, who then ends it.
        self.process = subprocess.Popen(
            [*command, *([stuck_in] if stuck_in else [])], stdout=subprocess.PIPE, start_new_session=True
        )

    def events(self) -> Iterator[Event]:
        """What it tells, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield _decode_event(line)

    def kill(self) -> int:
        """No goodbye, no cleaning up; its exit status."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait()


@contextmanager
def acting(database: Path, *, pace_s: float, stuck_in: str | None = None) -> Iterator[Actor]:
    """An actor that does not outlive the block."""
    actor = Actor(database, pace_s=pace_s, stuck_in=stuck_in)
    try:
        yield actor
    finally:
        if actor.process.poll() is None:
            actor.kill()
        if actor.process.stdout:
            actor.process.stdout.close()


class Stage:
    """The play, act by act."""

    def __init__(self, database: Path, *, pace: float) -> None:
        self.database = database
        self.look = Look(pace)
        self._pace_s = _PACE_S * self.look.pace

    def play(self) -> None:
        """All of it: about ten seconds for an audience, two without one."""
        self.look.title(
            "holdfast",
            "An agent is at work. Its process is killed in the middle of a step, with no warning and no "
            "clean-up. A new process opens the session and carries on.",
        )
        self.look.pause(0.8)
        self._first_life()
        left = anyio.run(self._inspect)
        self._second_life(left)
        anyio.run(self._look_back)
        self._what_next()

    def _first_life(self) -> None:
        self.look.act(1, "A process works")
        with acting(self.database, pace_s=self._pace_s, stuck_in="read_page") as actor:
            self.look.say(f"[dim]process {actor.process.pid}, store sqlite:{self.database.name}[/]")
            for event in actor.events():
                self._show(event)
                if event.kind == "tool" and event.text.startswith("read_page"):
                    break
            else:
                raise SystemExit(f"the demo's own process failed with status {actor.process.wait()}")
            self.look.pause(0.7)
            status = actor.kill()
            self.look.killed(
                f"process {actor.process.pid} is gone, in the middle of step 2 (exit status {status})"
            )
            self.look.pause(1.0)

    async def _inspect(self) -> SessionState:
        """What anybody can see from outside, without taking anything."""
        self.look.act(2, "What it left behind")
        async with open_store(self.database, create=False) as store:
            state = await store.load(SESSION)
        head = state.facts.head
        lease = head.lease.name if head.lease else "nobody"
        grid = Table.grid(padding=(0, 1))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column()
        grid.add_row(
            "on disk", f"{state.seq} entries, {len(state.transcript)} messages, version {state.version}"
        )
        grid.add_row("last reply", Text(state.transcript[-1].text, style="green"))
        grid.add_row("unfinished", Text("; ".join(map(str, state.problems)), style="yellow"))
        grid.add_row("spent", f"${head.usd:.3f}")
        grid.add_row("lease", f"still in the name of {lease}, for up to {LEASE_TERM_S:.0f} s")
        self.look.panel("the session, seen from outside", grid, style="yellow")
        self.look.pause(1.6)
        return state

    def _second_life(self, left: SessionState) -> None:
        self.look.act(3, "A new process carries on")
        with acting(self.database, pace_s=self._pace_s) as actor:
            self.look.say(f"[dim]process {actor.process.pid}[/]")
            for event in actor.events():
                self._show(event)
                if event.kind == "opened" and left.facts.head.lease is not None:
                    self._explain_opening(event, left.facts.head.lease.name)
            if actor.process.wait() != 0:
                raise SystemExit(f"the demo's own process failed with status {actor.process.returncode}")

    def _explain_opening(self, event: Event, holder: str) -> None:
        if event.took_ms < 1000 * LEASE_TERM_S / 2:
            self.look.say(
                f"[dim]No waiting for the lease to run out: the kernel lock of {holder} was free, which is "
                "proof that it is dead. And no new request: the reply is on record, only its call is open.[/]"
            )
        self.look.pause(1.2)

    def _show(self, event: Event) -> None:
        look = self.look
        match event.kind:
            case "opened" if event.messages:
                look.line(
                    "↻", "bold green", f"opened after {event.took_ms:.0f} ms: {event.messages} messages"
                )
            case "opened":
                look.line("●", "cyan", "a new session")
            case "asked":
                look.line("?", "dim", Text(f"asks {event.text}", style="dim"))
            case "replied":
                text = Text(event.text).append(f"  ${event.usd:.3f}, durable", style="dim")
                look.line("✓", "green", text)
            case "tool":
                look.line("▸", "magenta", f"{event.text} …")
            case "result":
                look.line("✓", "magenta", event.text)
            case "kept":
                look.line("◆", "bold cyan", Text(f"checkpoint, version {event.version}", style="bold"))
            case "done":
                look.line("★", "bold green", Text(f"finished; ${event.usd:.3f} in all", style="bold green"))
            case _:
                raise AssertionError(event)

    async def _look_back(self) -> None:
        self.look.pause(0.8)
        self.look.act(4, "What happened, by the journal")
        async with open_store(self.database, create=False) as store:
            entries: list[Entry] = [entry async for entry in store.tail(SESSION, follow=False)]
            state = await store.load(SESSION)
        self.look.console.print(make_timeline(entries, narrow=self.look.narrow))
        bill = self.database.with_suffix(".bill").read_text().splitlines()
        replies = sum(1 for entry in entries if entry.kind == "model.replied")
        self.look.say(
            f"[bold green]{replies} replies[/] in the journal, [bold green]{len(bill)} requests[/] on the "
            f"provider's own bill: nothing was asked for twice. ${state.budget.usd:.3f} spent."
        )

    def _what_next(self) -> None:
        queries = (
            "SELECT step, role, text FROM messages",
            "SELECT version, step, continuable FROM checkpoints",
            "SELECT run, status, started_at FROM runs",
            "SELECT line FROM entries",
        )
        shell = find_shell()
        commands = [f"db={shlex.quote(str(self.database))}", *(f'{shell} $db "{query}"' for query in queries)]
        python = (
            "from holdfast import blocking\n"
            f'with blocking.open_store("sqlite:{self.database}") as store:\n'
            f'    store.fork("{SESSION}", version=1, into="what-if")\n'
            f'    print(store.diff("{SESSION}", 1, 3))'
        )
        self.look.panel(
            "the database stays; look into it",
            _code("\n".join(commands), "bash"),
            Text(),
            _code(python, "python"),
            style="cyan",
        )


def _code(source: str, language: str) -> Syntax:
    return Syntax(source, language, theme="ansi_dark", background_color="default", word_wrap=True)


def find_shell() -> str:
    """A shell that understands the views: SQLite's own if it is current, else the one that apsw brings."""
    with suppress(OSError, ValueError):
        version = subprocess.run(["sqlite3", "-version"], capture_output=True, text=True).stdout
        if [int(part) for part in version.split()[0].split(".")] >= [3, 38]:
            return "sqlite3"
    return f"{shlex.quote(sys.executable)} -m apsw"
