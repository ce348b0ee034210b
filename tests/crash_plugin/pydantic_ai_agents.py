"""An agent of pydantic-ai, as its own documentation has it, and with holdfast."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.adapters.pydantic_ai import Durable, current_effect, effects
from holdfast.crash_test import HttpWorld

from .own_agents import post, was_posted


def pydantic_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the tool, then answers."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("refund", {"order": "42"}, "call_0")])
    return ModelResponse(parts=[TextPart("Order 42 is refunded.")])


async def stock_pydantic_ai(world: HttpWorld) -> str:
    """pydantic-ai alone: after a crash, the application runs the agent again."""
    agent = Agent(FunctionModel(pydantic_model), name="clerk")

    @agent.tool_plain
    def refund(order: str) -> str:
        """Give the money back."""
        post(world, "/refunds", {"order": order})
        return order

    return (await agent.run("Refund order 42")).output


async def durable_pydantic_ai(world: HttpWorld) -> str:
    """The same with `Durable`."""
    agent = Agent(FunctionModel(pydantic_model), name="clerk")

    def was_refunded(ctx: holdfast.ToolContext[Any], order: str) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed(order) if was_posted(world, "/refunds", ctx.key) else holdfast.NotLanded()

    @agent.tool_plain(metadata=effects(side_effects={"mutate"}, verify=was_refunded))
    def refund(order: str) -> str:
        """Give the money back."""
        post(world, "/refunds", {"order": order}, current_effect().key)
        return order

    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        durable = Durable(store, session="order-42", once=True)
        return (await agent.run("Refund order 42", capabilities=[durable])).output
