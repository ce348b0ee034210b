"""`holdfast copy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common, SessionArg

if TYPE_CHECKING:
    from ...store.copy import Copied
    from ...store.store import Store

_STORE = "sqlite:PATH, dir:PATH or postgresql://…"


def copy(
    source: Annotated[str, Parameter(help=f"The store to copy from: {_STORE}.")],
    target: Annotated[str, Parameter(help=f"The store to copy to; it is made if there is none: {_STORE}.")],
    /,
    *session: SessionArg,
    new: Annotated[str | None, Parameter(name="--as")] = None,
    move: bool = False,
    target_blobs: str | None = None,
    dry_run: bool = False,
    common: Common = DEFAULTS,
) -> None:
    """Copy sessions into another store, as replicas that can be read; or move them.

    All of them, or those that are named: with their delegates and parents, and with the origins of forks. A
    thread of LangGraph is named by its thread id. Sessions may be driven meanwhile. Copying again brings what
    is new; a copy that was killed goes on. At the end everything is read from the target and compared.

    Parameters
    ----------
    new
        Of the one session that is named: also make a session with this id that can be driven, as a fork of
        its replica.
    move
        Move them: from then on they are driven in the target, and the source has replicas. No process may
        hold them. A move that was killed is finished by the same command.
    target_blobs
        Where the target keeps large content, if not in the store itself.
    dry_run
        Say what would be copied, and write nothing.
    """
    from dataclasses import replace

    from ..store_access import with_store

    here = replace(common, store=source)
    with_store(here, lambda store: _copy(store, target, session, new, move, target_blobs, dry_run, common))


async def _copy(
    store: Store,
    target: str,
    names: tuple[str, ...],
    new: str | None,
    move: bool,
    target_blobs: str | None,
    dry_run: bool,
    common: Common,
) -> None:
    from ...store.store import open_store
    from ..console import print_json
    from ..progress import show_progress
    from ..store_access import get_session_or_thread

    heads = [head for name in names for head in await get_session_or_thread(store, name)]
    sessions = [head.session for head in heads] if names else None
    async with open_store(target, blobs=target_blobs) as other:
        with show_progress(quiet=common.json) as tell:
            copied = await store.copy(other, sessions, into=new, move=move, dry_run=dry_run, tell=tell)
    if common.json:
        print_json(shape_copied(copied))
    else:
        report_copied(copied)


def shape_copied(copied: Copied) -> dict[str, object]:
    """The object that `--json` prints."""
    return {
        "source": copied.source,
        "target": copied.target,
        "sessions": copied.sessions,
        "entries": copied.entries,
        "claims": copied.claims,
        "blobs": copied.blobs,
        "lost_blobs": copied.lost_blobs,
        "not_erased": copied.not_erased,
        "moved": copied.moved,
        "made": copied.made,
        "dry_run": copied.dry_run,
    }


def report_copied(copied: Copied) -> None:
    """Say what was copied, or would be."""
    from ..console import make_table, print_text, say, stdout
    from ..formatting import count

    changed = [one for one in copied.sessions if one.entries or copied.dry_run]
    if changed:
        table = make_table("session…", "entries>", "there before>", "")
        for one in changed:
            what = "of a deleted session" if one.deleted else ""
            table.add_row(one.session, str(one.entries), str(one.before), what)
        stdout().print(table)
    done = "would copy" if copied.dry_run else "copied and compared"
    what = f"{count(len(copied.sessions), 'session')}, {count(copied.entries, 'new entry', 'new entries')}"
    say(f"{done} {what}, {count(copied.blobs, 'blob')}, {count(copied.claims, 'claim')}")
    if copied.moved:
        moved = "would move" if copied.dry_run else "moved"
        say(f"{moved} {count(len(copied.moved), 'session')}; the source keeps replicas until you delete them")
    for digest in copied.lost_blobs:
        say(f"blob {digest} is missing or damaged in the source, and was not copied")
    for session in copied.not_erased:
        say(f"{session}: a fork in the target still has what was erased in the source; delete it there")
    if copied.made is not None and not copied.dry_run:
        print_text(copied.made)
