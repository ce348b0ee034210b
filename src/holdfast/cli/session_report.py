"""The report of `show`: a session's head, timeline, versions, and the tree of its runs and delegates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from ..core.fold import RunInfo
from ..core.head import Head
from ..core.session_state import SessionState
from ..limits import DELEGATE_DEPTH_MAX
from ..store.store import Store
from ..system.clock import utc_now
from .advice import find_advice
from .console import RUN_STYLES, STANDING_STYLES, SafeText, is_narrow, make_table, print_facts
from .formatting import clock, count, shorten, span, usd
from .json_views import shape_checkpoint, shape_head, shape_run, standing
from .options import Common
from .outline import make_outline_table, outline
from .timeline import Timeline, make_timeline_table


class Branch(Struct, kw_only=True):
    """A session in the tree: its runs, and the delegates of each (of no run: under None)."""

    head: Head
    held: bool
    runs: list[RunInfo]
    delegates: dict[str | None, list[Branch]]

    @property
    def has_delegates(self) -> bool:
        """Whether there are sessions below it."""
        return any(self.delegates.values())


class SessionReport(Struct, kw_only=True):
    """What `show` shows."""

    head: Head
    held: bool
    state: SessionState
    timeline: Timeline | None
    """None in a brief report: it takes the whole journal to make it."""
    tree: Branch


async def read_report(store: Store, head: Head, *, brief: bool) -> SessionReport:
    """Read all of it from the store; without the timeline if `brief`."""
    held = await store.is_held(head)
    state = await store.load(head.session)
    timeline: Timeline | None = None
    if not brief:
        entries = [entry async for entry in store.tail(head.session, follow=False)]
        timeline = Timeline.of(entries, state.facts.effects.rows, held=held)
    return SessionReport(
        head=head,
        held=held,
        state=state,
        timeline=timeline,
        tree=await _read_branch(store, head, held, DELEGATE_DEPTH_MAX),
    )


async def _read_branch(store: Store, head: Head, held: bool, depth: int) -> Branch:
    runs = [run async for run in store.runs(session=head.session)]
    children = [child async for child in store.sessions(parent=head.session)] if depth else []
    below = [await _read_branch(store, one, await store.is_held(one), depth - 1) for one in children]
    return Branch(head=head, held=held, runs=runs, delegates=group_by_run(runs, below))


def group_by_run(runs: Sequence[RunInfo], below: Iterable[Branch]) -> dict[str | None, list[Branch]]:
    """Delegates by the run of their parent session that they worked for; None where it is not known."""
    known = {run.run for run in runs}
    found: dict[str | None, list[Branch]] = {}
    for one in below:
        parent = next((run.parent.run for run in one.runs if run.parent is not None), None)
        found.setdefault(parent if parent in known else None, []).append(one)
    return found


# -- for programs -------------------------------------------------------------------------------------


def shape_report(report: SessionReport) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "session": shape_head(report.head, report.held),
        "plan": report.state.plan,
        "summary": report.state.summary,
        "budget": report.state.budget,
        "problems": [str(problem) for problem in report.state.problems],
        **_shape_timeline(report.timeline),
        "checkpoints": [shape_checkpoint(one) for one in report.state.checkpoints],
        "tree": _shape_branch(report.tree),
    }


def _shape_timeline(timeline: Timeline | None) -> dict[str, Any]:
    if timeline is None:
        return {}
    return {
        "inherited_entries": timeline.inherited,
        "leases": timeline.leases,
        "timeline": timeline.moments,
        "steps": list(timeline.steps.values()),
    }


def _shape_branch(branch: Branch) -> dict[str, Any]:
    return {
        "session": branch.head.session,
        "standing": standing(branch.head, branch.held),
        "usd": branch.head.usd,
        "runs": [
            {
                **shape_run(run),
                "delegates": [_shape_branch(one) for one in branch.delegates.get(run.run, ())],
            }
            for run in branch.runs
        ],
        "delegates": [_shape_branch(one) for one in branch.delegates.get(None, ())],
    }


# -- for people ---------------------------------------------------------------------------------------


def print_report(
    console: Console,
    report: SessionReport,
    common: Common,
    *,
    last: int | None = None,
    everything: bool = False,
) -> None:
    """Print head and timeline, the latest `last` rows of it; versions and the tree if they say more.

    With `everything`, the timeline has every entry, and versions and tree are always there.
    """
    _print_head(console, report)
    if report.timeline is not None and everything:
        console.print()
        console.print(make_timeline_table(report.timeline, narrow=is_narrow(console)))
    elif report.timeline is not None:
        rows = outline(report.timeline)
        shown = rows if last is None else rows[-last:] if last else []
        console.print()
        console.print(make_outline_table(shown, report.timeline.begins_at, console.width))
    versions = report.state.checkpoints
    # After a rewind, or if a version has a name or cannot be continued.
    is_branched = any(one.base != one.version - 1 for one in versions[1:])
    is_special = is_branched or any(one.name or not one.continuable for one in versions)
    is_brief = report.timeline is None
    if versions and (everything or is_brief or is_special or report.head.rewound_to is not None):
        console.print()
        console.print(_make_versions(report))
    tree = report.tree
    if (tree.runs or tree.delegates) and (everything or is_brief or len(tree.runs) > 1 or tree.has_delegates):
        console.print()
        console.print(SafeText("runs", style="bold"))
        console.print(_make_tree(report.tree))
    asked = any(effect.status == "in_doubt" for effect in report.state.in_doubt)
    advice = find_advice(report.head, held=report.held, runs=tree.runs, common=common, asked=asked)
    for line in advice:
        # Never wrapped, so that it can be copied.
        console.print(SafeText("next: ", style="bold").append(line, style="not bold"), soft_wrap=True)


def _print_head(console: Console, report: SessionReport) -> None:
    head, state, now = report.head, report.state, utc_now()
    word = standing(head, report.held)
    title = SafeText(head.session, style="bold").append(f"  {word}", style=STANDING_STYLES.get(word, ""))
    if head.reason:
        title.append(f" ({head.reason})", style="dim")
    console.print(title)
    caps, spent = state.budget.caps, state.budget
    money = f"{usd(spent.usd)} of {usd(caps.usd)}" if caps.usd is not None else ""
    money = money or (usd(spent.usd) if spent.usd else "")
    if spent.reserved.usd:
        money += f"{', ' if money else ''}{usd(spent.reserved.usd)} reserved for requests without an outcome"
    tokens = f"{spent.tokens:,} tokens" + (f" of {caps.tokens:,}" if caps.tokens is not None else "")
    lease = ""
    if head.lease is not None:
        lease = head.lease.name if report.held else f"{head.lease.name}, which is gone"
    plan = state.plan
    done = sum(step.status == "done" for step in plan.steps) if plan else 0
    print_facts(
        console,
        [
            ("about", shorten(head.title, 200)),
            ("agent", head.agent),
            ("holder", lease),
            ("parent", head.parent),
            ("forked from", head.origin),
            ("labels", ", ".join(f"{key}={value}" for key, value in head.labels.items())),
            ("began", clock(head.created_at, now)),
            ("last change", clock(head.updated_at, now)),
            ("spent", ", ".join(one for one in (money, tokens, count(head.step, "step")) if one)),
            ("plan", f"{done} of {len(plan.steps)} done: {plan.goal}".rstrip(": ") if plan else ""),
            ("to approve", str(head.waiting or "")),
            ("in doubt", str(head.in_doubt or "") if not report.held else ""),
            ("unfinished", "; ".join(map(str, state.problems))),
            ("version", _describe_version(report)),
        ],
    )


def _describe_version(report: SessionReport) -> str:
    """The version that the session is at, and what a rewind left behind."""
    state, head = report.state, report.head
    if not state.checkpoints:
        return ""
    left = f", rewound from {head.version}" if head.rewound_to is not None else ""
    return f"{state.version}{left}{' and changes since' if state.facts.changed else ''}"


def _make_versions(report: SessionReport) -> Table:
    versions, now = report.state.checkpoints, utc_now()
    # These columns are shown only after a rewind, or if versions have names.
    branched = any(one.base != one.version - 1 for one in versions[1:])
    named = any(one.name for one in versions)
    columns = [
        "version>",
        "step>",
        "taken",
        *(["built on>"] if branched else []),
        *(["name"] if named else []),
    ]
    table = make_table(*columns, "can be continued…", title="versions")
    for one in versions:
        here = "  ← here" if one.version == report.state.version else ""
        row = [str(one.version), str(one.step), clock(one.at, now).rpartition(" ")[2]]
        row += [str(one.base or "")] if branched else []
        row += [one.name or ""] if named else []
        table.add_row(*row, ("yes" if one.continuable else shorten(one.why[0], 80)) + here)
    return table


def _make_tree(branch: Branch) -> Tree:
    tree = Tree(_name_branch(branch), guide_style="dim")
    _grow(tree, branch)
    return tree


def _name_branch(branch: Branch) -> SafeText:
    word = standing(branch.head, branch.held)
    name = SafeText(branch.head.session, style="bold").append(
        f"  {word}", style=STANDING_STYLES.get(word, "")
    )
    return name.append(f"  {usd(branch.head.usd)}", style="dim") if branch.head.usd else name


def _grow(tree: Tree, branch: Branch) -> None:
    for run in branch.runs:
        below = tree.add(_name_run(run))
        for delegate in branch.delegates.get(run.run, ()):
            _grow(below.add(_name_branch(delegate)), delegate)
    for delegate in branch.delegates.get(None, ()):
        _grow(tree.add(_name_branch(delegate)), delegate)


def _name_run(run: RunInfo) -> SafeText:
    text = SafeText(run.run).append(f"  {run.status}", style=RUN_STYLES.get(run.status, ""))
    return text.append("".join(f"  {one}" for one in _about(run)), style="dim")


def _about(run: RunInfo) -> Iterator[str]:
    if run.ended_at is not None:
        yield span((run.ended_at - run.started_at).total_seconds())
    if run.model:
        yield run.model
    if run.continues:
        yield f"continues {run.continues}"
    if run.reason:
        yield f"({run.reason})"
