"""Runs as a listing shows them, read off the lines that begin and end them."""

from __future__ import annotations

from collections.abc import Iterable

from ..codec import open_line, parse
from ..entries import RunStarted
from ..facts import RUN_ENDS, RunInfo
from ..store.driver import RunLines
from ..store.engine import Engine
from ..store.journal import Journal


def read_runs(engine: Engine, rows: Iterable[RunLines]) -> list[RunInfo]:
    """What the lines tell of each run. Blocks."""
    return [_read_run(engine, row) for row in rows]


def _read_run(engine: Engine, row: RunLines) -> RunInfo:
    session = row.cursor.session
    started = open_line(parse(row.started, session), session)
    body = started.body
    assert isinstance(body, RunStarted), body
    run = RunInfo(
        run=started.run or "",
        session=session,
        started_at=started.at,
        agent=body.agent,
        model=body.model,
        parent=body.parent,
        continues=body.continues,
        config=body.config,
        trace=body.trace,
    )
    if row.ended is not None:
        ended = open_line(parse(row.ended, session), session)
        run.status, run.ended_at = RUN_ENDS[type(ended.body)][0], ended.at
        run.reason = getattr(ended.body, "reason", "")
    else:
        facts = Journal(engine.driver, session).fold().facts
        lease = facts.head.lease
        live = lease is not None and engine.presence.judge(lease.holder).alive
        open_here = run.run in facts.runs and facts.runs[run.run].status == "running"
        run.status = "running" if live and open_here else "interrupted"
    return run
