"""An agent of deepagents that has a task done by a sub-agent, and is killed when that has paid."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool as langchain_tool

from holdfast import Landed, NotLanded, ToolContext
from holdfast.adapters.langgraph import HoldfastMiddleware, HoldfastSaver, current_effect, mutate
from tests.crash.fork_server import Line

from .agents import ScriptedChat

STORE = "sqlite:store.db"
BOOK = Path("book")
OF_DEEPAGENTS: dict[str, Any] = {
    "task": "pure",
    **dict.fromkeys(["ls", "read_file", "glob", "grep"], "read"),
    **dict.fromkeys(["write_file", "edit_file", "delete"], "pure"),
    "execute": "mutate",
}
"""As the page declares them."""


def list_payments() -> list[str]:
    """The orders that were paid for, each with the key of its effect."""
    return BOOK.read_text().splitlines() if BOOK.exists() else []


def play(line: Line | None, folder: str, *, kill: bool = False, durable: bool = True) -> dict[str, Any]:
    """Begin, or go on: what was said, and what was paid. `kill`: die when it has paid."""
    os.chdir(folder)

    @langchain_tool
    def pay(order: str) -> str:
        """Pay for an order."""
        key = current_effect().key if durable else ""
        with BOOK.open("a") as book:
            book.write(f"{order} {key}\n")
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {order}"

    def was_paid(ctx: ToolContext[Any], order: str) -> Landed | NotLanded:
        return Landed(f"paid {order}") if f"{order} {ctx.key}" in list_payments() else NotLanded()

    effects = {**OF_DEEPAGENTS, "pay": mutate(verify=was_paid)}
    ours = [HoldfastMiddleware(STORE, effects=effects)] if durable else []
    ask = {"description": "Pay for order a.", "subagent_type": "cashier"}
    cashier: Any = {
        "name": "cashier",
        "description": "Pays.",
        "system_prompt": "Pay.",
        "model": ScriptedChat(script=[[("pay", {"order": "a"})], "It is paid."]),
        "tools": [pay],
        "middleware": ours,
    }
    note = {"file_path": "/notes.txt", "content": "order a"}
    with HoldfastSaver.from_url(STORE) as saver:
        agent: Any = create_deep_agent(
            ScriptedChat(script=[[("write_file", note)], [("task", ask)], "All is paid."]),
            middleware=ours,
            subagents=[cashier],
            checkpointer=saver,
        )
        config: Any = {"configurable": {"thread_id": "t"}}
        is_begun = bool(agent.get_state(config).values)
        given = None if is_begun else {"messages": [HumanMessage("Pay for order a.")]}
        state = agent.invoke(given, config, durability="sync")
    return {
        "said": [[one.type, str(one.content)] for one in state["messages"]],
        "files": sorted(state.get("files", {})),
        "paid": [one.split()[0] for one in list_payments()],
    }
