"""`holdfast sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..options import DEFAULTS, Common, Number

if TYPE_CHECKING:
    from rich.console import Console

    from ...core.head import Head
    from ...store.store import Store

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
"""And how wide a terminal must be for each."""


def sessions(
    *,
    status: Literal["active", "waiting", "completed", "failed", "cancelled"] | None = None,
    interrupted: bool = False,
    label: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    parent: str | None = None,
    limit: Number | None = None,
    common: Common = DEFAULTS,
) -> None:
    """List sessions, the latest first.

    Anybody may look: nothing is locked, and nobody who works is disturbed. `interrupted` means that the last
    run has no end and that nobody drives it: `holdfast resume` takes it up.

    Parameters
    ----------
    status
        Only those of which the last run came to this.
    interrupted
        Only those that a crash cut off.
    label
        Only those with this label, as name=value. Several must all fit.
    parent
        Only the delegates of this session.
    limit
        How many; 50 for people and all for programs, unless you say otherwise. 0 is all.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _list(store, status, interrupted, label, parent, limit, common))


async def _list(
    store: Store,
    status: Literal["active", "waiting", "completed", "failed", "cancelled"] | None,
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
    from ..labels import parse_labels

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
        except Corrupt as error:  # The heartbeat of its holder.
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
    from ..console import SafeText, make_table
    from ..formatting import ago, shorten, usd
    from ..json_views import standing
    from ..styles import STANDING

    if not shown:
        return
    columns = [name for name, width in _COLUMNS.items() if console.width >= width]
    table = make_table(*columns)
    now = utc_now()
    for head, held in shown:
        word = standing(head, held)
        marks = [f"{head.waiting} to approve"] if head.waiting else []
        marks += [f"{head.in_doubt} in doubt"] if head.in_doubt and not held else []
        state = SafeText(word, style=STANDING.get(word, ""))
        if marks:
            # Below the word where width is scarce: one session that waits must not cost all their columns.
            gap = " " if console.width >= _WIDE else "\n"
            state.append(SafeText(f"{gap}({', '.join(marks)})", style="yellow", lines=True))
        cells = {
            "session…": SafeText("↳ " if head.parent else "").append(head.session, style="bold"),
            "standing": state,
            "agent": SafeText(shorten(head.agent or "", 20)),
            "step>": SafeText(str(head.step)),
            "tokens>": SafeText(f"{head.usage.tokens:,}"),
            "cost>": SafeText(usd(head.usd)),
            "last change>": SafeText(ago(head.updated_at, now)),
            "title…": SafeText(shorten(head.title, 60)),
        }
        table.add_row(*(cells[name] for name in columns))
    console.print(table)
