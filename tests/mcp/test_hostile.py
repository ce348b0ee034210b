"""Servers that send what no server should."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp.server import Server

import holdfast
from holdfast.adapters.mcp import mcp_tools
from holdfast.errors import BadInput
from holdfast.limits import MCP_TOOL_BYTES_MAX, MCP_TOOLS_MAX
from holdfast.tools.foreign_schema import ForeignArguments
from holdfast.tools.schema import BadArguments
from tests.tools.http_services import Service

from .test_names_and_effects import serving, spec


def arguments(schema: Any) -> ForeignArguments:
    return ForeignArguments("t", schema, bytes_max=MCP_TOOL_BYTES_MAX)


def doubling(depth: int) -> dict[str, Any]:
    """Each refers to the next one twice."""
    parts: dict[str, Any] = {"a0": {"type": "object"}}
    for number in range(1, depth + 1):
        below = {"$ref": f"#/$defs/a{number - 1}"}
        parts[f"a{number}"] = {"allOf": [below, below]}
    return {"$defs": parts, "$ref": f"#/$defs/a{depth}"}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


UNUSABLE: dict[str, dict[str, Any]] = {
    "without an end": {"$ref": "#"},
    "without an end, in turns": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "without an end, in parts": {"anyOf": [{"type": "string"}, {"allOf": [{"$ref": "#"}]}]},
    "without an end, by an anchor": {"$anchor": "top", "allOf": [{"$dynamicRef": "#top"}]},
    "doubling": doubling(40),
    "doubling, encoded": {
        "$defs": {
            "a 0": {"type": "object"},
            **{f"a {n}": {"allOf": [{"$ref": f"#/$defs/a%20{n - 1}"}] * 2} for n in range(1, 41)},
        },
        "$ref": "#/$defs/a%2040",
    },
    "of a file": {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
    "with a base of its own": {"properties": {"a": {"$id": "http://127.0.0.1/", "$ref": "#/b"}}},
    "large": {"description": "x" * (MCP_TOOL_BYTES_MAX + 1)},
    "deep": nested(5_000),
    "no schema": {"type": "thing"},
    "properties that are none": {"properties": ["a"]},
    "an unknown dialect": {"$schema": "http://127.0.0.1:9/dialect"},
    "a pattern that is none": {"properties": {"a": {"pattern": "("}}},
}


@pytest.mark.parametrize("schema", UNUSABLE.values(), ids=UNUSABLE)
def test_a_schema_that_could_do_harm_is_refused_at_once(schema: dict[str, Any]) -> None:
    """And not only when the model calls the tool."""
    with pytest.raises(BadInput, match="tool 't'"):
        arguments(schema)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as made:
        yield made


def test_no_reference_is_followed_to_another_place(service: Service) -> None:
    """Neither of a server's schema, nor of one that was given to a tool of ours."""
    schema = {"type": "object", "properties": {"a": {"$ref": service.url("/schema.json")}}}
    with pytest.raises(BadInput, match="another document"):
        arguments(schema)
    with pytest.raises(BadInput):
        holdfast.tool(name="t", schema=schema, side_effects="read")(lambda a: None)
    assert service.received == []


def test_schemas_that_refer_to_themselves_are_usual() -> None:
    """A tree is one, and so is a reference to the definition of schemas."""
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}},
    }
    found = arguments(tree)
    value = {"left": {"value": 1}, "right": {"left": {"value": 2}}}
    assert found.check(value) == (value, value)
    with pytest.raises(BadArguments, match=r"args\.left\.value"):
        found.check({"left": {"value": "one"}})
    arguments({"properties": {"a": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}})
    assert arguments(doubling(5)).check({}) == ({}, {})


def test_a_schema_without_names_accepts_any_and_others_only_theirs() -> None:
    """Defaults are left to the server."""
    assert arguments({"type": "object"}).check({"a": 1}) == ({"a": 1}, {"a": 1})
    closed = arguments({"type": "object", "properties": {"a": {"type": "string", "default": None}}})
    assert closed.check({}) == ({}, {})
    with pytest.raises(BadArguments, match="unknown argument"):
        closed.check({"b": 1})


