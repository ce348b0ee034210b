"""Show a run of an agent on the command line, and turn its outcome into an exit code (`run`, `resume`)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec

from ..agents.model import TextDelta
from ..agents.outcome import Event, Outcome, Retrying
from ..core.fold import Checkpoint
from ..messages import ToolCall
from ..tools.outcome import Result, as_json
from .console import make_table, print_json, print_text, say, stdout
from .entry_text import short_args
from .exit_codes import Exit
from .formatting import shorten, usd
from .json_views import shape_usage
from .options import Common

_EXIT_CODES = {
    "completed": Exit.DONE,
    "waiting": Exit.WAITS,
    "failed": Exit.FAILED,
    "cancelled": Exit.CANCELLED,
}


async def show_run(
    events: AsyncGenerator[Event[Any], None], *, quiet: bool, print_answer: bool
) -> Outcome[Any]:
    """Show progress on stderr and the answer on stdout; return the outcome.

    On a terminal the answer is printed as it is streamed. Elsewhere it is printed once, whole.
    """
    reply = _StreamedReply(live=print_answer and sys.stdout.isatty())
    outcome: Outcome[Any] | None = None
    async with aclosing(events):
        async for event in events:
            match event:
                case TextDelta():
                    reply.add(event.text)
                case Outcome():
                    outcome = event
                case _:
                    reply.end()
                    if not quiet:
                        _show_event(event)
    reply.end()
    assert outcome is not None
    if print_answer and outcome.status == "completed":
        answer = _as_text(outcome.output)
        if reply.text.strip() != answer.strip():
            print_text(answer, lines=True)
    return outcome


class _StreamedReply:
    """The text of the last reply; printed as it arrives if `live`."""

    def __init__(self, *, live: bool) -> None:
        self._live, self._ended, self.text = live, True, ""

    def add(self, text: str) -> None:
        """Take the next piece; the first one after an end begins another reply."""
        if self._live:
            self.text = text if self._ended else self.text + text
            self._ended = False
            print_text(text, lines=True, end="")

    def end(self) -> None:
        """End the line, so that the next output starts on its own."""
        if not self._ended and not self.text.endswith("\n"):
            print_text("")
        self._ended = True


def _show_event(event: Retrying | ToolCall | Result | Checkpoint) -> None:
    match event:
        case Retrying():
            say(f"… {event.error}; retries in {event.pause_s:.0f} s")
        case ToolCall():
            say(f"→ {shorten(f'{event.name}({short_args(event.args)})', 200)}")
        case Result():
            say(f"  {event.status.replace('_', ' ')}: {shorten(event.content, 200)}")
        case Checkpoint():
            say(f"■ version {event.version}")


def _as_text(output: Any) -> str:
    if isinstance(output, str):
        return output
    return msgspec.json.format(msgspec.json.encode(as_json(output)), indent=2).decode()


@contextmanager
def explain_interrupt(find_command: Callable[[], str | None]) -> Iterator[None]:
    """On Ctrl-C, print the command that continues the session, if there is something to continue."""
    try:
        yield
    except KeyboardInterrupt:
        command = find_command()
        say(f"stopped; to continue: {command}" if command else "stopped")
        raise SystemExit(Exit.INTERRUPTED) from None


def resume_command(target: str, session: str, common: Common) -> str:
    """The command that continues a session."""
    return f"holdfast resume {shlex.quote(target)} {session}{common.store_options}"


def report_outcome(outcome: Outcome[Any], common: Common, target: str) -> int:
    """Print the outcome and what to do next; return the exit code."""
    if common.json:
        print_json(_shape_outcome(outcome))
        return _EXIT_CODES[outcome.status]
    resume = resume_command(target, outcome.session, common)
    spent = f"{usd(outcome.cost_usd)}, {outcome.usage.tokens:,} tokens"
    match outcome.status:
        case "completed":
            say(f"{outcome.session}: completed, {spent}")
        case "waiting":
            say(f"{outcome.session}: waits for a person ({outcome.reason}), {spent}")
            say(f"holdfast pending{common.store_options} shows what for; then: {resume}")
        case "cancelled":
            say(f"{outcome.session}: cancelled ({outcome.reason}), {spent}")
            say(f"to continue: {resume}")
        case _:
            say(f"{outcome.session}: failed ({outcome.reason}) {outcome.error}, {spent}")
    return _EXIT_CODES[outcome.status]


def report_outcomes(outcomes: Sequence[Outcome[Any]], common: Common) -> int:
    """Print a table of outcomes; return the exit code of the worst."""
    codes = [_EXIT_CODES[outcome.status] for outcome in outcomes]
    worst = next((code for code in (Exit.FAILED, Exit.WAITS, Exit.CANCELLED) if code in codes), Exit.DONE)
    if common.json:
        print_json({"outcomes": [_shape_outcome(outcome) for outcome in outcomes]})
    elif not outcomes:
        say("no session was interrupted")
    else:
        table = make_table("session…", "status", "cost>", "what…")
        for outcome in outcomes:
            done = outcome.status == "completed"
            what = _as_text(outcome.output) if done else f"{outcome.reason} {outcome.error}"
            table.add_row(outcome.session, outcome.status, usd(outcome.cost_usd), shorten(what, 120))
        stdout().print(table)
        if Exit.WAITS in codes:
            say(f"holdfast pending{common.store_options} shows what waits for you")
    return worst


def _shape_outcome(outcome: Outcome[Any]) -> dict[str, Any]:
    return {
        "session": outcome.session,
        "run": outcome.run,
        "status": outcome.status,
        "reason": outcome.reason,
        "error": outcome.error,
        "output": as_json(outcome.output),
        "usage": shape_usage(outcome.usage),
        "usd": outcome.cost_usd,
        "waiting": [msgspec.to_builtins(waiting) for waiting in outcome.waiting],
    }
