"""Servers that cannot be reached, that go away in the middle of calls, and that come back."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client import ClientRequestContext
from mcp.server import Server
from mcp.server.mcpserver import Context, MCPServer

import holdfast
from holdfast.adapters.mcp import HttpServer, McpTools, ServerUnreachable, mcp_tools, mutate
from tests.crash.fork_server import DEADLINE_S
from tests.ports import free_port

from .killed_client import command
from .office import Name
from .plain_http import DROP, HANG, PlainHttp
from .test_names_and_effects import serving, spec

Pay = Callable[[int], Awaitable[holdfast.tools.Result]]


@asynccontextmanager
async def paying(tools: McpTools) -> AsyncIterator[Pay]:
    """A session, and what pays in it."""
    registry = holdfast.Registry(tools)
    async with holdfast.open_store("memory:") as store, store.session("s") as session:

        async def pay(cents: int) -> holdfast.tools.Result:
            return await registry.dispatch("pay", {"to": "ann", "cents": cents}, session=session)

        yield pay


async def failing(server: Any, **options: Any) -> str:
    with pytest.raises(ServerUnreachable) as failed:
        async with mcp_tools(server, **options):
            pass
    return str(failed.value)


async def test_a_command_that_cannot_be_started_says_what_to_do() -> None:
    text = await failing(["/nowhere/mcp-server", "--key", "secret"])
    assert "the MCP server 'mcp-server' (command '/nowhere/mcp-server') cannot be started" in text
    assert "No such file" in text
    assert "Give the full path" in text
    assert "secret" not in text


async def test_a_command_that_is_no_server_is_quoted_with_its_last_words() -> None:
    """Without the control characters in them."""
    text = await failing([sys.executable, "-S", "-c", "import sys; sys.exit('usage: \\x1b[2J me')"])
    assert "ended before it had listed its tools. Does this command start an MCP server on stdio?" in text
    assert r"It said: 'usage: \x1b[2J me'" in text


async def test_a_server_that_says_nothing_is_not_waited_for_without_end() -> None:
    text = await failing([sys.executable, "-S", "-c", "for line in open(0): pass"], open_timeout_s=0.1)
    assert "has not listed its tools within 0.1 s; pass open_timeout_s=… to wait longer" in text


async def test_an_address_without_a_server_says_so() -> None:
    text = await failing(f"http://127.0.0.1:{free_port()}/mcp?key=secret")
    assert "cannot be reached" in text
    assert "Is the server running, and is this its address?" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, 'headers={"Authorization": …}'),
        (403, 'headers={"Authorization": …}'),
        (404, "Is this the address of its MCP endpoint"),
        (500, "Is this the address of its MCP endpoint"),
    ],
)
async def test_an_address_of_something_else_says_so(status: int, advice: str, tmp_path: Path) -> None:
    server = PlainHttp(tmp_path)
    server.gate = status
    with server.serve() as url:
        text = await failing(url)
    assert f"answered HTTP {status}" in text
    assert advice in text


async def test_headers_are_sent(tmp_path: Path) -> None:
    server = PlainHttp(tmp_path)
    with server.serve() as url:
        async with mcp_tools(HttpServer(url, headers={"Authorization": "Bearer t"})) as tools:
            assert len(tools) == 3
    assert {one["Authorization"] for one in server.headers} == {"Bearer t"}


async def test_of_several_servers_the_one_that_fails_is_named(tmp_path: Path) -> None:
    """The others are ended."""
    with pytest.raises(ServerUnreachable, match="'gone'"):
        async with mcp_tools({"here": command(tmp_path), "gone": ["/nowhere/x"]}):
            pass


ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


@ERAS
async def test_a_call_that_never_reached_the_server_is_not_done(era: str, tmp_path: Path) -> None:
    """A refused connection is a failure and no doubt. When the server is there again, calls work. In the old
    era, its new process does not know the session of the old one."""
    server, port = PlainHttp(tmp_path, era), 0
    with server.serve() as url:
        port = int(url.split(":")[2].partition("/")[0])
        tools = mcp_tools(url, effects={"pay": mutate()})
        await tools.__aenter__()
    try:
        async with paying(tools) as pay:
            failed = await pay(1)
            assert failed.status == "failed"
            assert "cannot be reached" in failed.content
            server = PlainHttp(tmp_path, era)
            with server.serve(port):
                assert (await pay(1)).status == "completed"
                assert (await pay(2)).status == "completed"
    finally:
        await tools.__aexit__(None, None, None)
    assert (tmp_path / "paid").read_text().split() == ["ann:1", "ann:2"]


@ERAS
async def test_a_connection_that_is_cut_in_a_call_leaves_that_call_in_doubt(era: str, tmp_path: Path) -> None:
    """And no other one that is under way."""
    server = PlainHttp(tmp_path, era)
    with server.serve() as url:
        async with mcp_tools(url) as tools, paying(tools) as pay:
            server.answers = [HANG]
            found: list[str] = []

            async def pay_slowly() -> None:
                found.append((await pay(1)).status)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pay_slowly)
                assert await anyio.to_thread.run_sync(server.waiting.wait, DEADLINE_S)
                server.answers = [DROP]
                assert (await pay(2)).status == "in_doubt"
                server.released.set()
            assert found == ["completed"]
            assert (await pay(3)).status == "completed"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "failed"),
        (403, "failed"),
        (413, "failed"),
        (429, "failed"),
        (500, "in_doubt"),
        (502, "in_doubt"),
    ],
)
async def test_what_a_server_refuses_is_not_done_and_what_it_fails_at_is_in_doubt(
    status: int, expected: str, tmp_path: Path
) -> None:
    server = PlainHttp(tmp_path)
    with server.serve() as url:
        async with mcp_tools(url) as tools, paying(tools) as pay:
            server.answers = [status]
            result = await pay(1)
            assert result.status == expected
            assert f"HTTP {status}" in result.content


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (types.METHOD_NOT_FOUND, "failed"),
        (types.INVALID_PARAMS, "failed"),
        (types.URL_ELICITATION_REQUIRED, "failed"),
        (types.INTERNAL_ERROR, "in_doubt"),
        (types.REQUEST_TIMEOUT, "in_doubt"),
        (-32050, "in_doubt"),
    ],
)
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_an_error_of_the_protocol_is_a_refusal_or_a_doubt(
    protocol: str, code: int, expected: str
) -> None:
    server = serving(spec("pay"))

    async def call_tool(ctx: Any, params: Any) -> Any:
        raise MCPError(code, "no", {"elicitations": [{"url": "https://example.org/allow"}]})

    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    async with mcp_tools(server, protocol=protocol) as tools, paying(tools) as pay:
        result = await pay(1)
        assert result.status == expected
        if code == types.URL_ELICITATION_REQUIRED:
            assert "Visit https://example.org/allow" in result.content


async def test_a_server_that_asks_during_a_call_is_answered_by_the_callback() -> None:
    """In the old era, it sends a request of its own."""
    server = MCPServer("asking")
    signed: list[str] = []

    @server.tool()
    async def sign(ctx: Context[Any, Any]) -> str:
        """Sign something."""
        found = await ctx.elicit("Your name?", Name)
        if found.action == "accept":
            signed.append(found.data.name)
        return found.action

    async def answer(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        return types.ElicitResult(action="accept", content={"name": "ann"})

    async with mcp_tools(server, protocol="legacy", elicitation_callback=answer) as tools:
        async with holdfast.open_store("memory:") as store, store.session("s") as session:
            result = await holdfast.Registry(tools).dispatch("sign", {}, session=session)
            assert (result.status, result.value) == ("completed", "accept")
    assert signed == ["ann"]


async def test_input_that_a_server_requires_is_given_in_another_round() -> None:
    """In the new era, it answers that it needs some; without a callback, nothing was done."""
    server: Server[Any] = Server("rounds")

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="sign", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
        if params.input_responses is None:
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            asked = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message="Your name?", requested_schema=schema)
            )
            return types.InputRequiredResult(input_requests={"who": asked}, request_state="half")
        assert params.request_state == "half"
        found = params.input_responses["who"]
        assert isinstance(found, types.ElicitResult)
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(found.content))])

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)

    async def answer(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        return types.ElicitResult(action="accept", content={"name": "ann"})

    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        async with mcp_tools(server, elicitation_callback=answer) as tools:
            result = await holdfast.Registry(tools).dispatch("sign", {}, session=session)
            assert (result.status, result.value) == ("completed", "{'name': 'ann'}")
        async with mcp_tools(server) as tools:
            result = await holdfast.Registry(tools).dispatch("sign", {"again": True}, session=session)
            assert result.status == "failed"
            assert "asks for elicitation/create" in result.content


async def test_the_body_of_a_block_raises_its_own_errors(tmp_path: Path) -> None:
    """Not a group, and not one of the connection."""
    with pytest.raises(ZeroDivisionError):
        async with mcp_tools(command(tmp_path)):
            raise ZeroDivisionError


async def test_a_server_is_ended_with_the_block(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path)):
        (pid,) = (tmp_path / "started").read_text().split()
        os.kill(int(pid), 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_tools_are_open_once(tmp_path: Path) -> None:
    async with mcp_tools(command(tmp_path)) as tools:
        with pytest.raises(holdfast.errors.Misuse):
            await tools.__aenter__()
        assert len(tools) == 3
