"""An agent of holdfast's own, as on the front page: durable as it comes."""

import anyio

import holdfast
from holdfast.agents import Prompt, ScriptedModel
from holdfast.messages import ToolCall
from tests.new_user import bank


def model(prompt: Prompt) -> str | ToolCall:
    """In place of a hosted model."""
    replies = sum(one.role == "assistant" for one in prompt.messages)
    if replies == 0:
        return ToolCall(id="call_look", name="look_up", args={"order": "42"})
    if replies == 1:
        return ToolCall(id="call_refund", name="refund", args={"order": "42", "cents": 500})
    return "Order 42 is refunded."


def was_refunded(order: str, cents: int) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the bank."""
    paid = f"{cents} cents for {order}" in bank.list_payments()
    return holdfast.Landed(f"refunded {cents} cents for {order}") if paid else holdfast.NotLanded()


@holdfast.tool(side_effects="read")
def look_up(order: str) -> str:
    """Look at an order."""
    return f"order {order} was 500 cents"


@holdfast.tool(side_effects="mutate", verify=was_refunded)
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return bank.pay_back(order, cents)


clerk = holdfast.Agent(ScriptedModel(model), name="clerk", tools=[look_up, refund])


async def main() -> None:
    """Go on where the last process stopped, or begin."""
    async with holdfast.open_store("sqlite:agents.db") as store:
        outcomes = await clerk.resume_all(store)
        outcome = outcomes[0] if outcomes else await clerk.run("Refund order 42.", session="42", store=store)
        print(outcome.output)


if __name__ == "__main__":
    anyio.run(main)
