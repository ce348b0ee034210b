"""What is counted and measured."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.agents import Reply, ScriptedModel
from holdfast.errors import ModelError
from holdfast.messages import Message, Text
from holdfast.records import Usage
from tests.agent.scripted_agents import call, fresh_store, make
from tests.telemetry.exporters import Listener

REPLY = Reply(
    message=Message(role="assistant", blocks=(Text("Fine."),)),
    usage=Usage(input_tokens=100, output_tokens=7),
    model="model-2026",
)
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "model",
    "gen_ai.response.model": "model-2026",
}


def without_sums(points: list[tuple[Any, float]]) -> list[dict[str, Any]]:
    """The attributes alone; durations vary."""
    assert all(total > 0 for _, total in points)
    return [dict(attributes) for attributes, _ in points]


async def test_tokens_and_durations_are_measured(listener: Listener) -> None:
    model = ScriptedModel([ModelError("busy", retryable=True), REPLY], name="openai:model")
    async with fresh_store() as store:
        await make(model, name="clerk").run("Go", session="s", store=store)
    tokens = {
        point["gen_ai.token.type"]: (point, total)
        for point, total in listener.points("gen_ai.client.token.usage")
    }
    assert tokens == {
        "input": ({**CHAT, "gen_ai.token.type": "input"}, 100),
        "output": ({**CHAT, "gen_ai.token.type": "output"}, 7),
    }
    failed = {**CHAT, "error.type": "holdfast.errors.ModelError"}
    del failed["gen_ai.response.model"]
    assert without_sums(listener.points("gen_ai.client.operation.duration")) == [failed, CHAT]
    assert without_sums(listener.points("gen_ai.invoke_agent.duration")) == [
        {"gen_ai.agent.name": "clerk", "gen_ai.request.model": "model"}
    ]


async def test_refusals_are_counted_by_gate(listener: Listener) -> None:
    """A name that the model made up is not among the attributes: a counter for each would never end."""
    calls = [call("lok", what="x"), call("look", id="1", wat="x"), call("look", id="2", wat="y")]
    policy = holdfast.tools.Policy(holdfast.tools.deny("pay"))
    agent = make([calls, call("pay", what="x"), "I give up."], name="clerk", policy=policy)
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
    counted = {
        (point["holdfast.tool.gate"], point.get("gen_ai.tool.name")): total
        for point, total in listener.points("holdfast.tool.refusals")
    }
    assert counted == {("name", None): 1, ("arguments", "look"): 2, ("policy", "pay"): 1}


async def test_dispatches_are_measured_by_tool(listener: Listener) -> None:
    calls = [call("look", what="x"), call("vanish", what="x")]
    async with fresh_store() as store:
        await make([calls, "Done."], name="clerk", in_doubt="tell").run("Go", session="s", store=store)
    assert without_sums(listener.points("gen_ai.execute_tool.duration")) == [
        {"gen_ai.agent.name": "clerk", "gen_ai.tool.name": "look"},
        {"gen_ai.agent.name": "clerk", "gen_ai.tool.name": "vanish", "error.type": "OSError"},
    ]
