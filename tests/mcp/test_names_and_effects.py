"""What tools of MCP servers are called, and what they are taken to do."""

from __future__ import annotations

import logging
from typing import Any

import mcp_types as types
import pytest
from mcp.server import Server

import holdfast
from holdfast.adapters.mcp import HttpServer, mcp_tools, mutate, read, write
from holdfast.errors import BadInput, NotFound
from holdfast.tools import ToolEffects
from holdfast.tools.declaration import AnyTool


def spec(name: str, schema: Any = None, **hints: Any) -> types.Tool:
    """A tool as a server lists it."""
    annotations = types.ToolAnnotations(**hints) if hints else None
    return types.Tool(name=name, input_schema=schema or {"type": "object"}, annotations=annotations)


def serving(*specs: types.Tool, name: str = "demo") -> Server[Any]:
    """A server in this process that lists these, and answers each call with the tool's name and arguments."""

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[one.model_copy() for one in specs])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = f"{name}: {params.name} {params.arguments}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)


READS = {"read_only_hint": True}
ACTS = (["mutate"], "call")


def told(tool: AnyTool) -> tuple[list[str], str]:
    """Its side effects and scope."""
    return sorted(tool.side_effects), str(tool.scope)


async def test_only_the_hint_that_a_tool_reads_is_believed() -> None:
    """That it may run again is believed of a server that is trusted."""
    server = serving(
        spec("reads", **READS),
        spec("sets", idempotent_hint=True),
        spec("adds", destructive_hint=False),
        spec("silent"),
        spec("both", read_only_hint=True, destructive_hint=True),
    )
    async with mcp_tools(server) as tools:
        reads = (["read"], "call")
        assert list(map(told, tools)) == [reads, ACTS, ACTS, ACTS, reads]
        assert [one.is_declared for one in tools] == [True, True, True, False, True]
    async with mcp_tools(server, trust=True) as tools:
        assert told(tools[1]) == (["write"], "call")
        assert told(tools[2]) == ACTS


async def test_declarations_by_name_and_glob_win_over_hints() -> None:
    """All but `*`, which is for tools that say nothing."""

    def was_sent(**args: Any) -> holdfast.NotLanded:
        return holdfast.NotLanded()

    server = serving(spec("search_a", destructive_hint=True), spec("send", **READS), spec("say"), spec("sit"))
    effects: dict[str, ToolEffects] = {
        "search_*": "read",
        "send": mutate(verify=was_sent, scope="run", idempotent=60, needs_approval=True),
        "sit": write(timeout_s=3),
        "*": "pure",
    }
    async with mcp_tools(server, effects=effects, timeout_s=7) as tools:
        search, send, say, sit = tools
        assert (told(search), search.timeout_s) == ((["read"], "call"), 7)
        assert (told(send), send.idempotent_s) == ((["mutate"], "run"), 60)
        assert send.verify is not None
        assert send.needs_approval is True
        assert say.side_effects == set()
        assert (told(sit), sit.timeout_s) == ((["write"], "repeat"), 3)


