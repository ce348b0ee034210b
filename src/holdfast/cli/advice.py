"""What to run next: the call of the framework that drives a session, with the store's URL in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..adapters.langgraph_threads import ADAPTER_LABEL, CALLER_LABEL, LEDGERS, THREAD_LABEL, THREADS
from ..core.fold import RunInfo
from ..core.head import Head
from ..redact import without_password
from .console import visible
from .options import Common

_FRAMEWORK = "agent_framework"
"""The label that names the framework whose agents a session is of."""
_MCP_SERVER = "mcp.server"
"""The label that names the server behind a proxy, in the session of a connection."""


def pending_command(common: Common) -> str:
    """The command that shows what waits for a person."""
    return f"holdfast pending{common.store_options}"


def continue_call(head: Head, runs: Sequence[RunInfo], common: Common, *, options: str | None = None) -> str:
    """What continues a session that a crash cut off, or that had to wait. `runs` are its own; `options` name
    the store in a command, by default where that is needed."""
    url = without_password(common.store)
    if head.labels.get(ADAPTER_LABEL) in (THREADS, LEDGERS):
        return graph_call(head.labels.get(THREAD_LABEL, ""), head.labels.get(CALLER_LABEL), "None", common)
    if (server := head.labels.get(_MCP_SERVER)) is not None:
        return f"the same call again, by a client of holdfast mcp proxy --name {server} with the store {url}"
    framework = head.labels.get(_FRAMEWORK)
    if framework == "openai-agents":
        return _repeat_run(head, url)
    if framework == "pydantic-ai":
        if head.parent is not None:
            return f"the same agent.run(…) as before, of the agent whose tool runs this one: {head.parent}"
        session = head.labels.get("session", head.session)
        return f"the same agent.run(…) as before, with capabilities=[Durable({url!r}, session={session!r})]"
    if head.parent is not None:
        return f"what continues {head.parent}, which delegated to it"
    last = _find_outermost(runs)
    if last is not None and last.loop == "agent":
        named = common.store_options if options is None else options
        command = f"holdfast resume FILE.py {shlex.quote(head.session)}{named}"
        return f"{command}, where FILE.py has the agent" + (f" {last.agent!r}" if last.agent else "")
    if last is not None and last.loop == "thread":
        return f"thread.resume({head.session!r}, store={url!r}), of the Thread {last.agent!r}"
    return f"your program again: it goes on in session {head.session!r} of {url}"


def _find_outermost(runs: Sequence[RunInfo]) -> RunInfo | None:
    """The last run of a session that is not inside another one of it."""
    known = {one.run for one in runs}
    outer = [one for one in runs if one.parent is None or one.parent.run not in known]
    return outer[-1] if outer else None


def _repeat_run(head: Head, url: str) -> str:
    """What continues a run of the OpenAI Agents SDK."""
    if head.parent is not None:
        around = f"the agent whose tool runs this one: {head.parent}"
        return f"the same DurableRunner.run(…) as before, of {around}"
    key = head.labels.get("run_key")
    if key is not None:
        return f"the same DurableRunner.run(…, run_key={key!r}) as before, with HOLDFAST_STORE={url}"
    session = head.labels.get("session", head.session)
    return f"the same DurableRunner.run(…) as before, with session=HoldfastSession({session!r}, {url!r})"


def graph_call(thread: str, caller: str | None, given: str, common: Common) -> str:
    """What continues a thread of LangGraph. `caller`: what its program calls, a graph unless it says."""
    url = without_password(common.store)
    config = f"{{'configurable': {{'thread_id': {thread!r}}}}}"
    saver = f"HoldfastSaver.from_url({url!r})"
    return f"{caller or 'graph'}.invoke({given}, {config}), with {saver} as its checkpointer"


def find_advice(head: Head, *, held: bool, runs: Sequence[RunInfo], common: Common, asked: bool) -> list[str]:
    """What to do about a session, in order; nothing if there is nothing to do.

    `asked`: calls in doubt wait for a person, and not only for the next run.
    """
    if held:
        return []
    found: list[str] = []
    waits = head.waiting > 0 or head.status == "waiting" or asked
    if waits:
        found.append(f"{pending_command(common)}, which shows what waits for you")
    if waits or head.open_run or head.in_doubt:
        found.append(continue_call(head, runs, common))
    return found


def answer_commands(
    one: Mapping[str, Any], found: Sequence[Mapping[str, Any]], options: str
) -> dict[str, str]:
    """The commands that answer a call that waits, ready to be copied.

    `one` and `found`, which is all that waits, are as `shape_waiting` gives them; `options` name the store.
    A call is named by its entry where its id is not unique (providers reuse ids) or cannot be printed.
    """
    same = [other for other in found if (other["session"], other["call"]) == (one["session"], one["call"])]
    printable = visible(one["call"]) == one["call"] and not one["call"].startswith(("@", "-"))
    call = shlex.quote(one["call"]) if printable and len(same) == 1 else f"@{one['entry']}"
    place = f"{one['session']} {call}"
    if one["kind"] == "approval":
        return {
            "approve": f"holdfast approve {place}{options}",
            "refuse": f"holdfast refuse {place} --reason '…'{options}",
        }
    if one["operation"] is not None:
        place = shlex.quote(one["operation"])
        return {
            "landed": f"holdfast resolve-operation {place} landed --result '…'{options}",
            "not_landed": f"holdfast resolve-operation {place} not-landed{options}",
        }
    return {
        "landed": f"holdfast resolve {place} landed --result '…'{options}",
        "not_landed": f"holdfast resolve {place} not-landed{options}",
        "gave_up": f"holdfast resolve {place} gave-up{options}",
    }
