"""An agent of the OpenAI Agents SDK, as its own documentation has it, and with holdfast."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunHooks, Runner, SQLiteSession, Usage, function_tool
from agents.testing import assistant_message, function_call

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, current_effect, effects
from holdfast.crash_test import HttpWorld

from .own_agents import post, was_posted

PROMPT = "Refund order 42"


class Clerk(Model):
    """Calls the tool, then answers."""

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> Any:
        """The reply to what is in the history."""
        has_result = not isinstance(input, str) and any(
            one.get("type") == "function_call_output" for one in input
        )
        said: Any = function_call("refund", {"order": "42"}, call_id="call_0")
        if has_result:
            said = assistant_message("Order 42 is refunded.")
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """No run here is streamed."""
        raise NotImplementedError


class Hooks(RunHooks[Any]):
    """Hooks of the user's own, which are called as well."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Note it."""
        self.called.append(tool.name)


async def stock_openai(world: HttpWorld) -> Any:
    """The SDK with its own session: after a crash, the application runs the agent again."""

    @function_tool
    def refund(order: str) -> str:
        """Give the money back."""
        post(world, "/refunds", {"order": order})
        return order

    hooks = Hooks()
    session = SQLiteSession("order-42", world.agent_dir / "agents.db")
    agent = Agent(name="clerk", model=Clerk(), tools=[refund])
    result = await Runner.run(agent, PROMPT, session=session, hooks=hooks)
    assert set(hooks.called) <= {"refund"}
    session.close()
    return result.final_output


async def durable_openai(world: HttpWorld) -> Any:
    """The same with `DurableRunner`."""

    async def was_refunded(
        ctx: holdfast.ToolContext[Any], order: str
    ) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed(order) if was_posted(world, "/refunds", ctx.key) else holdfast.NotLanded()

    @effects(side_effects="mutate", verify=was_refunded)
    @function_tool
    def refund(order: str) -> str:
        """Give the money back."""
        post(world, "/refunds", {"order": order}, current_effect().key)
        return order

    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        agent = Agent(name="clerk", model=Clerk(), tools=[refund])
        session = HoldfastSession("order-42", store)
        result = await DurableRunner.run(agent, PROMPT, session=session, run_key="order-42")
        return result.final_output
