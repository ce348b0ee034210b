"""What to run next: the call of the framework that drives a session, with the store's URL in it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..adapters.langgraph_threads import ADAPTER_LABEL, LEDGERS, THREAD_LABEL, THREADS
from ..core.fold import RunInfo
from ..core.head import Head
from ..redact import without_password
from .options import Common

_FRAMEWORK = "agent_framework"
"""The label that names the framework whose agents a session is of."""


def pending_command(common: Common) -> str:
    """The command that shows what waits for a person."""
    return f"holdfast pending{common.store_options}"


def continue_call(head: Head, runs: Sequence[RunInfo], common: Common) -> str:
    """What continues a session that a crash cut off, or that had to wait. `runs` are its own."""
    url = without_password(common.store)
    if head.labels.get(ADAPTER_LABEL) in (THREADS, LEDGERS):
        return graph_call(head.labels.get(THREAD_LABEL, ""), "None", common)
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
    last = runs[-1] if runs else None
    if last is not None and last.agent and (last.model or last.config):
        command = f"holdfast resume FILE.py {shlex.quote(head.session)}{common.store_options}"
        return f"{command}, where FILE.py has the agent {last.agent!r}"
    return f"your program again: it goes on in session {head.session!r} of {url}"


def _repeat_run(head: Head, url: str) -> str:
    """What continues a run of the OpenAI Agents SDK."""
    if head.parent is not None:
        return f"the same DurableRunner.run(…) as before, of the agent whose tool runs this one: {head.parent}"
    key = head.labels.get("run_key")
    if key is not None:
        return f"the same DurableRunner.run(…, run_key={key!r}) as before, with HOLDFAST_STORE={url}"
    session = head.labels.get("session", head.session)
    return f"the same DurableRunner.run(…) as before, with session=HoldfastSession({session!r}, {url!r})"


def graph_call(thread: str, given: str, common: Common) -> str:
    """What continues a thread of LangGraph."""
    url = without_password(common.store)
    config = f"{{'configurable': {{'thread_id': {thread!r}}}}}"
    return f"graph.invoke({given}, {config}), with HoldfastSaver.from_url({url!r}) as its checkpointer"


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
