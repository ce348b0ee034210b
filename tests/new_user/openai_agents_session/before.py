"""An agent of the OpenAI Agents SDK with a tool and a session, as in its quickstart."""

import asyncio

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from tests.new_user import bank

set_tracing_disabled(True)


@function_tool
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return bank.pay_back(order, cents)


calls = function_call("refund", {"order": "42", "cents": 500}, call_id="call_refund")
model = ScriptedModel([[calls], [assistant_message("Order 42 is refunded.")]])
agent = Agent(name="clerk", model=model, tools=[refund])
session = SQLiteSession("order-42", "agents.db")

if __name__ == "__main__":
    result = asyncio.run(Runner.run(agent, "Refund order 42.", session=session))
    print(result.final_output)
