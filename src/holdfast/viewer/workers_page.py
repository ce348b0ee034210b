"""The workers of a store, and the sessions that wait for one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..core.head import Head
from ..drawing.markup import Child, Html, el
from ..drawing.status import draw_status
from ..formatting import count, shorten, span
from ..limits import VIEWER_DUE
from ..store.work_queue import WorkerInfo, list_due
from ..system.clock import utc_now
from .addresses import session_link
from .context import viewer_of
from .layout import fragment, live, moment, page
from .page_numbers import LIVE, same_page
from .session_frame import draw_bar, draw_commands, draw_table

_SESSIONS_MAX: Final = 20


async def _workers(request: Request) -> Response:
    viewer = viewer_of(request)
    store = viewer.store
    workers = [worker async for worker in store.workers()]
    due = await store._engine.call(list_due, store._engine, VIEWER_DUE)
    body = [*draw_workers(request, workers), *draw_due(request, due, utc_now())]
    if request.query_params.get(LIVE):
        return fragment(request, *body)
    command = f"holdfast workers{viewer.common.explicit_options}"
    return page(
        request,
        "Workers",
        el("h1", "Workers"),
        live(same_page(request, live="body"), *body, id="body"),
        draw_commands([command]),
        here="workers",
    )


def draw_workers(request: Request, workers: Sequence[WorkerInfo]) -> list[Child]:
    """Each worker: what it works on, how much of it, and when it was last heard of."""
    if not workers:
        return [el("p", "No worker runs; `holdfast worker FILE` starts one.", class_="box")]
    rows = [_draw_worker(request, one) for one in workers]
    names = ("worker", "state", "agents", "labels", "load", "heartbeat", "started", "sessions")
    return [el("section", draw_table("Workers", names, rows), class_="box")]


def _draw_worker(request: Request, worker: WorkerInfo) -> Html:
    duty = worker.duty
    state = "gone" if not worker.alive else "draining" if duty.draining else "working"
    beat = "?" if worker.beat_age_s is None else f"{_coarse(worker.beat_age_s)} ago"
    load = f"{len(worker.sessions)} of {duty.concurrency}"
    sessions = [
        part
        for one in worker.sessions[:_SESSIONS_MAX]
        for part in (el("a", one, href=session_link(request, one)), " ")
    ]
    more = len(worker.sessions) - _SESSIONS_MAX
    return el(
        "tr",
        el("td", shorten(worker.name, 120)),
        el(
            "td",
            draw_status({"gone": "killed", "working": "completed"}.get(state, state))
            if state == "gone"
            else state,
        ),
        el("td", ", ".join(duty.agents)),
        el("td", ", ".join(f"{key}={value}" for key, value in duty.labels.items())),
        el("td", load, draw_bar(len(worker.sessions) / max(duty.concurrency, 1), "hf-tool", load)),
        el("td", beat),
        el("td", moment(duty.since)),
        el("td", *sessions, f"and {more:,} more" if more > 0 else None),
        data_row="",
        tabindex="-1",
    )


def _coarse(age_s: float) -> str:
    """An age that does not change with each look."""
    return span(max(1.0, age_s // 5 * 5)) if age_s >= 5 else "less than 5 s"


def draw_due(request: Request, due: Sequence[Head], now: datetime) -> list[Child]:
    """The sessions that have something to do and no holder."""
    title = el("h2", "Due ", el("span", count(len(due), "session"), class_="dim"))
    if not due:
        return [title, el("p", "No session waits for a worker.", class_="note")]
    rows = [
        el(
            "tr",
            el("td", el("a", head.session, href=session_link(request, head.session))),
            el("td", head.agent or "any"),
            el("td", _since_or_from(head, now)),
            el("td", moment(head.due) if head.due is not None else "a message waits in its inbox"),
            el("td", f"{head.failures:,}" if head.failures else ""),
            el("td", shorten(head.reason, 200)),
            data_row="",
            tabindex="-1",
        )
        for head in due
    ]
    names = ("session", "agent", "", "time", "failures in a row", "reason")
    note = el("p", f"The first {VIEWER_DUE}.", class_="note") if len(due) == VIEWER_DUE else None
    return [title, el("section", draw_table("Due", names, rows), class_="box"), note]


def _since_or_from(head: Head, now: datetime) -> str:
    return "postponed until" if head.postponed and head.due is not None and head.due > now else "due since"


ROUTES: Final[tuple[BaseRoute, ...]] = (Route("/workers", _workers),)
