"""Pages of the sessions that adapters write."""

from __future__ import annotations

import agents
import anyio
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain_core.messages import HumanMessage
from pydantic_ai import Agent
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, effects
from holdfast.adapters.pydantic_ai import Durable
from holdfast.cli.html_page import make_page, read_page_data
from tests.langgraph.graphs import chat, thread
from tests.pydantic_ai.scripted_runs import Script


def make_clerk() -> agents.Agent[None]:
    """An agent of the OpenAI Agents SDK that looks, and answers."""

    @effects(side_effects="read")
    @agents.function_tool
    def look(order: str) -> str:
        """Look."""
        return f"order {order} is here"

    script = [function_call("look", {"order": "43"}, call_id="k1")], [assistant_message("Found <b>it</b>.")]
    return agents.Agent(name="clerk", model=ScriptedModel(list(script)), tools=[look])


async def _make_pages() -> dict[str, str]:
    """The page of each session, by its adapter."""
    script = Script([TextPart("I look."), ToolCallPart("look", {"order": "42"}, "k1")], "Found <it>.")
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session="pai", effects={"look": "read"})
        agent = Agent(FunctionModel(script), capabilities=[durable])

        @agent.tool_plain
        def look(order: str) -> str:
            return f"order {order} is here"

        await agent.run("Where is 42?")
        await DurableRunner.run(make_clerk(), "Where is 43?", session=HoldfastSession("sdk", store))
        await chat(HoldfastSaver(store)).ainvoke({"messages": [HumanMessage("Hello", id="h0")]}, thread("t1"))
        return {
            head.labels.get("adapter") or head.labels["agent_framework"]: make_page(
                await read_page_data(store, head)
            )
            async for head in store.sessions()
        }


def test_sessions_of_other_frameworks_have_pages() -> None:
    """Messages of pydantic-ai and the OpenAI Agents SDK with calls and results; a LangGraph thread with
    its checkpoints."""
    pages = anyio.run(_make_pages)
    talk = pages["pydantic-ai"]
    for said in ("Where is 42?", "I look.", "look(order=&quot;42&quot;)", "order 42 is here"):
        assert said in talk
    assert "Found &lt;it&gt;." in talk
    assert talk.count("hf-bar hf-model") == 2
    sdk = pages["openai-agents"]
    for said in ("Where is 43?", "look(order=&quot;43&quot;)", "order 43 is here", "Found <b>it</b>."):
        assert said.replace("<", "&lt;").replace(">", "&gt;") in sdk
    assert sdk.count("hf-bar hf-model") == 2
    assert pages["langgraph"].count("langgraph.put") >= 2
