"""An agent of LangChain with two tools and a saver, as in its quickstart."""

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import holdfast
from holdfast.adapters.langgraph import HoldfastMiddleware, mutate
from holdfast.adapters.langgraph import HoldfastSaver as SqliteSaver
from tests.new_user import bank


class Model(BaseChatModel):
    """In place of a hosted model."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        replies = sum(isinstance(one, AIMessage) for one in messages)
        said = AIMessage("Order 42 is refunded.")
        if replies == 0:
            call = {"name": "look_up", "args": {"order": "42"}, "id": "call_look"}
            said = AIMessage("", tool_calls=[call])
        if replies == 1:
            call = {"name": "refund", "args": {"order": "42", "cents": 500}, "id": "call_refund"}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


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
middleware: list[Any] = [HoldfastMiddleware("sqlite:agents.db", effects=rules)]

if __name__ == "__main__":
    config: Any = {"configurable": {"thread_id": "order-42"}}
    with SqliteSaver.from_conn_string("agents.db") as saver:
        agent: Any = create_agent(Model(), [look_up, refund], middleware=middleware, checkpointer=saver)
        is_begun = bool(agent.get_state(config).values)
        given = None if is_begun else {"messages": [("user", "Refund order 42.")]}
        state = agent.invoke(given, config, durability="sync")
        print(state["messages"][-1].content)