async def test_a_star_warns_of_the_tools_that_it_covers_when_they_are_opened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before one of them can be called; not of those of which the server says something."""
    server = serving(spec("search"), spec("send"), spec("look", **READS))
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with mcp_tools(server, effects={"*": "read"}):
            (warned,) = [one.getMessage() for one in caplog.records]
            assert warned.startswith(
                "effects={'*': …} covers search, send: they are run again after a crash. "
            )
    caplog.clear()
    async with mcp_tools(server, effects={"*": "mutate"}):
        assert caplog.records == []


async def test_an_agent_may_declare_them_as_any_tool() -> None:
    async with mcp_tools(serving(spec("search"))) as tools:
        registry = holdfast.Registry(tools, effects={"search": read()})
        assert registry.get_tool("search").side_effects == {"read"}
        assert (await registry.dispatch("search", {"a": 1})).value == "demo: search {'a': 1}"


async def test_a_name_in_effects_that_no_tool_has_is_refused() -> None:
    with pytest.raises(BadInput, match="Did you mean 'search'"):
        async with mcp_tools(serving(spec("search")), effects={"serach": "read"}):
            pass


async def test_a_hook_that_does_not_fit_is_refused_when_the_tools_are_opened() -> None:
    schema = {"type": "object", "properties": {"to": {}, "cents": {}}}
    with pytest.raises(BadInput, match="verify must have the tool's own parameters"):
        async with mcp_tools(
            serving(spec("pay", schema)), effects={"pay": mutate(verify=lambda amount: holdfast.Unsure())}
        ):
            pass


async def test_a_call_that_needs_approval_waits_for_a_person() -> None:
    async with mcp_tools(serving(spec("pay")), effects={"pay": mutate(needs_approval=True)}) as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store:
            async with store.session("s") as session:
                waiting = await registry.dispatch("pay", {}, call_id="c", session=session)
                assert waiting.status == "waiting"
            await store.approve("s", "c", by="ann")
            async with store.session("s") as session:
                done = await registry.dispatch("pay", {}, call_id="c", session=session)
                assert done.status == "completed"


async def test_names_have_a_prefix_on_request_and_where_two_servers_use_the_same() -> None:
    """The server that comes first keeps its names."""
    here, there = serving(spec("search"), spec("a")), serving(spec("search"), spec("b"), name="other")
    async with mcp_tools({"here": here, "over-there": there}) as tools:
        assert [one.name for one in tools] == ["search", "a", "over-there_search", "b"]
        assert await tools.get_tool("over-there_search")() == "other: search {}"
        holdfast.Registry(tools)
    async with mcp_tools({"here": here, "there": there}, prefix=True) as tools:
        assert [one.name for one in tools] == ["here_search", "here_a", "there_search", "there_b"]
    async with mcp_tools(here, prefix="x.") as tools:
        assert [one.name for one in tools] == ["x.search", "x.a"]
        with pytest.raises(NotFound, match=r"did you mean 'x\.search'"):
            tools.get_tool("search")


async def test_odd_names_become_names_that_stay_the_same() -> None:
    """Each has a digest of the name on the server, so that two never become one, whatever else is listed."""
    odd = ["files/read", "files read", "1st", "", "x" * 100, "\x1b[2J", "größe", "-", "files_read"]
    async with mcp_tools(serving(*map(spec, odd))) as tools:
        names = [one.name for one in tools]
        assert len(set(names)) == len(odd)
        for one, name in zip(tools, names, strict=True):
            holdfast.tool(name=name, side_effects="read")(lambda: None)  # It could be one of ours.
            assert await one() == f"demo: {odd[names.index(name)]} {{}}"
        assert names[-1] == "files_read"
    for name, given in zip(odd, names, strict=True):
        async with mcp_tools(serving(spec(name))) as tools:
            assert [one.name for one in tools] == [given]


async def test_a_tool_that_is_listed_twice_is_there_once() -> None:
    async with mcp_tools(serving(spec("a", **READS), spec("a"))) as tools:
        assert [(one.name, told(one)) for one in tools] == [("a", (["read"], "call"))]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("git", 'Give a command as a list, such as ["uvx", "mcp-server-git"]'),
        ([], "list is no MCP server"),
        (["uvx", 3], "list is no MCP server"),
        ({}, "there is no MCP server"),
        (None, "NoneType is no MCP server"),
    ],
)
def test_what_is_no_server_is_refused(given: Any, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        mcp_tools(given)
    assert why in str(refused.value)


def test_options_that_make_no_sense_are_refused() -> None:
    server = serving()
    with pytest.raises(BadInput, match="is not known; there are auto, legacy"):
        mcp_tools(server, protocol="2025-11-25")
    with pytest.raises(BadInput, match="must be positive"):
        mcp_tools(server, timeout_s=0)
    with pytest.raises(BadInput, match="is for one server"):
        mcp_tools({"a": server, "b": server}, prefix="x")


def test_headers_and_secrets_in_addresses_are_not_shown() -> None:
    shown = repr(HttpServer("https://me:secret@example.org/mcp?key=secret", headers={"X": "secret"}))
    assert "secret" not in shown
    assert "https://example.org/mcp" in shown
