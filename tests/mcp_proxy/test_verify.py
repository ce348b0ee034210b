"""Calls in doubt that another tool of the server, or a function, settles."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

import pytest

from holdfast.mcp_proxy.configuration import LandedIf
from holdfast.mcp_proxy.verify_by_tool import holds
from tests.mcp_proxy.raw_client import LEGACY, MODERN, Notes, RawClient, status_of, text_of
from tests.mcp_proxy.test_exactly_once import wait_for_servers

BY_TOOL = """
[tools."add*".verify]
tool = "find"
arguments = { text = "{args.text}" }
landed_if = { text_contains = "{args.text}" }
"""


@pytest.mark.parametrize("does_it", [True, False])
def test_another_tool_says_whether_it_happened(notes: Notes, era: str, does_it: bool) -> None:
    """If it did, the client is told so; if not, the call is made."""
    (notes.place / "c.toml").write_text(BY_TOOL)
    options = ("--config", str(notes.place / "c.toml"))
    moment = "then" if does_it else "first"
    with RawClient(notes, *options, era=era) as client:
        client.begin_call("add", "x", **{moment: {"wait": "go"}})
        notes.wait_until_waiting("go")
        client.kill()
    for pid in (notes.place / "started").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    wait_for_servers(notes)
    notes.allow("go")
    with RawClient(notes, *options, era=era) as client:
        result = client.call("add", "x", **{moment: {"wait": "go"}})
        assert status_of(result) == ("replayed" if does_it else None)
        assert text_of(result) == ("add: it happened, and gave no result." if does_it else "add: x")
        assert not result.get("isError")
        assert notes.notes == ["x"]
        assert status_of(client.call("add", "x", **{moment: {"wait": "go"}})) is None
    assert notes.notes == ["x", "x"]


@pytest.fixture(params=[pytest.param(LEGACY, marks=pytest.mark.long), MODERN])
def era(request: pytest.FixtureRequest) -> str:
    """Each era of the protocol. What passes in the older one is the same: `test_relay` looks at both."""
    found: str = request.param
    return found


def test_a_tool_that_has_announced_a_structure_is_not_given_a_result_without_it(notes: Notes) -> None:
    """Clients refuse such a result: so it is an error that says that it happened."""
    (notes.place / "c.toml").write_text(BY_TOOL)
    options = ("--config", str(notes.place / "c.toml"))
    with RawClient(notes, *options, era=MODERN) as client:
        client.begin_call("add_structured", "x", then={"die": True})
        client.finish()
    with RawClient(notes, *options, era=MODERN) as client:
        result = client.call("add_structured", "x", then={"die": True})
        assert result["isError"]
        assert "IT HAPPENED, and its result is lost. What is known: nothing more" in text_of(result)
    assert notes.notes == ["x"]


LOOK = """
from pathlib import Path
from holdfast import Landed, NotLanded

async def added(text, how=None):
    print("I look")
    return Landed("found " + text) if text in Path("PLACE/notes").read_text() else NotLanded()
"""


def test_a_function_says_whether_it_happened(notes: Notes) -> None:
    """At once: the function does not need the server. It is beside the configuration, wherever the proxy was
    started. What it prints does not get between the messages."""
    (notes.place / "look.py").write_text(LOOK.replace("PLACE", str(notes.place)))
    (notes.place / "c.toml").write_text('[tools.add]\nverify = "look.py:added"\n')
    options = ("--config", str(notes.place / "c.toml"))
    with RawClient(notes, *options, era=MODERN) as client:
        result = client.call("add", "x", then={"die": True})
        assert (status_of(result), text_of(result)) == ("verified", "found x")
        client.finish()
        assert "I look" in client.stderr
    assert notes.notes == ["x"]


def test_a_function_that_does_not_fit_the_tool_is_told_and_not_asked(notes: Notes) -> None:
    """The call is in doubt then. Other calls go on."""
    (notes.place / "look.py").write_text("def added(note):\n    raise AssertionError('asked')\n")
    (notes.place / "c.toml").write_text('[tools.add]\nverify = "look.py:added"\n')
    options = ("--config", str(notes.place / "c.toml"))
    with RawClient(notes, *options, era=MODERN) as client:
        assert text_of(client.call("add", "y")) == "add: y"
        assert status_of(client.call("add", "x", then={"die": True})) == "in_doubt"
        client.finish()
        assert "verify must have the tool's own parameters (text, how)" in client.stderr
    assert notes.notes == ["y", "x"]


@pytest.mark.parametrize(
    ("condition", "result", "expected"),
    [
        ({"text_contains": "b"}, {"content": [{"type": "text", "text": "abc"}]}, True),
        ({"text_contains": "d"}, {"content": [{"type": "text", "text": "abc"}]}, False),
        ({"pointer": "/a/0", "is_compared": True, "equals": 1}, {"structuredContent": {"a": [1]}}, True),
        ({"pointer": "/a/0", "is_compared": True, "equals": 1}, {"structuredContent": {"a": [True]}}, False),
        ({"pointer": "/a/0", "is_compared": True, "equals": None}, {"structuredContent": {"a": []}}, False),
        ({"pointer": "/x~1y", "exists": True}, {"structuredContent": {"x/y": 0}}, True),
        ({"pointer": "/x", "exists": False}, {"structuredContent": {"y": 0}}, True),
        ({"pointer": "/n"}, {"content": [{"type": "text", "text": '{"n": null}'}]}, True),
        ({"pointer": "/n"}, {"content": [{"type": "text", "text": "no JSON"}]}, False),
        ({"pointer": "", "exists": True}, {"structuredContent": {}}, True),
    ],
)
def test_conditions(condition: dict[str, Any], result: dict[str, Any], expected: bool) -> None:
    """Text, or a value at a pointer into the structure, or into a text that is JSON."""
    assert holds(LandedIf(**condition), result) is expected


def test_a_verify_tool_that_answers_too_late_does_not_reach_the_client(notes: Notes) -> None:
    """Its client has taken the call back meanwhile, and has never asked that."""
    asked = 'arguments = { text = "{args.text}" }'
    waits = 'arguments = { text = "{args.text}", how = { first = { wait = "look" } } }'
    (notes.place / "c.toml").write_text(BY_TOOL.replace(asked, waits))
    options = ("--config", str(notes.place / "c.toml"))
    with RawClient(notes, *options, era=MODERN) as client:
        client.begin_call("add", "x", then={"die": True})
        client.finish()
    with RawClient(notes, *options, era=MODERN) as client:
        id = client.begin_call("add", "x", then={"die": True})
        notes.wait_until_waiting("look")
        client.send({"method": "notifications/cancelled", "params": {"requestId": id}})
        client.send_line("no message")
        assert client.read()["error"]["code"] == -32700
        notes.allow("look")
        client.ask("other/thing")
        assert client.others == []
