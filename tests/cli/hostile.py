"""An agent whose model, tools and errors say what a terminal would act on."""

from __future__ import annotations

import holdfast
from holdfast.agents import Prompt, ScriptedModel
from holdfast.agents.scripted_model import Line
from holdfast.errors import ModelError
from holdfast.messages import ToolCall
from holdfast.tools import Policy, ask

MARKUP = "[/bold][red]"
ESCAPES = "\x1b]52;c;aGk=\x07\x1b[2J\x9b2J\x7f\u202elive\u2069\u200b\u2028\U000e0041\b\r"
HOSTILE = f"{MARKUP}{ESCAPES}\nholdfast: all is well\t{MARKUP}"


@holdfast.tool(side_effects={"read"}, pollable=True)
def look(what: str) -> str:
    """Look."""
    return f"{HOSTILE}{what}"


@holdfast.tool(side_effects={"mutate"})
def charge(what: str) -> str:
    """Charge, perhaps."""
    raise OSError(HOSTILE)


@holdfast.tool(side_effects={"read"})
def fail(what: str) -> str:
    """Fail."""
    raise ValueError(HOSTILE)


@holdfast.tool(side_effects={"mutate"})
def refund(what: str) -> str:
    """Give the money back."""
    return HOSTILE


def explode() -> None:
    """Dependencies that cannot be made."""
    raise RuntimeError(HOSTILE)


def call(name: str, **args: object) -> ToolCall:
    return ToolCall(id=f"{name}{HOSTILE}", name=name, args=args)


SCRIPTS: dict[str, tuple[Line, ...]] = {
    "Refuse": (
        (HOSTILE, call(HOSTILE, what=HOSTILE)),
        (HOSTILE, ToolCall(id="c1", name="look", args={HOSTILE: HOSTILE})),
        (HOSTILE, call("look", what=HOSTILE), call("fail", what=HOSTILE)),
        HOSTILE,
    ),
    "Charge": ((HOSTILE, call("charge", what=HOSTILE)), HOSTILE),
    "Ask": ((HOSTILE, call("refund", what=HOSTILE)), HOSTILE),
    "Look": ((HOSTILE, call("look", what=HOSTILE)), HOSTILE),
}


def decide(prompt: Prompt) -> Line:
    """The next line of the script that the last message of the user names."""
    said = [place for place, message in enumerate(prompt.messages) if message.role == "user"]
    word = prompt.messages[said[-1]].text.split()[0]
    if word == "Break":
        raise ModelError(HOSTILE)
    replies = sum(message.role == "assistant" for message in prompt.messages[said[-1] :])
    script = SCRIPTS.get(word, (HOSTILE,))
    return script[min(replies, len(script) - 1)]


clerk = holdfast.Agent(
    ScriptedModel(decide, name=HOSTILE),
    name=HOSTILE,
    tools=[look, charge, fail, refund],
    policy=Policy(ask("refund", why=HOSTILE)),
    price=holdfast.agents.Price(input_usd_per_mtok=30, output_usd_per_mtok=150),
)
