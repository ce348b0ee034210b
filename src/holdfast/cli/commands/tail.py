"""`holdfast tail`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common, Number, SessionArg

if TYPE_CHECKING:
    from ...store.store import Store


def tail(
    session: SessionArg,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False,
    lines: Annotated[Number, Parameter(name=["--lines", "-n"])] = 20,
    after: Number | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Print the latest entries of a session's journal; with -f also new ones as they become durable.

    A thread of LangGraph is named by its thread id: then these are its checkpoints, and what its nodes wrote.

    Reading disturbs no holder. With -f it ends on Ctrl-C, or when the session is deleted. With --json, each
    entry is one object on one line, with body and content as they are stored.

    Parameters
    ----------
    follow
        Print new entries until Ctrl-C.
    lines
        How many of the existing entries; 20 by default, 0 is all.
    after
        Only entries after this number, instead of --lines.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _tail(store, session, follow, lines, after, common))


async def _tail(
    store: Store, session: str, follow: bool, lines: int, after: int | None, common: Common
) -> None:
    from contextlib import aclosing

    from ...adapters.langgraph_threads import ThreadHistory
    from ...system.clock import utc_now
    from ..console import print_line, print_text, stdout
    from ..entry_text import describe
    from ..formatting import clock, shorten
    from ..json_views import shape_entry
    from ..store_access import get_head, get_thread
    from ..thread_report import describe_news

    heads = await get_thread(store, session)
    head = heads[0] if heads else await get_head(store, session)
    # What an entry of a thread means depends on those before it.
    history = ThreadHistory() if heads and not common.json else None
    if after is None:
        after = max(0, head.seq - lines) if lines > 0 else 0
    console = stdout()
    # One line per entry on a terminal; a pipe gets the whole text.
    width = console.width - 24 if console.is_terminal else 10_000
    begin = after if history is None else 0
    async with aclosing(store.tail(head.session, after=begin, follow=follow)) as entries:
        async for entry in entries:
            news = None if history is None else history.apply(entry)
            if entry.seq <= after:
                continue
            if common.json:
                print_line(shape_entry(entry))
                continue
            time = clock(entry.at, utc_now()).rpartition(" ")[2]
            text = describe(entry, 10_000) if news is None else describe_news(news)
            step = entry.step if news is None else news.step
            print_text(f"{time} {entry.seq:>6} {step:>4}  {shorten(text, max(20, width))}")
