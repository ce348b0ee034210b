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

    from ...system.clock import utc_now
    from ..console import print_line, print_text, stdout
    from ..entry_text import describe
    from ..formatting import clock
    from ..json_views import shape_entry
    from ..store_access import get_head

    head = await get_head(store, session)
    if after is None:
        after = max(0, head.seq - lines) if lines > 0 else 0
    console = stdout()
    # One line per entry on a terminal; a pipe gets the whole text.
    width = console.width - 24 if console.is_terminal else 10_000
    async with aclosing(store.tail(session, after=after, follow=follow)) as entries:
        async for entry in entries:
            if common.json:
                print_line(shape_entry(entry))
                continue
            time = clock(entry.at, utc_now()).rpartition(" ")[2]
            print_text(f"{time} {entry.seq:>6} {entry.step:>4}  {describe(entry, max(20, width))}")
