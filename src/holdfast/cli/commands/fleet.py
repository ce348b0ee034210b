"""`holdfast worker` and `holdfast workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common, TargetArg

if TYPE_CHECKING:
    from ...store.store import Store
    from ...store.work_queue import WorkerInfo


def worker(
    agent: TargetArg,
    /,
    *,
    concurrency: int = 8,
    label: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    deps: str | None = None,
    drain: float = 20.0,
    until_idle: bool = False,
    common: Common = DEFAULTS,
) -> int:
    """Take sessions that have something to do, and drive them, until you stop it.

    That is: a message in their inbox (`holdfast submit`), an answer that they waited for, or a holder that
    died. All agents of the file work, each on the sessions that name it; the longest due come first. Start as
    many workers as you like, on all machines that reach the store. SIGTERM or Ctrl-C stops it in an orderly
    way: sessions end, or are handed over at the end of their step. Once more, and they are handed over at
    once. Nothing is lost either way. The store is made if there is none.

    Parameters
    ----------
    concurrency
        How many sessions to drive at once; 8 unless you say otherwise.
    label
        Only sessions with this label, as name=value. Several must all fit.
    deps
        What makes the ctx.deps of the tools, called with each session: module:attribute or file.py:attribute.
    drain
        Seconds that sessions get to end when it is stopped; 20 unless you say otherwise.
    until_idle
        Stop when there is nothing to do.
    """
    from ..labels import parse_labels
    from ..load_agent import load_agents, load_factory
    from ..store_access import with_store
    from ..worker_display import work

    agents = list({id(one): one for one in load_agents(agent).values()}.values())
    make = None if deps is None else load_factory(deps)
    labels = parse_labels(label)

    async def main(store: Store) -> int:
        return await work(
            store,
            agents,
            concurrency=concurrency,
            labels=labels,
            deps=make,
            drain_s=drain,
            until_idle=until_idle,
            json=common.json,
        )

    return with_store(common, main, create=True)


def workers(*, common: Common = DEFAULTS) -> None:
    """List the workers of a store: what they work on, how busy they are, and when they were last heard of.

    A worker that was killed is listed until its lease runs out, or until somebody on its machine finds the
    proof; its sessions are then taken over by the others.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _list(store, common))


async def _list(store: Store, common: Common) -> None:
    from ...system.clock import utc_now
    from ..console import make_table, print_json, say, stdout
    from ..formatting import ago, span

    found = [one async for one in store.workers()]
    if common.json:
        print_json({"workers": [_shape(one) for one in found]})
        return
    if not found:
        say("no workers; `holdfast worker FILE` starts one")
        return
    table = make_table(
        "worker", "state", "agents…", "labels…", "load>", "heard of>", "up since>", "sessions…"
    )
    for one in found:
        duty = one.duty
        table.add_row(
            one.name,
            _state(one),
            ", ".join(duty.agents),
            ", ".join(f"{key}={value}" for key, value in duty.labels.items()),
            f"{len(one.sessions)}/{duty.concurrency}",
            f"{span(one.beat_age_s)} ago" if one.beat_age_s is not None else "?",
            ago(duty.since, utc_now()),
            ", ".join(one.sessions[:4]) + (" …" if len(one.sessions) > 4 else ""),
        )
    stdout().print(table)


def _state(one: WorkerInfo) -> str:
    if not one.alive:
        return "gone"
    return "draining" if one.duty.draining else "working"


def _shape(one: WorkerInfo) -> dict[str, object]:
    return {
        "name": one.name,
        "state": _state(one),
        "agents": one.duty.agents,
        "labels": one.duty.labels,
        "concurrency": one.duty.concurrency,
        "sessions": one.sessions,
        "beat_age_s": one.beat_age_s,
        "since": one.duty.since,
    }
