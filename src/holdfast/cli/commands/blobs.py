"""`holdfast blobs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ..options import DEFAULTS, Common, Yes

if TYPE_CHECKING:
    from ...blobs.blob import Collected
    from ...store.store import Store

_HOUR_S = 3600.0


def blobs(
    action: Annotated[Literal["list", "gc"], Parameter(help="list or gc; list by default.")] = "list",
    /,
    *,
    remove: bool = False,
    grace: Annotated[float, Parameter(help="How old a blob must be, in hours; 24 by default.")] = 24,
    alone: bool = False,
    yes: Yes = False,
    common: Common = DEFAULTS,
) -> None:
    """List blobs with the sessions that refer to them, or remove unreferenced ones.

    Blobs are large content that is kept outside the journals. `gc` only lists what it would remove; with
    --remove it asks, and removes. A blob that a session, an earlier version, a fork or an inbox refers to
    always stays.

    Parameters
    ----------
    remove
        With gc: remove the unreferenced blobs.
    alone
        No other process has the store open: then --grace may be less than half an hour.
    """
    from ..store_access import with_store

    if action == "list":
        with_store(common, lambda store: _list(store, common))
        return
    found = with_store(common, lambda store: _collect(store, grace, alone, dry_run=True))
    if remove and found.orphans:
        _confirm(found, yes)
        found = with_store(common, lambda store: _collect(store, grace, alone, dry_run=False))
    _report(found, common)


async def _collect(store: Store, grace: float, alone: bool, *, dry_run: bool) -> Collected:
    return await store.collect_blobs(grace_s=grace * _HOUR_S, dry_run=dry_run, alone=alone)


def _confirm(found: Collected, yes: bool) -> None:
    from ..console import confirm
    from ..formatting import count, size

    what = f"{count(len(found.orphans), 'blob')} ({size(found.size)})"
    confirm(f"Remove {what} without references? This cannot be undone.", yes=yes)


async def _list(store: Store, common: Common) -> None:
    from ...system.clock import utc_now
    from ..console import make_table, print_json, say, stdout
    from ..formatting import ago, count, size
    from ..json_views import shape_blob

    found = [blob async for blob in store.blobs(sessions=True)]
    total = sum(blob.size for blob in found)
    if common.json:
        print_json({"blobs": [shape_blob(blob) for blob in found], "bytes": total})
        return
    if found:
        table = make_table("blob", "size>", "type…", "name…", "put>", "sessions…")
        for blob in found:
            put = ago(blob.put_at, utc_now()) if blob.put_at is not None else ""
            table.add_row(
                blob.digest[:16],
                size(blob.size),
                blob.media_type,
                blob.name or "",
                put,
                ", ".join(blob.sessions) or "none",
            )
        stdout().print(table)
    say(f"{count(len(found), 'blob')}, {size(total)}" if found else "no blobs")


def _report(found: Collected, common: Common) -> None:
    from ..console import make_table, print_json, say, stdout
    from ..formatting import count, size
    from ..json_views import shape_blob

    if common.json:
        print_json(
            {
                "orphans": [shape_blob(blob) for blob in found.orphans],
                "bytes": found.size,
                "removed": found.removed,
                "referred": found.referred,
                "recent": found.recent,
                "uploads": found.uploads,
            }
        )
        return
    if found.orphans:
        table = make_table("blob", "size>", "type…", "name…")
        for blob in found.orphans:
            table.add_row(blob.digest[:16], size(blob.size), blob.media_type, blob.name or "")
        stdout().print(table)
    orphans = f"{count(len(found.orphans), 'blob')}, {size(found.size)}"
    say(
        f"{f'removed {orphans}' if found.removed else f'unreferenced: {orphans}'}; "
        f"{found.referred} are referenced, {found.recent} are too recent"
    )
    if found.orphans and not found.removed:
        say(f"nothing was removed; to remove: holdfast blobs gc --remove{common.store_options}")
