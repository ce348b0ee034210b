"""Agents that the tests run: LangChain's own, with scripted models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import anyio
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import holdfast
from holdfast.adapters.langgraph import HoldfastMiddleware, HoldfastSaver
from holdfast.core.effects import Effect
from holdfast.core.entries import ToolIssued, ToolRan

Way: TypeAlias = Literal["invoke", "ainvoke"]
WAYS: tuple[Way, ...] = ("invoke", "ainvoke")
GO: Any = {"messages": [HumanMessage("go", id="h")]}


class ScriptedChat(BaseChatModel):
    """A chat model that says what the script says: by the number of its replies that it is shown."""

    script: list[Any]
    on_turn: Callable[[int], object] = lambda turn: None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Any tools will do."""
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        turn = sum(isinstance(one, AIMessage) for one in messages)
        self.on_turn(turn)
        return ChatResult(generations=[ChatGeneration(message=reply(turn, self.script[turn]))])


def reply(turn: int, said: Any) -> AIMessage:
    """A reply: text, or calls, which have ids that many providers give, and repeat."""
    if isinstance(said, str):
        return AIMessage(said, id=f"reply {turn}")
    calls = [{"name": name, "args": args, "id": f"call_{turn}_{at}"} for at, (name, args) in enumerate(said)]
    return AIMessage("", id=f"reply {turn}", tool_calls=calls)


def agent_of(
    place: holdfast.Store, script: list[Any], tools: list[Any], *middleware: Any, **more: Any
) -> Any:
    """An agent with these tools and this middleware, whose checkpoints are in the store."""
    return create_agent(
        ScriptedChat(script=script),
        tools,
        middleware=middleware,
        checkpointer=HoldfastSaver(place),
        **more,
    )


def durable_agent(store: holdfast.Store, script: list[Any], tools: list[Any], **options: Any) -> Any:
    """The same, with our middleware alone."""
    return agent_of(store, script, tools, HoldfastMiddleware(store, **options))


async def drive(agent: Any, given: Any, thread: str = "t", way: Way = "ainvoke") -> dict[str, Any]:
    """The state of the agent after a run, which waits for its checkpoints."""
    config = {"configurable": {"thread_id": thread}}
    if way == "ainvoke":
        state: dict[str, Any] = await agent.ainvoke(given, config, durability="sync")
    else:
        state = await anyio.to_thread.run_sync(partial(agent.invoke, given, config, durability="sync"))
    return state


def results(state: dict[str, Any]) -> list[str]:
    """What the tools answered."""
    return [str(one.content) for one in state["messages"] if isinstance(one, ToolMessage)]


async def list_effects(store: holdfast.Store) -> list[Effect]:
    """What is in the ledgers of all threads."""
    found: list[Effect] = []
    async for one in store.sessions(label={"adapter": "langgraph.tools"}):
        found += (await store.load(one.session)).facts.effects.rows.values()
    return found


async def list_arguments(store: holdfast.Store) -> list[tuple[str, Any]]:
    """The arguments of each call, as its intent has them."""
    return [
        (entry.body.tool, entry.body.args)
        async for one in store.sessions(label={"adapter": "langgraph.tools"})
        async for entry in store.tail(one.session, follow=False)
        if isinstance(entry.body, ToolIssued | ToolRan)
    ]
