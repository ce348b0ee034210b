"""The agent of the demo: nothing in it knows that it will be killed.

Its model is a script, so it needs no key and no network. The tools are written as for any other model.
"""

from __future__ import annotations

from holdfast import Agent, Budget, Landed, NotLanded, ToolContext, tool
from holdfast.agents import Price, ScriptedModel
from holdfast.messages import ToolCall

from .world import World

SESSION = "refund-1042"
TASK = "Order 1042 arrived broken. Please give Ada her money back, and write to her."

SCRIPT = (
    (
        "I will look up the order and our rules.",
        ToolCall(id="order", name="lookup_order", args={"order": "1042"}),
        ToolCall(id="rules", name="check_policy", args={"reason": "arrived broken"}),
    ),
    (
        "Broken on arrival: a full refund.",
        ToolCall(id="refund", name="pay_refund", args={"customer": "Ada", "cents": 4200}),
    ),
    (
        "It is paid. Now the letter.",
        ToolCall(
            id="letter", name="send_letter", args={"customer": "Ada", "text": "Your refund is on its way"}
        ),
    ),
    (
        "And the ticket can be closed.",
        ToolCall(id="close", name="close_ticket", args={"order": "1042"}),
    ),
    "Done: $42.00 went back to Ada for order 1042, a letter tells her so, and the ticket is closed.",
)


@tool(side_effects={"read"})
def lookup_order(order: str) -> dict[str, str | int]:
    """Look up an order."""
    return {"order": order, "customer": "Ada", "cents": 4200}


@tool(side_effects=())
def check_policy(reason: str) -> str:
    """Look up the rules for a refund."""
    return f"{reason}: refund in full, within 30 days"


def was_paid(ctx: ToolContext[World], customer: str, cents: int) -> Landed | NotLanded:
    """Find out whether a payment in doubt happened."""
    receipt = ctx.deps.find_payment(ctx.key)
    return Landed(receipt) if receipt else NotLanded()


@tool(side_effects={"mutate"}, verify=was_paid, timeout_s=30)
def pay_refund(ctx: ToolContext[World], customer: str, cents: int) -> str:
    """Pay money back."""
    return ctx.deps.pay(customer, cents, key=ctx.key)


@tool(side_effects={"mutate"}, timeout_s=30)
def send_letter(ctx: ToolContext[World], customer: str, text: str) -> str:
    """Write a letter. Whether one was sent cannot be verified, so there is no `verify`."""
    ctx.deps.send(customer, text)
    return "posted"


@tool(side_effects={"write"}, timeout_s=30)
def close_ticket(order: str) -> str:
    """Close a ticket; closing it again changes nothing."""
    return f"ticket {order} is closed"


def make_agent(*, delay_s: float = 0.0) -> Agent[World]:
    """The agent."""
    return Agent(
        ScriptedModel(SCRIPT, delay_s=delay_s),
        tools=[lookup_order, check_policy, pay_refund, send_letter, close_ticket],
        name="clerk",
        instructions="You handle refunds. Look before you pay.",
        budget=Budget(usd=0.5),
        price=Price(input_usd_per_mtok=3, output_usd_per_mtok=15),
    )
