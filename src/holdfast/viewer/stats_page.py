"""Statistics of a store: what sessions spent, how long models and tools took, and what gates refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..cli.session_stats import Tally, Times, describe_counts, read_tally
from ..cli.store_access import get_thread
from ..core.budget import Usage
from ..core.head import Head
from ..drawing.markup import Child, Html, el, join
from ..errors import Corrupt
from ..formatting import count, shorten, span, usd
from ..limits import VIEWER_COUNTED_SESSIONS
from .context import viewer_of
from .layout import facts, page
from .listing import Listed
from .page_numbers import read_number, same_page
from .session_frame import draw_bar, draw_commands, draw_table

_MORE: Final = 10
"""How many times as many sessions are offered to be counted."""


async def _stats(request: Request) -> Response:
    viewer = viewer_of(request)
    listed = await viewer.listing.get()
    chosen: list[Head] = []
    for name in dict.fromkeys(request.query_params.getlist("session")):
        chosen += await get_thread(viewer.store, name) or [await viewer.store.head(name)]
    limit = read_number(request, "sessions") or VIEWER_COUNTED_SESSIONS
    heads = chosen or listed.heads[:limit]
    damaged: list[Head] = []

    def leave_out(head: Head, error: Corrupt) -> None:
        damaged.append(head)

    tally = await read_tally(viewer.store, heads, on_damaged=leave_out)
    names = " ".join(dict.fromkeys(head.session for head in chosen))
    return page(
        request,
        "Stats",
        el("h1", "Stats"),
        *(() if chosen else draw_totals(listed)),
        el("h2", "In detail ", el("span", count(len(heads) - len(damaged), "session"), class_="dim")),
        _say_which(request, listed, heads, damaged, limit) if not chosen else None,
        *draw_tally(tally),
        draw_commands([f"holdfast stats{f' {names}' if names else ''}{viewer.common.explicit_options}"]),
        here="stats",
    )


def _say_which(
    request: Request, listed: Listed, heads: Sequence[Head], damaged: Sequence[Head], limit: int
) -> Html | None:
    """Of which sessions the details are, and how to see those of more."""
    said: list[Child] = []
    if len(heads) < len(listed.heads):
        words = f"Of the {len(heads):,} sessions that changed last: their journals are read. "
        said += [
            words,
            el("a", f"Of {limit * _MORE:,}", href=same_page(request, sessions=limit * _MORE)),
            ". ",
        ]
    if damaged:
        said.append(f"Left out, being damaged: {', '.join(head.session for head in damaged[:20])}.")
    return el("p", *said, class_="note") if said else None


# -- all sessions -----------------------------------------------------------------------------------------


def draw_totals(listed: Listed) -> list[Child]:
    """The sums over all sessions, of what the list has of each."""
    heads = listed.heads
    usage = sum((head.usage for head in heads), Usage())
    rows: list[tuple[str, Child]] = [
        ("sessions", f"{len(heads):,}"),
        ("runs", f"{sum(head.runs for head in heads):,}"),
        ("steps", f"{sum(head.step for head in heads):,}"),
        ("calls of tools", f"{sum(head.tool_calls for head in heads):,}"),
        ("tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"),
        ("cached", f"{usage.cache_read_tokens:,} read, {usage.cache_write_tokens:,} written"),
        ("money", usd(sum(head.usd for head in heads))),
    ]
    by_status = Counter(listed.standing(head) for head in heads)
    by_agent: dict[str, float] = {}
    for head in heads:
        name = head.agent or "without an agent"
        by_agent[name] = by_agent.get(name, 0.0) + head.usd
    spent = {name: amount for name, amount in by_agent.items() if amount}
    return [
        el("section", facts(rows), class_="box"),
        el("h2", "Sessions by status"),
        el("section", _draw_counts(by_status), class_="box"),
        *_draw_spent("Money by agent", spent),
    ]


def _draw_counts(counted: Mapping[str, int]) -> Html:
    total = max(counted.values(), default=0) or 1
    rows = [
        el(
            "tr",
            el("td", name.replace("_", " "), class_="tight"),
            el("td", f"{number:,}", class_="number"),
            el("td", draw_bar(number / total, "hf-model", f"{number:,}"), class_="wide-cell"),
        )
        for name, number in sorted(counted.items(), key=lambda pair: -pair[1])
    ]
    return draw_table("Sessions by status", ("", "sessions>", ""), rows)


def _draw_spent(title: str, spent: Mapping[str, float]) -> list[Child]:
    if not spent:
        return []
    top = max(spent.values())
    rows = [
        el(
            "tr",
            el("td", shorten(name, 120)),
            el("td", usd(amount), class_="number"),
            el("td", draw_bar(amount / top, "hf-money", usd(amount)), class_="wide-cell"),
        )
        for name, amount in sorted(spent.items(), key=lambda pair: -pair[1])
    ]
    return [el("h2", title), el("section", draw_table(title, ("", "money>", ""), rows), class_="box")]


# -- journals ---------------------------------------------------------------------------------------------


def draw_tally(tally: Tally) -> list[Child]:
    """What the journals of some sessions add up to."""
    rows: list[tuple[str, Child]] = [
        ("runs", describe_counts(tally.runs)),
        ("taken over", f"{count(tally.takeovers, 'time')}, from a holder that died"),
        ("steps", f"{tally.steps:,}"),
        ("tokens", f"{tally.usage.input_tokens:,} in, {tally.usage.output_tokens:,} out"),
        ("money", usd(tally.usd)),
    ]
    return [
        el("section", facts(rows), class_="box"),
        *_draw_models(tally),
        *_draw_tools(tally),
        *_draw_refusals(tally),
    ]


def _draw_models(tally: Tally) -> list[Child]:
    if not tally.models:
        return []
    longest_s = _find_longest(one.times for one in tally.models.values())
    rows = [
        el(
            "tr",
            el("td", shorten(name, 120)),
            el("td", f"{one.replies:,}", class_="number"),
            el("td", f"{one.failures:,}" if one.failures else "", class_="number"),
            el("td", f"{one.usage.input_tokens:,} / {one.usage.output_tokens:,}", class_="number"),
            el("td", usd(one.usd), class_="number"),
            *_draw_times(one.times, longest_s, "hf-model"),
        )
        for name, one in sorted(tally.models.items(), key=lambda pair: -pair[1].usd)
    ]
    names = ("model", "replies>", "failed>", "tokens in / out>", "money>", *_TIMES)
    return [el("h2", "Models"), el("section", draw_table("Models", names, rows), class_="box")]


_TIMES: Final = ("median>", "p95>", "max>", "median and p95")


def _find_longest(all_times: Iterable[Times]) -> float:
    return max((times.shape()["p95_s"] or 0.0 for times in all_times), default=0.0)


def _draw_times(times: Times, longest_s: float, class_: str) -> list[Html]:
    """Percentiles as numbers, and as a bar to p95 with the median marked."""
    shape: dict[str, Any] = times.shape()
    cells = [el("td", span(shape[key]), class_="number") for key in ("median_s", "p95_s", "max_s")]
    if not shape["count"] or not longest_s:
        return [*cells, el("td", "")]
    median, p95 = (f"{100 * shape[key] / longest_s:.1f}%" for key in ("median_s", "p95_s"))
    said = f"median {span(shape['median_s'])}, p95 {span(shape['p95_s'])}"
    drawn = el(
        "svg",
        el("title", said),
        join(
            el("rect", width=p95, height=12, rx=3, class_=f"{class_} hf-pale"),
            el("rect", width=median, height=12, rx=3, class_=class_),
        ),
        width="100%",
        height=12,
        role="img",
        class_="meter",
    )
    return [*cells, el("td", drawn, class_="wide-cell")]


def _draw_tools(tally: Tally) -> list[Child]:
    if not tally.tools:
        return []
    longest_s = _find_longest(one.times for one in tally.tools.values())
    rows = [
        el(
            "tr",
            el("td", shorten(name, 120)),
            el("td", f"{one.outcomes.total():,}", class_="number"),
            el("td", describe_counts(one.outcomes)),
            *_draw_times(one.times, longest_s, "hf-tool"),
        )
        for name, one in sorted(tally.tools.items(), key=lambda pair: -pair[1].outcomes.total())
    ]
    return [
        el("h2", "Tools"),
        el("section", draw_table("Tools", ("tool", "calls>", "outcomes", *_TIMES), rows), class_="box"),
    ]


def _draw_refusals(tally: Tally) -> list[Child]:
    if not tally.refusals:
        return []
    most = max(one.count for one in tally.refusals.values())
    rows = [
        el(
            "tr",
            el("td", gate),
            el("td", shorten(tool, 120)),
            el("td", f"{one.count:,}", class_="number"),
            el("td", draw_bar(one.count / most, "hf-bad", f"{one.count:,}"), class_="wide-cell"),
            el("td", f"{one.right:,} of {one.followed:,}" if one.followed else "none came"),
        )
        for (gate, tool), one in sorted(tally.refusals.items(), key=lambda pair: -pair[1].count)
    ]
    names = ("gate", "tool", "refused>", "", "next call right")
    return [el("h2", "Refusals"), el("section", draw_table("Refusals", names, rows), class_="box")]


ROUTES: Final[tuple[BaseRoute, ...]] = (Route("/stats", _stats),)
