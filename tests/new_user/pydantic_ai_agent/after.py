"""An agent of pydantic-ai with two tools, as in its quickstart."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.adapters.pydantic_ai import Durable
from holdfast.tools import mutate
from tests.new_user import bank


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """In place of a hosted model."""
    replies = sum(isinstance(one, ModelResponse) for one in messages)
    if replies == 0:
        return ModelResponse([ToolCallPart("look_up", {"order": "42"}, "call_look")])
    if replies == 1:
        return ModelResponse([ToolCallPart("refund", {"order": "42", "cents": 500}, "call_refund")])
    return ModelResponse([TextPart("Order 42 is refunded.")])


def was_refunded(order: str, cents: int) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the bank."""
    paid = f"{cents} cents for {order}" in bank.list_payments()
    return holdfast.Landed(f"refunded {cents} cents for {order}") if paid else holdfast.NotLanded()


rules: Any = {"look_up": "read", "refund": mutate(verify=was_refunded)}
agent = Agent(
    FunctionModel(model),
    name="clerk",
    capabilities=[Durable("sqlite:agents.db", session="order-42", effects=rules)],
)


@agent.tool_plain
def look_up(order: str) -> str:
    """Look at an order."""
    return f"order {order} was 500 cents"


@agent.tool_plain
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return bank.pay_back(order, cents)


if __name__ == "__main__":
    print(agent.run_sync("Refund order 42.").output)
