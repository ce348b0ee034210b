"""An agent for the tests of the command line. What it does depends on the first word it is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio

import holdfast
from holdfast.agents import Price, Prompt, ScriptedModel
from holdfast.agents.scripted_model import Line
from holdfast.messages import ToolCall


@holdfast.tool(side_effects={"read"}, pollable=True)
async def look_up(order: str) -> str:
    """Find an order."""
    if os.environ.get("CLERK_DIES_IN") == "look_up":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"order {order}: 9900 cents"


@holdfast.tool(side_effects={"mutate"})
async def charge(order: str, cents: int) -> str:
    """Charge the card on file."""
    if os.environ.get("CLERK_DIES_IN") == "charge":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"charged {cents} for {order}"


def _was_paid(ctx: holdfast.ToolContext[None], order: str) -> holdfast.Landed:
    if not Path("bank-is-up").exists():
        raise ConnectionError("the bank is down")
    return holdfast.Landed(f"paid {order}")


@holdfast.tool(side_effects={"mutate"}, verify=_was_paid)
async def pay(ctx: holdfast.ToolContext[None], order: str) -> str:
    """Pay for an order."""
    request = {"method": "POST", "url": "https://bank.example/pay"}
    await ctx.annotate(vendor="v-1", requests=[{**request, "status": 503}, {**request, "key": ctx.key}])
    if os.environ.get("CLERK_DIES_IN") == "pay":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {order}"


@holdfast.tool(side_effects={"mutate"}, scope="global")
async def announce(what: str) -> str:
    """Tell the whole world, once."""
    if os.environ.get("CLERK_DIES_IN") == "announce":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"announced {what}"


def _unbook(room: str) -> None:
    Path(f"room-{room}").unlink(missing_ok=True)


@holdfast.tool(side_effects={"mutate"}, undo=_unbook)
def book(room: str) -> str:
    """Book a room."""
    Path(f"room-{room}").touch()
    return f"booked {room}"


@holdfast.tool(side_effects={"mutate"}, needs_approval=True)
async def refund(order: str, cents: int) -> str:
    """Give the money back."""
    return f"refunded {cents} for {order}"


@holdfast.tool(side_effects={"read"}, pollable=True)
async def wait_for(path: str) -> str:
    """Wait until there is such a file."""
    while not await anyio.Path(path).exists():  # noqa: ASYNC110
        await anyio.sleep(0.02)
    return f"{path} is there"


def call(name: str, **args: object) -> ToolCall:
    return ToolCall(id=f"c-{name}", name=name, args=args)


SCRIPTS: dict[str, tuple[Line, ...]] = {
    "Refund": (("I will look.", call("look_up", order="42")), "Order 42 is refunded."),
    "Look": (("I will look.", call("look_up", order="42")), "It is there."),
    "Charge": (
        ("I will look.", call("look_up", order="42")),
        ("Then I charge.", call("charge", order="42", cents=500)),
        "Charged.",
    ),
    "Pay": (call("pay", order="42"), "Paid."),
    "Announce": (call("announce", what="opening"), "Announced."),
    "Ask": (("May I?", call("refund", order="42", cents=9900)), "Done as you said."),
    "Book": ("Which room?",),
    "12": (("Booking.", call("book", room="12")), "Booked."),
    "Delegate": (("My helper knows.", call("helper", task="Look at it")), "The helper says: fine."),
    "Wait": (("Waiting.", call("wait_for", path="go")), "It came."),
    "Err": (
        call("lok_up", order="42"),
        call("look_up", order=42, nonsense=1),
        call("look_up", order="42"),
        "Finally.",
    ),
}


def decide(prompt: Prompt) -> Line:
    """The next line of the script that the last message of the user names."""
    said = [place for place, message in enumerate(prompt.messages) if message.role == "user"]
    word = prompt.messages[said[-1]].text.split()[0]
    replies = sum(message.role == "assistant" for message in prompt.messages[said[-1] :])
    script = SCRIPTS.get(word, (f"You said {word}.",))
    return script[min(replies, len(script) - 1)]


_price = Price(input_usd_per_mtok=30, output_usd_per_mtok=150)
_helper = holdfast.Agent(
    ScriptedModel(decide, name="pretend-1"), name="helper", tools=[look_up], price=_price
)
clerk = holdfast.Agent(
    ScriptedModel(decide, name="pretend-1"),
    name="clerk",
    tools=[look_up, charge, pay, announce, book, refund, wait_for, _helper.as_tool()],
    price=_price,
)


def make_clerk() -> holdfast.Agent:
    """The same one, from a function."""
    return clerk
