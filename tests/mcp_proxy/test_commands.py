"""What people see of calls through the proxy, with the commands for every session."""

from __future__ import annotations

import base64
import json
import random
import shlex
from typing import Any

import pytest

from tests.mcp_proxy.raw_client import MODERN, Notes, RawClient, holdfast, status_of, text_of
from tests.mcp_proxy.test_exactly_once import kill_servers


def ask(capsys: pytest.CaptureFixture[str], notes: Notes, *arguments: str) -> str:
    """What a command prints."""
    capsys.readouterr()
    assert holdfast(*arguments, "--store", notes.store) == 0
    return capsys.readouterr().out


def ask_json(capsys: pytest.CaptureFixture[str], notes: Notes, *arguments: str) -> Any:
    """Its object."""
    return json.loads(ask(capsys, notes, *arguments, "--json"))


def test_the_session_of_a_connection_shows_its_calls(
    notes: Notes, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what became of each; what a tool that only reads has returned is not on record."""
    with RawClient(notes, era=MODERN) as client:
        client.call("add", "a note")
        client.call("find", "a note")
        client.begin_call("add", "another", then={"wait": "never"})
        notes.wait_until_waiting("never")
        client.kill()
    kill_servers(notes)
    with RawClient(notes, era=MODERN) as client:
        doubt = client.call("add", "another", then={"wait": "never"})
        assert status_of(doubt) == "in_doubt"
        client.close()
    session = doubt["_meta"]["holdfast/session"]
    shown = " ".join(ask(capsys, notes, "show", session).split())
    for part in (
        "labels adapter=mcp-proxy, mcp.server=notes",
        '→ add(text="a note") completed',
        '→ find(text="a note") completed a result of',
        "bytes, which is not kept",
        "in doubt",
        "is gone and did not release its lease",
        f"holdfast mcp proxy --name notes with the store {notes.store}",
    ):
        assert part in shown
    rows = [one for one in ask_json(capsys, notes, "show", session)["timeline"] if one["kind"] == "tool"]
    assert [(one["tool"], one["status"]) for one in rows] == [
        ("add", "completed"),
        ("find", "completed"),
        ("add", "in_doubt"),
    ]
    listed = ask_json(capsys, notes, "sessions")["sessions"]
    assert session in [one["session"] for one in listed]


def test_a_large_result_is_in_a_blob_and_is_given_again_whole(
    notes: Notes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a picture, in the form that the server has written it in."""
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(1_000_000)).decode()
    content = [
        {"type": "image", "data": picture, "mimeType": "image/png"},
        {"type": "text", "text": "é" * 100_000},
    ]
    with RawClient(notes, era=MODERN) as client:
        client.begin_call("add", "x", then={"wait": "go"}, result={"content": content})
        notes.wait_until_waiting("go")
        client.end_input()
        notes.allow("go")
        client.finish()
    # Of the arguments (the test says there what the server is to answer) and of the result.
    blobs = ask_json(capsys, notes, "blobs")["blobs"]
    assert sum(one["size"] for one in blobs) > 1_000_000
    with RawClient(notes, era=MODERN) as client:
        again = client.call("add", "x", then={"wait": "go"}, result={"content": content})
        assert (status_of(again), again["content"]) == ("replayed", content)
    assert notes.notes == ["x"]


def test_an_approval_is_listed_with_the_commands_that_answer_it(
    notes: Notes, capsys: pytest.CaptureFixture[str]
) -> None:
    """As typed, they do; and what happens then is said: the client makes the call again."""
    (notes.place / "c.toml").write_text('[tools.add]\napproval = true\nredact = ["text"]\n')
    options = ("--config", str(notes.place / "c.toml"))
    with RawClient(notes, *options, era=MODERN) as client:
        waiting = client.call("add", "s3cret")
        (one,) = ask_json(capsys, notes, "pending")["pending"]
        assert (one["kind"], one["tool"], one["args"]) == ("approval", "add", {"text": "[redacted]"})
        assert "the same call again, by a client of holdfast mcp proxy --name notes" in one["then"]
        shown = ask(capsys, notes, "pending")
        command = one["commands"]["approve"]
        assert command in " ".join(shown.split())
        assert "s3cret" not in shown
        assert holdfast(*shlex.split(command)[1:]) == 0
        assert text_of(client.call("add", "s3cret")) == "add: s3cret"
        assert status_of(waiting) == "waiting"
        assert ask_json(capsys, notes, "pending")["pending"] == []
    assert notes.notes == ["s3cret"]
