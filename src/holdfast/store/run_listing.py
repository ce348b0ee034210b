"""Runs as a listing shows them, read off the lines that begin and end them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..core.codec import open_line, parse
from ..core.entries import RunStarted
from ..core.fold import RUN_ENDS, RunInfo
from ..drivers.contract import RunLines
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import Corrupt

log = logging.getLogger("holdfast")


def read_runs(engine: Engine, rows: Iterable[RunLines], *, strict: bool) -> list[RunInfo]:
    """What the lines tell of each run. Without `strict`, those of damaged sessions are left out. Blocks."""
    runs: list[RunInfo] = []
    for row in rows:
        try:
            runs.append(_read_run(engine, row))
        except Corrupt as error:
            if strict:
                raise
            log.warning("a run is left out of the list: %s", error)
    return runs


def _read_run(engine: Engine, row: RunLines) -> RunInfo:
    session = row.cursor.session
    where = f"session {session!r}"
    started = open_line(parse(row.started, where), where)
    body = started.body
    if not isinstance(body, RunStarted):
        raise Corrupt(where, "it begins no run", seq=started.seq)
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
        ended = open_line(parse(row.ended, where), where)
        if type(ended.body) not in RUN_ENDS:
            raise Corrupt(where, "it ends no run", seq=ended.seq)
        run.status, run.ended_at = RUN_ENDS[type(ended.body)][0], ended.at
        run.reason = getattr(ended.body, "reason", "")
    else:
        facts = Journal(engine.driver, session).fold().facts
        lease = facts.head.lease
        live = lease is not None and engine.heartbeat.judge(lease.holder).alive
        open_here = run.run in facts.runs and facts.runs[run.run].status == "running"
        run.status = "running" if live and open_here else "interrupted"
    return run
