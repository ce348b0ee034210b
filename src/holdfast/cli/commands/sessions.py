"""`holdfast sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..options import DEFAULTS, Common, Labels, Number, parse_labels

if TYPE_CHECKING:
    from rich.console import Console

    from ...core.head import Head
    from ...store.store import Store

Status: TypeAlias = Literal["active", "waiting", "completed", "failed", "cancelled"]

_SHOWN = 50
_WIDE = 120
_COLUMNS = {
    "session…": 0,
    "standing": 0,
    "agent": 70,
    "step>": 70,
    "tokens>": _WIDE,
    "cost>": 70,
    "last change>": 0,
    "title…": 100,
}
"""The columns, and the terminal width from which each is shown."""


def sessions(
    *,
    status: Status | None = None,
    interrupted: bool = False,
    label: Labels = (),
    parent: str | None = None,
    limit: Number | None = None,
    common: Common = DEFAULTS,
) -> None:
    """List sessions, the latest first.

    Listing takes no lock and disturbs no holder. `running` means that a living process holds the session and
    that a run is under way in it; `held`, that a living process holds it between two runs; `idle`, that no
    process holds it. `interrupted` means that the last run has no end and that no process holds the session:
    `holdfast resume` continues it.

    Parameters
    ----------
    status
        Only sessions with this status.
    interrupted
        Only sessions that a crash interrupted.
    label
        Only sessions with this label, as name=value. Several must all match.
    parent
        Only the delegates of this session.
    limit
        How many; by default 50, and all with --json. 0 is all.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _list(store, status, interrupted, label, parent, limit, common))


async def _list(
    store: Store,
    status: Status | None,
    interrupted: bool,
    label: tuple[str, ...],
    parent: str | None,
    limit: int | None,
    common: Common,
) -> None:
    from ...errors import Corrupt
    from ..console import print_json, say, stdout
    from ..formatting import count
    from ..json_views import shape_head

    damaged: dict[str, str] = {}
    heads = [
        head
        async for head in store.sessions(
            status=status,
            parent=parent,
            label=parse_labels(label),
            interrupted=interrupted or None,
            on_damaged=lambda session, error: damaged.update({session: str(error)}),
        )
    ]
    heads.sort(key=lambda head: head.updated_at, reverse=True)
    most = (None if common.json else _SHOWN) if limit is None else limit or None
    shown: list[tuple[Head, bool]] = []
    for head in heads[:most]:
        try:
            shown.append((head, await store.is_held(head)))
        except Corrupt as error:  # The heartbeat of its holder is damaged.
            damaged[head.session] = str(error)
    if common.json:
        found: dict[str, Any] = {"sessions": [shape_head(*one) for one in shown], "total": len(heads)}
        if damaged:
            found["damaged"] = [{"session": name, "error": why} for name, why in sorted(damaged.items())]
        print_json(found)
        return
    _print(stdout(), shown)
    for name, why in sorted(damaged.items()):
        say(f"{name} is damaged: {why}")
    if len(heads) > len(heads[:most]):
        say(f"… and {count(len(heads) - len(heads[:most]), 'more session')}: --limit 0 shows all")
    elif not heads and not damaged:
        say("no such session" if status or label or parent or interrupted else "no sessions yet")


def _print(console: Console, shown: list[tuple[Head, bool]]) -> None:
    from ...system.clock import utc_now
    from ..console import STANDING_STYLES, SafeText, make_table
    from ..formatting import ago, shorten, usd
    from ..json_views import name_adapter, name_thread, standing

    if not shown:
        return
    columns = [name for name, width in _COLUMNS.items() if console.width >= width]
    table = make_table(*columns)
    now = utc_now()
    for head, held in shown:
        adapter = name_adapter(head)
        word = standing(head, held)
        marks = [f"{head.waiting} to approve"] if head.waiting else []
        marks += [f"{head.in_doubt} in doubt"] if head.in_doubt and not held else []
        state = SafeText(word, style=STANDING_STYLES.get(word, ""))
        if marks:
            # On a second line where the terminal is narrow, so that the other columns keep their width.
            gap = " " if console.width >= _WIDE else "\n"
            state.append(SafeText(f"{gap}({', '.join(marks)})", style="yellow", lines=True))
        name = SafeText("└─" if head.parent else "").append(head.session, style="bold")
        if "title…" not in columns and not head.title and (thread := name_thread(head)):
            # Its id is escaped: the thread is what people know it by.
            name.append(SafeText(f"\n{shorten(thread, 60)}", style="dim", lines=True))
        cells = {
            "session…": name,
            "standing": state,
            "agent": SafeText(shorten(head.agent or adapter, 20), style="" if head.agent else "dim"),
            "step>": SafeText(str(head.step)),
            "tokens>": SafeText(f"{head.usage.tokens:,}"),
            "cost>": SafeText(usd(head.usd)),
            "last change>": SafeText(ago(head.updated_at, now)),
            "title…": SafeText(shorten(head.title or name_thread(head), 60)),
        }
        table.add_row(*(cells[name] for name in columns))
    console.print(table)
