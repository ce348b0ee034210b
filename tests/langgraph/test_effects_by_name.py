"""`durable_tools(…, effects={…})`: LangChain's tools, declared by name and by glob."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as langchain_tool

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, durable_tools, effects, mutate, pure, read
from holdfast.errors import BadInput

from .graphs import thread
from .test_tools import GO, calls, clerk, results

sent: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@langchain_tool
def search_mail(query: str) -> str:
    """Search the mail."""
    return f"no mail about {query}"


@langchain_tool
def search_web(query: str) -> str:
    """Search the web."""
    return f"found {query}"


@langchain_tool
def send_mail(to: str) -> str:
    """Send a mail."""
    sent.append(to)
    if len(sent) == 1 and to == "cut off":
        raise ConnectionError("no answer")
    return f"sent to {to}"


TOOLS: list[Any] = [search_mail, search_web, send_mail]


async def ledger(store: holdfast.Store) -> dict[str, tuple[tuple[str, ...], str]]:
    """The side effects and the scope with which each tool is on record."""
    [session] = [one async for one in store.sessions(label={"adapter": "langgraph.tools"})]
    rows = (await store.load(session.session)).facts.effects.rows.values()
    return {row.tool: (row.side_effects, row.scope) for row in rows}


def one_each(tools: list[BaseTool], saver: HoldfastSaver) -> Any:
    """A graph that calls each of the tools."""
    asked = calls(
        ("search_mail", {"query": "x"}), ("search_web", {"query": "y"}), ("send_mail", {"to": "ann"})
    )
    return clerk(saver, tools, [asked, AIMessage("ok")])


async def test_tools_are_declared_by_name_and_by_glob(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger has them so, and there is nothing to warn of."""
    tools = durable_tools(
        TOOLS, store=store, effects={"search_*": "write", "search_web": pure(), "send_mail": mutate()}
    )
    graph = one_each(tools, HoldfastSaver(store))
    state = await graph.ainvoke(GO, thread(), durability="sync")
    assert results(state) == ["no mail about x", "found y", "sent to ann"]
    assert await ledger(store) == {
        "search_mail": (("write",), "repeat"),
        "search_web": ((), "call"),
        "send_mail": (("mutate",), "session"),
    }
    assert caplog.records == []


async def test_a_call_in_doubt_is_settled_as_its_glob_says(store: holdfast.Store) -> None:
    """The hook that was declared for the name is asked, and the mail is not sent again."""

    def was_sent(to: str) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed("it was sent") if to in sent else holdfast.NotLanded()

    tools = durable_tools([send_mail], store=store, effects={"send_*": mutate(verify=was_sent)})
    script = [calls(("send_mail", {"to": "cut off"})), AIMessage("ok")]
    state = await clerk(HoldfastSaver(store), tools, script).ainvoke(GO, thread())
    assert results(state) == ["it was sent"]
    assert sent == ["cut off"]


