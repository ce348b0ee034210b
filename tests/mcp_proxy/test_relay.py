"""What a proxy passes on as it is, and what it does not pass on."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.mcp_proxy.raw_client import MODERN, Notes, RawClient, status_of, text_of, wait_until


def test_what_is_no_call_passes_byte_for_byte_in_both_directions(notes: Notes, era: str) -> None:
    """Spaces, unknown members, numbers of any size, escapes and the order of keys included."""
    odd = (
        '{ "z":1.50, "jsonrpc":"2.0","id":"a\\u0062","method":"other/thing",'
        '"params":{"n":123456789012345678901234567890,"t":"\\u00e9\\ud83d\\ude00"}  }'
    )
    back = '{"method":"notifications/else",  "jsonrpc":"2.0", "params":{"deep":[[[{"x":1e-7}]]]}}'
    with RawClient(notes, era=era) as client:
        client.send_line(odd)
        answer = client.read()
        assert answer["id"] == "ab"
        assert odd in (notes.place / "seen").read_text().splitlines()
        client.send({"method": "test/say", "params": {"lines": [back]}})
        assert client.lines.get(timeout=100) == back.encode() + b"\n"


def test_a_result_reaches_the_client_as_the_server_wrote_it(notes: Notes, era: str) -> None:
    """With all that is in it: structured content, `_meta`, members that nobody knows."""
    odd = {"structuredContent": {"n": 1.5, "é": None}, "_meta": {"a/b": [1]}, "unknown": True}
    with RawClient(notes, era=era) as client:
        result = client.call("add", "x", result=odd)
        assert {key: result[key] for key in odd} == odd
        assert result["content"] == [{"type": "text", "text": "add: x"}]
        assert client.ask("tools/list")["result"]["tools"][0]["name"] == "add"


def test_requests_of_the_server_pass_whose_ids_are_those_of_the_client(notes: Notes, era: str) -> None:
    """Each side counts for itself."""
    with RawClient(notes, era=era) as client:
        asked = {"jsonrpc": "2.0", "id": 2, "method": "sampling/createMessage", "params": {"x": 1}}
        id = client.begin_call(
            "add", "x", first={"say": [{**asked, "id": 2}, {**asked, "id": 3}], "wait": "go"}
        )
        assert [client.read()["id"] for _ in range(2)] == [2, 3]
        client.send({"id": id, "result": {"mine": True}})
        notes.allow("go")
        assert text_of(client.wait(id)["result"]) == "add: x"
        wait_until(lambda: {"jsonrpc": "2.0", "id": id, "result": {"mine": True}} in notes.seen)


def test_ids_are_of_any_type_that_the_protocol_allows(notes: Notes) -> None:
    """And come back as they were."""
    ids: list[Any] = [0, -1, 10**15, 1.5, "1", "", "é\x00"]
    with RawClient(notes, era=MODERN) as client:
        for id in ids:
            params = {"name": "add", "arguments": {"text": "x"}}
            client.send({"id": id, "method": "tools/call", "params": params})
            answer = client.read()
            assert (answer["id"], type(answer["id"])) == (id, type(id))
        assert notes.notes == ["x"] * len(ids)


def test_calls_run_side_by_side(notes: Notes, era: str) -> None:
    """Different ones; and a client may send the same call twice, which are two calls, one after the other."""
    with RawClient(notes, era=era) as client:
        ids = [client.begin_call("add", f"n{n}") for n in range(30)]
        twice = [client.begin_call("add", "same") for _ in range(2)]
        answers: dict[int, str] = {}
        while len(answers) < 32:
            message = client.read()
            answers[message["id"]] = text_of(message["result"])
        assert [answers[id] for id in ids] == [f"add: n{n}" for n in range(30)]
        assert [answers[id] for id in twice] == ["add: same"] * 2
        assert sorted(notes.notes) == sorted([*(f"n{n}" for n in range(30)), "same", "same"])


def test_progress_and_other_notifications_pass_during_a_call(notes: Notes, era: str) -> None:
    """Before its result."""
    told = {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 1, "progress": 0.5},
    }
    with RawClient(notes, era=era) as client:
        id = client.begin_call("add", "x", first={"say": [told], "wait": "go"})
        assert client.read() == told
        notes.allow("go")
        assert client.read()["id"] == id


def test_a_call_that_was_cancelled_is_cancelled_at_the_server(notes: Notes, era: str) -> None:
    """Once the server has seen it, it is in doubt, unless the server answers all the same."""
    with RawClient(notes, era=era) as client:
        id = client.begin_call("add", "x", then={"wait": "go"})
        notes.wait_until_waiting("go")
        client.send({"method": "notifications/cancelled", "params": {"requestId": id}})
        notes.allow("go")
        assert client.read()["id"] == id  # As the server has sent it.
        wait_until(lambda: notes.seen[-1]["method"] == "notifications/cancelled")
        again = client.call("add", "x", then={"wait": "go"})
        assert (status_of(again), text_of(again)) == ("replayed", "add: x")
        assert notes.notes == ["x"]


def test_a_call_that_waits_can_be_cancelled_before_the_server_sees_it(notes: Notes, era: str) -> None:
    """Then there is no answer, and the server hears nothing of it."""
    with RawClient(notes, era=era) as client:
        first = client.begin_call("add", "x", then={"wait": "go"})
        notes.wait_until_waiting("go")
        second = client.begin_call("add", "x", then={"wait": "go"})
        client.send({"method": "notifications/cancelled", "params": {"requestId": second}})
        notes.allow("go")
        client.wait(first)
        assert client.ask("ping")["result"]
        assert notes.calls_seen == ["add"]
        assert not [one for one in client.others if one.get("id") == second]


BROKEN = [
    ("this is no JSON", -32700),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"', -32700),
    ("[" * 100_000, -32700),
    ('"text"', -32700),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":[1]}}', -32602),
]


def test_what_is_no_message_is_refused_in_words(notes: Notes) -> None:
    """The server does not see it: it might read it in another way than the proxy."""
    with RawClient(notes, era=MODERN) as client:
        for line, code in BROKEN:
            client.send_line(line)
            error = client.read()["error"]
            assert error["code"] == code, line[:100]
            assert error["message"].startswith("holdfast: ")
        assert text_of(client.call("add", "x")) == "add: x"
        assert notes.calls_seen == ["add"]


def test_a_call_without_an_id_does_not_reach_the_server(notes: Notes) -> None:
    """Its outcome could not be told."""
    call = '"method":"tools/call","params":{"name":"add","arguments":{"text":"y"}}'
    with RawClient(notes, era=MODERN) as client:
        for id in ("", '"id":null,', '"id":true,', '"id":[1],'):
            client.send_line(f'{{"jsonrpc":"2.0",{id}{call}}}')
        assert text_of(client.call("add", "x")) == "add: x"
        assert notes.notes == ["x"]


def test_a_batch_passes_unless_there_is_a_call_in_it(notes: Notes) -> None:
    """One protocol version had batches. Calls are sent one by one."""
    call = {
        "jsonrpc": "2.0",
        "id": 8,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"text": "x"}},
    }
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    with RawClient(notes) as client:
        client.send_line(json.dumps([ping, {**ping, "id": 9}]))
        assert [one["id"] for one in json.loads(client.lines.get(timeout=100) or b"")] == [7, 9]
        client.send_line(json.dumps([ping, call]))
        errors = json.loads(client.lines.get(timeout=100) or b"")
        assert [(one["id"], one["error"]["code"]) for one in errors] == [(7, -32600), (8, -32600)]
        assert notes.notes == []


def test_an_id_that_is_still_in_use_is_refused(notes: Notes) -> None:
    """Its answers could not be told apart."""
    with RawClient(notes, era=MODERN) as client:
        message = {"id": 5, "method": "tools/call", "params": {"name": "add", "arguments": {"text": "x"}}}
        waiting = {"text": "y", "how": {"first": {"wait": "go"}}}
        client.send({**message, "params": {"name": "add", "arguments": waiting}})
        notes.wait_until_waiting("go")
        client.send(message)
        assert client.read()["error"]["code"] == -32600
        notes.allow("go")
        assert text_of(client.read()["result"]) == "add: y"


def test_what_the_server_prints_beside_its_messages_does_not_reach_the_client(notes: Notes) -> None:
    """Stdout carries JSON-RPC only; people see it on stderr."""
    with RawClient(notes, era=MODERN) as client:
        assert (
            text_of(client.call("add", "x", first={"say": ["Listening on stdio …", "", "{broken"]}))
            == "add: x"
        )
        assert client.others == []
        wait_until(lambda: "Listening on stdio" in client.stderr)


def test_numbers_that_are_none_pass_as_some_libraries_write_them(notes: Notes) -> None:
    """NaN, infinities and halves of surrogate pairs are no JSON, and Python and JavaScript write them."""
    with RawClient(notes, era=MODERN) as client:
        result = client.call("add", "x", odd=True)
        assert str(result["structuredContent"]["a"]) == "nan"
        assert result["structuredContent"]["b"] == "\ud800"


def test_arguments_that_are_no_json_are_refused_in_words(notes: Notes) -> None:
    """They could not be told apart from others."""
    with RawClient(notes, era=MODERN) as client:
        refused = client.call("add", "x", nan=float("nan"))
        assert status_of(refused) == "refused"
        assert "not a JSON number" in text_of(refused)
        assert notes.notes == []


def test_a_large_message_passes_and_a_slow_reader_holds_up_the_other_side(notes: Notes) -> None:
    """Nothing is lost while a pipe is full."""
    text = "x" * (3 << 20)
    with RawClient(notes, era=MODERN) as client:
        ids = [
            client.begin_call("find", f"{n}", result={"content": [{"type": "text", "text": text}]})
            for n in range(4)
        ]
        answers: dict[int, str] = {}
        while len(answers) < 4:
            message = client.read()
            answers[message["id"]] = text_of(message["result"])
        assert [answers[id] for id in ids] == [text] * 4


def test_the_server_ends_when_the_client_has_gone(notes: Notes) -> None:
    """And the proxy with it."""
    with RawClient(notes, era=MODERN) as client:
        client.call("add", "x")
        server = find_child(client)
        assert client.close() == 0
        wait_until(lambda: not is_alive(server))


def test_a_proxy_that_is_told_to_end_ends_its_server(notes: Notes) -> None:
    """At once, also in the middle of a call, which is in doubt then."""
    with RawClient(notes, era=MODERN) as client:
        client.begin_call("add", "x", then={"wait": "never"})
        notes.wait_until_waiting("never")
        server = find_child(client)
        client.proxy.signal(signal.SIGTERM)
        assert client.finish() == 128 + signal.SIGTERM
        wait_until(lambda: not is_alive(server))
    with RawClient(notes, era=MODERN) as client:
        assert status_of(client.call("add", "x", then={"wait": "never"})) == "in_doubt"
        assert notes.notes == ["x"]


def test_a_server_that_ends_ends_the_proxy_with_its_exit_code(notes: Notes) -> None:
    """A client sees what it would see without the proxy."""
    with RawClient(notes, era=MODERN) as client:
        client.send({"method": "test/exit", "params": {"code": 7}})
        assert client.finish() == 7


def test_a_command_that_cannot_be_started_is_explained(notes: Notes) -> None:
    """On stderr, where clients keep what their servers say."""
    client = RawClient(notes, server=["no-such-server"])
    assert client.finish() == 3
    assert "no-such-server" in client.stderr
    assert "PATH is" in client.stderr


def find_child(client: RawClient) -> int:
    """The process of the server."""
    children = Path(f"/proc/{client.proxy.pid}/task/{client.proxy.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_client_that_has_ended_its_input_still_gets_its_answers(notes: Notes) -> None:
    """As scripts do that write their calls into a pipe."""
    with RawClient(notes, era=MODERN) as client:
        id = client.begin_call("add", "x", first={"wait": "go"})
        notes.wait_until_waiting("go")
        client.end_input()
        notes.allow("go")
        assert text_of(client.wait(id)["result"]) == "add: x"
        assert client.finish() == 0


def test_a_call_that_has_ended_is_answered_once(notes: Notes, era: str) -> None:
    """A server that answers again, or late, does not reach the client with it; its id can be used again."""
    with RawClient(notes, era=era) as client:
        id = client.begin_call("add", "x")
        assert text_of(client.wait(id)["result"]) == "add: x"
        again = {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "again"}]}}
        marker = {"jsonrpc": "2.0", "method": "notifications/marker"}
        client.send({"method": "test/say", "params": {"lines": [json.dumps(again), json.dumps(marker)]}})
        assert client.read() == marker
        wait_until(lambda: "is not passed on" in client.stderr)
        client.send({"id": id, "method": "other/thing", "params": {}})
        assert client.read()["result"]["echo"]["id"] == id
