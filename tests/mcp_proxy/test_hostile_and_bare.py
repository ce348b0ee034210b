"""Servers that mean harm, and surroundings with nothing in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_proxy.raw_client import MODERN, Notes, RawClient, holdfast, status_of, text_of

ESCAPES = "\x1b[2J\u202eevil\x00\n\x07"


def listed(notes: Notes, *tools: Any) -> None:
    """Let the server list these tools."""
    (notes.place / "tools.json").write_text(json.dumps(tools))


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


SCHEMAS: list[Any] = [
    {"$ref": "#"},
    {"$ref": "https://example.org/schema"},
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"type": "object", "description": "x" * 300_000},
    deep(150),
    {"type": "object", "properties": 7},
    {"type": ["nonsense"]},
    {"type": "object", "properties": {"text": {"pattern": "((("}}},
    [],
    "text",
    None,
    {"properties": {"text": {"$ref": "#/properties/how"}, "how": {"$ref": "#/properties/text"}}},
]


def test_a_schema_that_cannot_be_used_leaves_the_check_to_the_server(notes: Notes) -> None:
    """The tool can be called all the same, and is on record."""
    tools = [{"name": f"t{place}", "inputSchema": schema} for place, schema in enumerate(SCHEMAS)]
    listed(notes, *tools)
    with RawClient(notes, era=MODERN) as client:
        assert client.ask("tools/list")["result"]["tools"] == tools[:3]
        for tool in tools:
            assert text_of(client.call(tool["name"], "x")) == f"{tool['name']}: x"
        assert client.call("t0", "y", then={"die": True})["isError"]
    assert len(notes.calls_seen) == len(SCHEMAS) + 1


NAMES = [ESCAPES, "", "x" * 100_000, "../../etc/passwd", "a b", "é" * 300]


def test_names_of_any_kind_pass_and_do_no_harm_on_record(
    notes: Notes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server sees the name as it is; a terminal sees a plain one."""
    odd = {"description": ESCAPES, "inputSchema": {"type": "object"}, "annotations": ESCAPES}
    listed(notes, *({"name": name, **odd} for name in NAMES))
    error = {"code": -32603, "message": ESCAPES}
    with RawClient(notes, era=MODERN) as client:
        for name in NAMES:
            assert text_of(client.call(name, "x")) == f"{name}: x"
            assert client.wait(client.begin_call(name, error=error))["error"] == error
    assert holdfast("pending", "--store", notes.store) == 0
    shown = capsys.readouterr().out
    assert shown.count("in doubt") == len(NAMES)
    assert not set("\x1b\u202e\x00\x07") & set(shown)
    assert len(shown) < 20_000


@pytest.mark.parametrize(
    "page",
    [
        {"tools": "none"},
        {
            "tools": [
                1,
                None,
                {"name": 5},
                {"name": "add", "annotations": [1], "inputSchema": {"type": "object"}},
            ]
        },
        {"tools": [{"name": f"t{n}", "inputSchema": {}} for n in range(1500)]},
        {},
    ],
    ids=["text", "odd", "many", "empty"],
)
def test_a_list_of_any_kind_passes(notes: Notes, page: Any) -> None:
    """What is not known of a tool counts against it: it acts."""
    (notes.place / "tools.json").write_text(json.dumps(page.get("tools", [])))
    with RawClient(notes, era=MODERN) as client:
        if isinstance(page.get("tools"), list):
            assert client.ask("tools/list")["result"]["tools"] == page["tools"][:3]
        assert text_of(client.call("add", "x")) == "add: x"
        assert status_of(client.call("add", "x", then={"die": True})) == "in_doubt"


def test_only_true_is_a_hint(notes: Notes) -> None:
    """Other values say nothing: the tool acts."""
    hints = ["true", 1, [True], {"a": 1}, None]
    said = [{"readOnlyHint": hint, "idempotentHint": hint} for hint in hints]
    names = [f"t{place}" for place in range(len(hints))]
    listed(
        notes,
        *(
            {"name": name, "inputSchema": {"type": "object"}, "annotations": one}
            for name, one in zip(names, said, strict=True)
        ),
    )
    error = {"code": -32603, "message": "no"}
    with RawClient(notes, era=MODERN) as client:
        for name in names:
            assert client.wait(client.begin_call(name, error=error))["error"] == error
            assert status_of(client.call(name, error=error)) == "in_doubt"


def test_a_list_that_changes_counts_from_the_next_call(notes: Notes) -> None:
    """A tool that was said to read, and now acts, is on record as one that acts."""
    listed(notes, {"name": "add", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}})
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    with RawClient(notes, era=MODERN) as client:
        client.call("add", "x")
        listed(notes, {"name": "add", "inputSchema": {"type": "object"}})
        client.call("find", "x", first={"say": [changed]})
        assert client.others == [changed]
        assert status_of(client.call("add", "x", then={"die": True})) == "in_doubt"


def test_an_answer_before_the_question_does_not_count(notes: Notes) -> None:
    """A call is done when the server answers after it has got it."""
    early = {"jsonrpc": "2.0", "id": 77, "result": {"content": [{"type": "text", "text": "early"}]}}
    with RawClient(notes, era=MODERN) as client:
        client.call("find", "x", first={"say": [early]})
        message = {"id": 77, "method": "tools/call", "params": {"name": "add", "arguments": {"text": "x"}}}
        client.send(message)
        while (answer := client.read())["id"] != 77 or answer in client.others:
            client.others.append(answer)
        assert text_of(answer["result"]) == "add: x"


def test_in_the_root_directory_with_an_empty_environment(real_notes: Notes) -> None:
    """As desktop clients start servers. The store is in the user's data directory, and named in full."""
    notes = real_notes
    data = {"XDG_DATA_HOME": str(notes.place / "data")}
    with RawClient(notes, era=MODERN, env=data, store=False) as client:
        doubt = client.call("add", "x", then={"die": True})
        assert status_of(doubt) == "in_doubt"
        store = f"sqlite:{notes.place}/data/holdfast/mcp.db"
        assert f"--store {store}" in text_of(doubt)
        assert doubt["_meta"]["holdfast/store"] == store
        client.finish()
    with RawClient(notes, era=MODERN, env=data, store=False) as client:
        assert status_of(client.call("add", "x", then={"die": True})) == "in_doubt"
        assert text_of(client.call("add", "y")) == "add: y"
        client.close()
    assert notes.notes == ["x", "y"]


def test_a_data_directory_that_cannot_be_made_is_explained(real_notes: Notes) -> None:
    """With what to do."""
    (real_notes.place / "file").write_text("")
    client = RawClient(real_notes, env={"XDG_DATA_HOME": str(real_notes.place / "file")}, store=False)
    assert client.finish() == 2
    assert "--store sqlite:/PATH" in client.stderr


def test_the_environment_of_the_client_reaches_the_server(real_notes: Notes) -> None:
    """It is where clients put the secrets of servers."""
    script = "import json, os; print(json.dumps({'method': 'env', 'params': dict(os.environ)}))"
    known = {"PATH": os.environ["PATH"], "HOME": str(real_notes.place), "API_TOKEN": "t0ken"}
    client = RawClient(real_notes, server=[str(Path(real_notes.server()[0])), "-c", script], env=known)
    params = client.read()["params"]
    assert {key: params[key] for key in known} == known
    assert client.finish() == 0
