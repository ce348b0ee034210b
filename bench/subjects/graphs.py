"""A LangGraph graph of one node, invoked once a step, each checkpoint waited for (`durability="sync"`)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from bench.subjects.contract import Place
from bench.subjects.savers import OPENERS, set_up


class Whole(TypedDict):
    """A channel that LangGraph's savers write whole, each time."""

    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    """A channel that is written whole each hundredth time, and by what is new between."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=100)]


class Graph:
    """The graph on one saver, with one kind of channel."""

    def __init__(self, saver: str, channel: str) -> None:
        self._open_saver = OPENERS[saver]
        self._state: type[Any] = {"add_messages": Whole, "delta": Delta}[channel]

    async def open(self, place: Place, sessions: int) -> None:
        await self.reopen(place)
        await set_up(self._saver)
        self._said = [""] * sessions

    async def reopen(self, place: Place) -> None:
        self._opened = AsyncExitStack()
        self._saver = await self._opened.enter_async_context(self._open_saver(place))

        async def answer(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [AIMessage(self._said[config["configurable"]["session"]])]}

        graph: Any = StateGraph(self._state)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        self._graph = graph.compile(checkpointer=self._saver)

    async def step(self, session: int, first: str, second: str) -> None:
        self._said[session] = second
        given = {"messages": [HumanMessage(first)]}
        await self._graph.ainvoke(given, self._config(session), durability="sync")

    async def load(self, session: int) -> int:
        found = await self._graph.aget_state(self._config(session))
        return len(found.values["messages"])

    def _config(self, session: int) -> RunnableConfig:
        return {"configurable": {"thread_id": f"t{session}", "session": session}}

    async def close(self) -> None:
        await self._opened.aclose()
