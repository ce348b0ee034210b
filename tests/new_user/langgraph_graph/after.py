"""A graph of LangGraph with a model, its tools and a saver, as in its quickstart."""

from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver as SqliteSaver
from holdfast.adapters.langgraph import durable_tools, mutate
from tests.new_user import bank


def model(state: MessagesState) -> dict[str, Any]:
    """In place of a hosted model."""
    replies = sum(isinstance(one, AIMessage) for one in state["messages"])
    if replies == 0:
        call = {"name": "look_up", "args": {"order": "42"}, "id": "call_look"}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    if replies == 1:
        call = {"name": "refund", "args": {"order": "42", "cents": 500}, "id": "call_refund"}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    return {"messages": [AIMessage("Order 42 is refunded.")]}


@tool
def look_up(order: str) -> str:
    """Look at an order."""
    return f"order {order} was 500 cents"


@tool
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return bank.pay_back(order, cents)


def was_refunded(order: str, cents: int) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the bank."""
    paid = f"{cents} cents for {order}" in bank.list_payments()
    return holdfast.Landed(f"refunded {cents} cents for {order}") if paid else holdfast.NotLanded()


rules: Any = {"look_up": "read", "refund": mutate(verify=was_refunded)}
tools: list[Any] = durable_tools([look_up, refund], store="sqlite:agents.db", effects=rules)
builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tools", ToolNode(tools))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition, ["tools", END])
builder.add_edge("tools", "model")

if __name__ == "__main__":
    config: Any = {"configurable": {"thread_id": "order-42"}}
    with SqliteSaver.from_conn_string("agents.db") as saver:
        graph: Any = builder.compile(checkpointer=saver)
        is_begun = bool(graph.get_state(config).values)
        given = None if is_begun else {"messages": [("user", "Refund order 42.")]}
        state = graph.invoke(given, config, durability="sync")
        print(state["messages"][-1].content)