async def test_names_and_globs_win_over_what_the_tools_declare(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """`effects(…)` around a tool, and holdfast's own tools. The bare `*` is for the others."""

    @holdfast.tool(side_effects={"mutate"}, name="search_web")
    def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    declared: list[Any] = [
        effects(search_mail, side_effects="mutate"),
        search,
        effects(send_mail, side_effects="mutate"),
    ]
    for by_name, scope in (({"search_*": read(), "*": read()}, "call"), ({"*": read()}, "session")):
        tools = durable_tools(declared, store=store, effects={**by_name})
        graph = one_each(tools, HoldfastSaver(store))
        await graph.ainvoke(GO, thread(scope), durability="sync")
        labels = {"adapter": "langgraph.tools", "langgraph.thread": scope}
        [session] = [one async for one in store.sessions(label=labels)]
        rows = (await store.load(session.session)).facts.effects.rows.values()
        assert {row.tool: row.scope for row in rows} == {
            "search_mail": scope,
            "search_web": scope,
            "send_mail": "session",
        }
    assert caplog.records == []


async def test_the_declaration_of_another_tool_will_do(store: holdfast.Store) -> None:
    """What `effects(tool, …)` gives can stand in the mapping."""
    given = effects(send_mail, side_effects="write", timeout_s=3)
    [tool] = durable_tools([send_mail], store=store, effects={"send_mail": given})
    await tool.ainvoke({"to": "ann"}, thread())
    assert await ledger(store) == {"send_mail": (("write",), "repeat")}


@pytest.mark.parametrize("kind", ["langchain", "plain"])
async def test_a_tool_that_declares_nothing_is_told_what_to_write(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """In the words of this adapter."""

    def send_letter(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"

    given = langchain_tool(send_letter) if kind == "langchain" else send_letter
    with caplog.at_level(logging.WARNING, "holdfast"):
        [tool] = durable_tools([given], store=store)
    assert [one.getMessage() for one in caplog.records] == [
        (
            "tool 'send_letter' does not say what it does to the world: treated as side_effects='mutate', "
            "scope='call'. If it only reads, write durable_tools([…], effects={'send_letter': \"read\"})."
        )
    ]
    await tool.ainvoke({"to": "ann"}, thread())
    assert await ledger(store) == {"send_letter": (("mutate",), "call")}


def test_a_name_that_no_tool_has_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """It was meant for one, which would go without; a glob is only warned of."""
    store = holdfast.open_store("memory:")
    with pytest.raises(BadInput, match=r"'send_mial': …\} matches no tool; .* Did you mean 'send_mail'\?"):
        durable_tools(TOOLS, store=store, effects={"send_mial": "mutate", "search_*": "read"})
    caplog.clear()
    durable_tools(TOOLS, store=store, effects={"s*": "mutate", "find_*": "read"})
    assert [one.getMessage() for one in caplog.records] == [
        "effects={'find_*': …} matches no tool; there are ['search_mail', 'search_web', 'send_mail']"
    ]


def test_a_star_warns_of_the_tools_that_it_covers(caplog: pytest.LogCaptureFixture) -> None:
    """Unless it is careful."""
    store = holdfast.open_store("memory:")
    durable_tools(TOOLS, store=store, effects={"*": "mutate"})
    assert caplog.records == []
    durable_tools(TOOLS, store=store, effects={"*": "read", "send_mail": "mutate"})
    assert [one.getMessage() for one in caplog.records] == [
        (
            "effects={'*': …} covers search_mail, search_web: they are run again after a crash. "
            'Give those that act a "mutate" of their own.'
        )
    ]


@pytest.mark.parametrize("by_name", [{"send_mail": "reads"}, {"send_mail": {"side_effects": "read"}}, ["x"]])
def test_effects_that_cannot_be_meant_are_refused(by_name: Any) -> None:
    """When the tools are made."""
    with pytest.raises(BadInput, match="effects="):
        durable_tools(TOOLS, store=holdfast.open_store("memory:"), effects=by_name)


async def test_in_a_chat_the_same_mail_is_sent_again_with_the_scope_of_a_call(store: holdfast.Store) -> None:
    """A graph's calls are in no run, and the error for `scope="run"` says what to write."""
    with pytest.raises(BadInput, match=r"'send_mail': scope='run' .* Write scope='call'"):
        durable_tools([send_mail], store=store, effects={"send_mail": mutate(scope="run")})
    tools = durable_tools([send_mail], store=store, effects={"send_mail": mutate(scope="call")})
    script = [calls(("send_mail", {"to": "ann"})), AIMessage("ok")]
    script += [calls(("send_mail", {"to": "ann"})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), tools, script)
    await graph.ainvoke(GO, thread())
    state = await graph.ainvoke({"messages": [HumanMessage("Send it again", id="h2")]}, thread())
    assert results(state) == ["sent to ann", "sent to ann"]
    assert sent == ["ann", "ann"]
