"""`holdfast workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import DEFAULTS, Common

if TYPE_CHECKING:
    from ...store.store import Store
    from ...store.work_queue import WorkerInfo


def workers(*, common: Common = DEFAULTS) -> None:
    """List the workers of a store: their agents, load, last heartbeat and sessions.

    A worker that was killed is listed until its lease expires, or until a process on its machine proves that
    it is gone; then other workers take its sessions over.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _list(store, common))


async def _list(store: Store, common: Common) -> None:
    from ...system.clock import utc_now
    from ..console import make_table, print_json, say, stdout
    from ..formatting import ago, span

    found = [worker async for worker in store.workers()]
    if common.json:
        print_json({"workers": [_shape(worker) for worker in found]})
        return
    if not found:
        say("no workers; `holdfast worker FILE` starts one")
        return
    table = make_table(
        "worker", "state", "agents…", "labels…", "load>", "heartbeat>", "started>", "sessions…"
    )
    for worker in found:
        duty = worker.duty
        table.add_row(
            worker.name,
            _state(worker),
            ", ".join(duty.agents),
            ", ".join(f"{key}={value}" for key, value in duty.labels.items()),
            f"{len(worker.sessions)}/{duty.concurrency}",
            f"{span(worker.beat_age_s)} ago" if worker.beat_age_s is not None else "?",
            ago(duty.since, utc_now()),
            ", ".join(worker.sessions[:4]) + (" …" if len(worker.sessions) > 4 else ""),
        )
    stdout().print(table)


def _state(worker: WorkerInfo) -> str:
    if not worker.alive:
        return "gone"
    return "draining" if worker.duty.draining else "working"


def _shape(worker: WorkerInfo) -> dict[str, object]:
    return {
        "name": worker.name,
        "state": _state(worker),
        "agents": worker.duty.agents,
        "labels": worker.duty.labels,
        "concurrency": worker.duty.concurrency,
        "sessions": worker.sessions,
        "beat_age_s": worker.beat_age_s,
        "since": worker.duty.since,
    }
