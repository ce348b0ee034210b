"""Calls that the server answers with a task, and results in forms of other versions of the protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.mcp_proxy.delivery import mark_delivery
from holdfast.mcp_proxy.json_rpc import RpcMessage
from holdfast.mcp_proxy.tasks import find_end, find_task
from tests.mcp_proxy.raw_client import LEGACY, MODERN, Notes, RawClient, status_of, text_of, wait_until
from tests.mcp_proxy.test_exactly_once import kill_servers


def begin(client: RawClient, name: str = "t1", text: str = "x", tool: str = "add", **how: Any) -> Any:
    """Call a tool that is carried out as a task; the handle."""
    handle = client.call(tool, text, task=name, **how)
    task = handle if client.era == MODERN else handle["task"]
    assert (task["taskId"], task["status"]) == (name, "working")
    assert handle.get("resultType") == ("task" if client.era == MODERN else None)
    assert handle.get("_meta") == (None if client.era == MODERN else {"odd": 1})
    return handle


def ask(client: RawClient, method: str, name: str = "t1") -> Any:
    """Ask about a task; the result."""
    return client.ask(method, {"taskId": name})["result"]


def test_a_task_passes_and_its_end_is_the_outcome_of_the_call(notes: Notes, era: str) -> None:
    """Up to that, it is under way, and the same call on another connection waits. After that, it is a new
    one."""
    with RawClient(notes, era=era) as client, RawClient(notes, era=era) as other:
        begin(client)
        assert ask(client, "tasks/get")["status"] == "working"
        waiting = other.begin_call("add", "x", task="t1")
        wait_until(lambda: "waits for the same call" in other.stderr)
        notes.allow("t1")
        state = ask(client, "tasks/get")
        assert state["status"] == "completed"
        found = ask(client, "tasks/result") if era == LEGACY else state["result"]
        assert text_of(found) == "add: x"
        joined = other.wait(waiting)["result"]
        assert (status_of(joined), text_of(joined)) == ("replayed", "add: x")
        assert notes.notes == ["x"]
        assert "holdfast/status" not in json.dumps(client.call("add", "x", task="t1"))
    assert notes.notes == ["x", "x"]


def test_a_task_that_was_under_way_when_its_client_died_is_in_doubt(notes: Notes, era: str) -> None:
    """It is not done again: that the client had got the handle says nothing of the effect."""
    with RawClient(notes, era=era) as client:
        begin(client)
        client.kill()
    kill_servers(notes)
    with RawClient(notes, era=era) as client:
        begin(client, text="y", name="t2")
        client.close()
    kill_servers(notes)
    with RawClient(notes, era=era) as client:
        for text, name in (("x", "t1"), ("y", "t2")):
            doubt = client.call("add", text, task=name)
            assert (status_of(doubt), doubt["isError"]) == ("in_doubt", True)
        assert "has not said how its task has ended" in text_of(doubt)
    assert notes.notes == ["x", "y"]


def test_the_end_of_a_task_that_its_client_has_not_seen_is_given_to_the_same_call(notes: Notes) -> None:
    """Once. The client has asked for the result, and has gone."""
    with RawClient(notes) as client:
        begin(client)
        client.begin("tasks/result", {"taskId": "t1"})
        notes.wait_until_waiting("t1")
        client.end_input()
        notes.allow("t1")
        assert client.finish() == 0
    with RawClient(notes) as client:
        again = client.call("add", "x", task="t1")
        assert (status_of(again), text_of(again)) == ("replayed", "add: x")
    assert notes.notes == ["x"]


def test_a_task_that_is_known_to_be_completed_is_not_done_again(notes: Notes) -> None:
    """Its client has never asked for the result."""
    with RawClient(notes) as client:
        begin(client)
        notes.allow("t1")
        assert ask(client, "tasks/get")["status"] == "completed"
        client.close()
    with RawClient(notes) as client:
        again = client.call("add", "x", task="t1")
        assert (status_of(again), text_of(again)) == ("replayed", "the task is completed")
    assert notes.notes == ["x"]


FAILED = {"content": [{"type": "text", "text": "no paper"}], "isError": True}
ERROR = {"code": -32602, "message": "no such task"}


@pytest.mark.parametrize(
    ("state", "end", "expected"),
    [
        ({"status": "failed"}, FAILED, None),
        ({"status": "completed"}, {"error": ERROR}, "in_doubt"),
        ({"status": "cancelled"}, None, "in_doubt"),
    ],
)
def test_a_task_that_fails_is_judged_as_a_call_that_fails(
    notes: Notes, era: str, state: dict[str, Any], end: Any, expected: str | None
) -> None:
    """An error of the tool is believed. Of one that was cancelled, or whose result is lost, nobody knows."""
    with RawClient(notes, era=era) as client:
        begin(client, end=end)
        inlined = (
            {"error": ERROR, "status": "failed"} if end == {"error": ERROR} else {**state, "result": end}
        )
        (notes.place / "t1").write_text(json.dumps(inlined if era == MODERN and end else state))
        asked = client.ask("tasks/get", {"taskId": "t1"})["result"]
        assert asked["status"] == (inlined if era == MODERN else state)["status"]
        if era == LEGACY and state["status"] != "cancelled":
            told = client.ask("tasks/result", {"taskId": "t1"})
            assert told.get("result", {"error": told.get("error")}) == end
        again = client.call("add", "x", task="t1", end=end)
        assert status_of(again) == expected
    assert len(notes.notes) == (1 if expected else 2)


def test_a_cancellation_of_a_task_passes(notes: Notes, era: str) -> None:
    """Both that of the protocol, and one of the call that was answered before. What it had done by then is
    not known."""
    with RawClient(notes, era=era) as client:
        id = client.begin_call("add", "x", task="t1")
        client.wait(id)
        client.send({"method": "notifications/cancelled", "params": {"requestId": id}})
        assert ask(client, "tasks/cancel")["status"] == "cancelled"
        assert status_of(client.call("add", "x", task="t1")) == "in_doubt"
        assert [one["method"] for one in notes.seen[-2:]] == ["notifications/cancelled", "tasks/cancel"]
    assert notes.notes == ["x"]


def test_a_notification_may_say_that_a_task_has_ended(notes: Notes, era: str) -> None:
    """In one era it has the result in it; in the other that is left to be asked for."""
    method = "notifications/tasks" if era == MODERN else "notifications/tasks/status"
    params: dict[str, Any] = {"taskId": "t1", "status": "completed"}
    if era == MODERN:
        params["result"] = {"content": [{"type": "text", "text": "done"}]}
    told = {"jsonrpc": "2.0", "method": method, "params": params}
    with RawClient(notes, era=era) as client:
        begin(client)
        client.send({"method": "test/say", "params": {"lines": [json.dumps(told)]}})
        assert client.read() == told
        client.close()
    with RawClient(notes, era=era) as client:
        again = client.call("add", "x", task="t1")
        assert status_of(again) == ("replayed" if era == LEGACY else None)
    assert len(notes.notes) == (1 if era == LEGACY else 2)


def test_a_task_of_a_tool_that_only_reads_is_not_followed(notes: Notes, era: str) -> None:
    """It can be asked for again."""
    with RawClient(notes, era=era) as client:
        begin(client, tool="find")
        begin(client, tool="find", name="t2")
        notes.allow("t1")
        assert ask(client, "tasks/get")["status"] == "completed"
        client.close()
    with RawClient(notes, era=era) as client:
        assert status_of(client.call("find", "x")) is None


def test_a_tool_that_looks_and_answers_with_a_task_says_nothing(notes: Notes) -> None:
    """It would seem to say that nothing happened."""
    (notes.place / "c.toml").write_text(
        '[tools.add.verify]\ntool = "find"\narguments = { text = "{args.text}", how = { task = "look" } }\n'
        'landed_if = { text_contains = "{args.text}" }\n'
    )
    options = ("--config", str(notes.place / "c.toml"))
    with RawClient(notes, *options, era=MODERN) as client:
        client.begin_call("add", "x", then={"wait": "never"})
        notes.wait_until_waiting("never")
        client.kill()
    kill_servers(notes)
    with RawClient(notes, *options, era=MODERN) as client:
        doubt = client.call("add", "x", then={"wait": "never"})
        assert status_of(doubt) == "in_doubt"
        assert "find answered with something else than a result" in text_of(doubt)
    assert notes.notes == ["x"]


RESULTS: list[dict[str, Any]] = [
    {"structuredContent": {"line": 1}},
    {"structuredContent": {"line": 1}, "isError": False},
    {"toolResult": [1, "x"]},
    {"task": {"taskId": "t1", "status": "completed"}},
]


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_without_content_is_given_again_as_it_was(notes: Notes, result: dict[str, Any]) -> None:
    """Servers and versions of the protocol differ in what a result has in it."""
    with RawClient(notes) as client:
        client.begin_call("add", "x", then={"wait": "go"}, bare=True, result=result)
        notes.wait_until_waiting("go")
        client.end_input()
        notes.allow("go")
        client.finish()
    with RawClient(notes) as client:
        again = client.call("add", "x", then={"wait": "go"}, bare=True, result=result)
        assert status_of(again) == "replayed"
        assert {key: value for key, value in again.items() if key != "_meta"} == result
    assert notes.notes == ["x"]


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {"content": [], "task": {"taskId": "t", "status": "working"}},
        {"task": "t"},
        {"task": {"taskId": 7, "status": "working"}},
        {"resultType": "task"},
        {"resultType": "complete", "taskId": "t", "status": "working"},
        {"task": {"taskId": "t", "status": "completed"}},
    ],
)
def test_what_is_no_task_under_way(result: Any) -> None:
    assert find_task(result) is None


@pytest.mark.parametrize("state", [None, [], {}, {"status": "working"}, {"status": ["completed"]}])
def test_what_says_nothing_of_an_end(state: Any) -> None:
    said = RpcMessage(b"", {"result": state})
    assert find_end(said, asked="tasks/get") is None
    assert find_end(RpcMessage(b"", {"error": ERROR}), asked="tasks/get") is None


@pytest.mark.parametrize("delivery", ["unsent", "refused", "lost"])
def test_a_question_about_a_task_that_fails_on_its_way_says_nothing_of_the_task(delivery: Any) -> None:
    """Such as over HTTP, to a server that cannot be reached for a moment."""
    error = {**ERROR, "data": mark_delivery(delivery, 503)}
    assert find_end(RpcMessage(b"", {"error": error}), asked="tasks/result") is None
    assert find_end(RpcMessage(b"", {"error": ERROR}), asked="tasks/result") is not None
