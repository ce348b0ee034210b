"""Show a worker on the command line, and stop it on signals (`worker`)."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from rich.live import Live
from rich.table import Table

from ..store.store import Store
from ..system.clock import boot_s, utc_now
from ..workers.job import MakeDeps, WorkEvent
from ..workers.worker import Worker
from .console import make_table, print_line, say, stdout
from .exit_codes import Exit
from .formatting import clock, span, usd
from .load_agent import AnyAgent

_REFRESH_S = 0.5
_SHOWN = 20


async def show_worker(
    store: Store,
    agents: Sequence[AnyAgent],
    *,
    concurrency: int,
    labels: Mapping[str, str],
    deps: MakeDeps | None,
    drain_s: float,
    until_idle: bool,
    json: bool,
) -> int:
    """Run a worker until it is stopped, or idle; return the exit code."""
    screen = _Screen(json=json)
    worker = Worker(
        store, agents, concurrency=concurrency, labels=labels, deps=deps, drain_s=drain_s, tell=screen.tell
    )
    names = ", ".join(str(agent.name) for agent in agents)
    say(f"works for {names}, at most {concurrency} sessions at once")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signals, worker)
        async with screen.shown(worker):
            await worker.run(until_idle=until_idle)
        tasks.cancel_scope.cancel()
    say(f"stopped; {screen.summary}")
    return Exit.DONE


async def _stop_on_signals(worker: Worker) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        stopping = False
        async for _ in signals:
            if not stopping:
                say(f"stopping: {len(worker.jobs)} under way; a second signal hands them over at once")
            worker.stop(now=stopping)
            stopping = True


class _Screen:
    """A live table on a terminal, lines elsewhere, JSON objects with `json`."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._console = stdout()
        self._counts: Counter[str] = Counter()
        self._live: Live | None = None

    @property
    def summary(self) -> str:
        """How many sessions ended in which way so far."""
        parts = [f"{count} {kind.replace('_', ' ')}" for kind, count in self._counts.items()]
        return ", ".join(parts) or "no session was due"

    def tell(self, event: WorkEvent) -> None:
        """Show an event of a session."""
        if event.kind != "taken":
            self._counts[event.kind] += 1
        if self._json:
            print_line({"at": utc_now(), **{key: getattr(event, key) for key in event.__struct_fields__}})
            return
        if event.kind != "taken" or self._live is None:
            console = self._live.console if self._live is not None else self._console
            console.print(_line(event), soft_wrap=True)

    @asynccontextmanager
    async def shown(self, worker: Worker) -> AsyncIterator[None]:
        """Keep the table on the terminal up to date."""
        if self._json or not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._refresh, self._live, worker)
                yield
                tasks.cancel_scope.cancel()

    async def _refresh(self, live: Live, worker: Worker) -> None:
        while True:
            live.update(self._table(worker), refresh=True)
            await anyio.sleep(_REFRESH_S)

    def _table(self, worker: Worker) -> Table:
        table = make_table("session…", "agent", "step>", "tokens>", "cost>", "for>", title=self.summary)
        now_s = boot_s()
        for job in list(worker.jobs.values())[:_SHOWN]:
            if job.session is None or job.session.is_lost:
                continue
            head = job.session.state.facts.head
            table.add_row(
                head.session,
                head.agent,
                str(head.step),
                f"{head.usage.tokens:,}",
                usd(head.usd),
                span(now_s - job.began_s),
            )
        if len(worker.jobs) > _SHOWN:
            table.add_row(f"… and {len(worker.jobs) - _SHOWN} more")
        return table


def _line(event: WorkEvent) -> str:
    now = utc_now()
    parts = [f"{clock(now, now)} {event.session}: {event.kind.replace('_', ' ')}"]
    if event.reason and event.reason != event.kind:
        parts.append(f"({event.reason})")
    if event.retry_at is not None:
        parts.append(f"retries at {clock(event.retry_at, now)}")
    if event.error:
        parts.append(event.error)
    if event.kind != "taken":
        parts.append(f"after {span(event.took_s)}")
    return " ".join(parts)
