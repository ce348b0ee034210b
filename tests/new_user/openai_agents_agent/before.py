"""An agent of the OpenAI Agents SDK with two tools and a session, as in its quickstart."""

import asyncio

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from tests.new_user import bank

set_tracing_disabled(True)


def reply(call: ModelCall) -> ModelStep:
    """In place of a hosted model."""
    items = call.input if isinstance(call.input, list) else []
    replies = sum(item.get("type") == "function_call" for item in items)
    said = assistant_message("Order 42 is refunded.")
    if replies == 0:
        said = function_call("look_up", {"order": "42"}, call_id="call_look")
    if replies == 1:
        said = function_call("refund", {"order": "42", "cents": 500}, call_id="call_refund")
    return ModelStep([said])


@function_tool
def look_up(order: str) -> str:
    """Look at an order."""
    return f"order {order} was 500 cents"


@function_tool
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return bank.pay_back(order, cents)


model = ScriptedModel([ModelStep.respond(reply)] * 3)
agent = Agent(name="clerk", model=model, tools=[look_up, refund])
session = SQLiteSession("order-42", "agents.db")

if __name__ == "__main__":
    result = asyncio.run(Runner.run(agent, "Refund order 42.", session=session))
    print(result.final_output)