async def test_tools_that_cannot_be_used_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others are there."""
    server = serving(
        spec("good"),
        *(spec(f"bad{n}", {"type": "object", **one}) for n, one in enumerate(list(UNUSABLE.values())[:3])),
        types.Tool(name="long", description="x" * (MCP_TOOL_BYTES_MAX + 1), input_schema={"type": "object"}),
    )
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with mcp_tools(server) as tools:
            assert [one.name for one in tools] == ["good"]
    assert sum("is left out" in one for one in caplog.messages) == 4
    assert max(map(len, caplog.messages)) < 1_000


async def test_a_list_without_an_end_ends() -> None:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        page = 0 if params is None or params.cursor is None else int(params.cursor)
        found = [spec(f"t{page}_{number}", read_only_hint=True) for number in range(300)]
        return types.ListToolsResult(tools=found, next_cursor=str(page + 1))

    async with mcp_tools(Server("endless", on_list_tools=list_tools)) as tools:
        assert len(tools) == MCP_TOOLS_MAX


async def test_a_list_of_several_pages_is_read_to_its_end() -> None:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        page = 0 if params is None or params.cursor is None else int(params.cursor)
        found = [spec(f"t{page}", read_only_hint=True)]
        return types.ListToolsResult(tools=found, next_cursor=None if page == 2 else str(page + 1))

    async with mcp_tools(Server("paged", on_list_tools=list_tools)) as tools:
        assert [one.name for one in tools] == ["t0", "t1", "t2"]


async def test_descriptions_hold_nothing_that_cannot_be_seen() -> None:
    hidden = "Reads.\x1b[2J\x07\u202e\U000e0041\U000e0042\nA line,\ta tab, größe, 👩‍🚀."
    server = serving(types.Tool(name="a", description=hidden, input_schema={"type": "object"}))
    async with mcp_tools(server) as tools:
        assert tools[0].description == "Reads.[2J\nA line,\ta tab, größe, 👩‍🚀."


async def test_arguments_may_have_any_names() -> None:
    """Also those that the body of a tool of ours could not have."""
    names = ["ctx", "self", "class", "file-path", "", "a b"]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    async with mcp_tools(serving(spec("a", schema, read_only_hint=True))) as tools:
        registry = holdfast.Registry(tools)
        args = {name: number for number, name in enumerate(names)}
        async with holdfast.open_store("memory:") as store, store.session("s") as session:
            result = await registry.dispatch("a", args, session=session)
            assert (
                result.value == f"demo: a {dict(sorted(args.items()))}" or result.value == f"demo: a {args}"
            )


async def test_results_that_are_broken_are_described() -> None:
    """The tool has run, so there is a result."""

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return types.ListToolsResult(
            tools=[types.Tool(name="a", input_schema={"type": "object"}, output_schema=schema)]
        )

    async def call_tool(ctx: Any, params: Any) -> types.CallToolResult:
        image = types.ImageContent(type="image", data="%%%", mime_type="image/png")
        odd = types.ImageContent(type="image", data="iVBORw0KGgo=", mime_type="image/\x1b[2J")
        # It does not fit the tool's own schema, either.
        return types.CallToolResult(content=[image, odd], structured_content={"n": "none"})

    async with mcp_tools(Server("broken", on_list_tools=list_tools, on_call_tool=call_tool)) as tools:
        async with holdfast.open_store("memory:") as store, store.session("s") as session:
            result = await holdfast.Registry(tools).dispatch("a", {}, session=session)
            assert result.status == "completed"
            assert result.parts == (
                holdfast.messages.Text("[a file: its content cannot be decoded]"),
                holdfast.messages.Media(media_type="image/png", data=b"\x89PNG\r\n\x1a\n"),
            )
