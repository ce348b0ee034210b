"""`holdfast worker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import DEFAULTS, Common, Labels, TargetArg, parse_labels

if TYPE_CHECKING:
    from ...store.store import Store


def worker(
    agent: TargetArg,
    /,
    *,
    concurrency: int = 8,
    label: Labels = (),
    deps: str | None = None,
    drain: float = 20.0,
    until_idle: bool = False,
    common: Common = DEFAULTS,
) -> int:
    """Take sessions that are due, and run their agents, until it is stopped.

    A session is due when it has a message in its inbox (`holdfast submit`), when a person has answered, or
    when its holder died. All agents of the file work, each on the sessions that name it; the longest due come
    first. Start any number of workers, on any machine that reaches the store. SIGTERM or Ctrl-C stops a
    worker cleanly: sessions end, or are handed over at the end of their step. A second signal hands them
    over at once. Nothing is lost either way. The store is created if it does not exist.

    Parameters
    ----------
    concurrency
        How many sessions to run at once; 8 by default.
    label
        Only sessions with this label, as name=value. Several must all match.
    deps
        The function that makes ctx.deps for the tools, called with each session: module:attribute or
        file.py:attribute.
    drain
        Seconds that sessions get to end when the worker is stopped; 20 by default.
    until_idle
        Stop when no session is due.
    """
    from ..load_agent import load_agents, load_factory
    from ..store_access import with_store
    from ..worker_display import show_worker

    agents = list({id(each): each for each in load_agents(agent).values()}.values())
    make_deps = None if deps is None else load_factory(deps)
    labels = parse_labels(label)

    async def work(store: Store) -> int:
        return await show_worker(
            store,
            agents,
            concurrency=concurrency,
            labels=labels,
            deps=make_deps,
            drain_s=drain,
            until_idle=until_idle,
            json=common.json,
        )

    return with_store(common, work, create=True)
