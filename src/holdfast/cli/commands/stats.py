"""`holdfast stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..options import DEFAULTS, Common, complete_session

if TYPE_CHECKING:
    from ...core.head import Head
    from ...errors import Corrupt
    from ...store.store import Store
    from ..session_stats import Tally


def stats(
    *session: Annotated[
        str, Parameter(completer=complete_session, help="Only these sessions; all by default.")
    ],
    common: Common = DEFAULTS,
) -> None:
    """Add up tokens, money, durations, and the outcomes of tool calls.

    Refusals are listed by gate and tool, with how often the model's next call was right: the next call of the
    same tool in a later reply, or else the first call of that reply. A gate whose messages help has a high
    share. Money and tokens are counted in the session that spent them: delegates and forks are not counted
    twice.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _stats(store, session, common))


async def _stats(store: Store, sessions: tuple[str, ...], common: Common) -> None:
    from ..console import print_json, say
    from ..session_stats import read_tally
    from ..store_access import get_session_or_thread

    chosen = [head for name in dict.fromkeys(sessions) for head in await get_session_or_thread(store, name)]
    heads = chosen or [head async for head in store.sessions()]

    def leave_out(head: Head, error: Corrupt) -> None:
        if chosen:
            raise error
        say(f"{head.session} is left out: {error}")  # One damaged session must not hide the others.

    tally = await read_tally(store, heads, on_damaged=leave_out)
    if common.json:
        print_json(tally.shape())
    else:
        _print(tally)


def _print(tally: Tally) -> None:
    from ..console import is_narrow, make_table, print_facts, stdout
    from ..formatting import count, span, usd
    from ..session_stats import describe_counts

    console = stdout()
    narrow = is_narrow(console)
    usage, model = tally.usage, tally.model_times.shape()
    print_facts(
        console,
        [
            ("sessions", describe_counts(tally.sessions)),
            ("runs", describe_counts(tally.runs)),
            ("taken over", count(tally.takeovers, "time") + ", from a holder that died"),
            ("steps", f"{tally.steps:,}"),
            ("tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"),
            ("cached", f"{usage.cache_read_tokens:,} read, {usage.cache_write_tokens:,} written"),
            ("money", usd(tally.usd)),
            (
                "by model",
                ", ".join(f"{name} {usd(one.usd)}" for name, one in sorted(tally.models.items())),
            ),
            ("replies", f"{model['count']:,}, {tally.model_failures:,} failed"),
            ("durations", _times(model)),
        ],
    )
    if tally.tools:
        columns = ["tool…", "calls>", "outcomes…"] + (
            [] if narrow else ["median>", "p95>", "max>", "in all>"]
        )
        table = make_table(*columns, title="tools")
        for name, one in sorted(tally.tools.items()):
            times = one.times.shape()
            row = [name, f"{one.outcomes.total():,}", describe_counts(one.outcomes)]
            if not narrow:
                row += [span(times[key]) for key in ("median_s", "p95_s", "max_s", "sum_s")]
            table.add_row(*row)
        console.print()
        console.print(table)
    if tally.refusals:
        table = make_table("gate", "tool…", "refused>", "next call right>", title="refusals")
        for (gate, name), refusal in sorted(tally.refusals.items()):
            right = f"{refusal.right} of {refusal.followed}" if refusal.followed else "none came"
            table.add_row(gate, name, str(refusal.count), right)
        console.print()
        console.print(table)


def _times(shape: dict[str, Any]) -> str:
    from ..formatting import span

    if not shape["count"]:
        return ""
    return (
        f"{span(shape['median_s'])} median, {span(shape['p95_s'])} p95, {span(shape['max_s'])} max, "
        f"{span(shape['sum_s'])} in all"
    )
