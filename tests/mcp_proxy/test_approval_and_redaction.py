"""Calls that a person must approve, and arguments that are not on record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.mcp_proxy.tool_catalogue import RedactedArguments
from holdfast.tools.foreign_schema import ForeignArguments
from holdfast.tools.schema import BadArguments
from tests.mcp_proxy.raw_client import (
    LEGACY,
    MODERN,
    Notes,
    RawClient,
    holdfast,
    status_of,
    text_of,
    wait_until,
)
from tests.mcp_proxy.test_exactly_once import kill_servers

ASKS = "[tools.add]\napproval = true\n"


@pytest.fixture(params=[pytest.param(LEGACY, marks=pytest.mark.long), MODERN])
def era(request: pytest.FixtureRequest) -> str:
    """Each era of the protocol. What passes in the older one is the same: `test_relay` looks at both."""
    found: str = request.param
    return found


def configured(notes: Notes, text: str) -> tuple[str, str]:
    """Options that name a configuration."""
    path = notes.place / "config.toml"
    path.write_text(text)
    return "--config", str(path)


def answer(notes: Notes, result: dict[str, Any], verb: str, *more: str) -> None:
    """Type the command that the result names."""
    meta = result["_meta"]
    line = ["holdfast", verb, meta["holdfast/session"], meta["holdfast/call"]]
    assert " ".join(line) in text_of(result)
    assert holdfast(*line[1:], *more, "--store", notes.store) == 0


def test_a_call_waits_for_a_person_and_is_made_when_it_is_called_again(notes: Notes, era: str) -> None:
    """On the same connection. The next one needs another approval."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=era) as client:
        for _ in range(2):
            waiting = client.call("add", "x")
            assert (status_of(waiting), waiting["isError"]) == ("waiting", True)
            assert status_of(client.call("add", "x")) == "waiting"
            answer(notes, waiting, "approve")
            assert text_of(client.call("add", "x")) == "add: x"
        assert text_of(client.call("find", "x")) == "x\nx"
    assert notes.notes == ["x", "x"]


def test_a_call_that_was_approved_is_made_from_another_connection(notes: Notes, era: str) -> None:
    """That on which it was asked has ended."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=era) as client:
        waiting = client.call("add", "x")
        client.close()
    with RawClient(notes, *options, era=era) as client:
        assert client.call("add", "x")["_meta"] == waiting["_meta"]
        answer(notes, waiting, "approve")
        result = client.call("add", "x")
        assert (status_of(result), text_of(result)) == (None, "add: x")
        assert status_of(client.call("add", "x")) == "waiting"
    assert notes.notes == ["x"]


def test_a_call_that_a_person_refused_is_not_made(notes: Notes, era: str) -> None:
    """The client is told the reason, once: after that, the person is asked again."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=era) as client:
        answer(notes, client.call("add", "x"), "refuse", "--reason", "not today")
        refused = client.call("add", "x")
        assert refused["isError"]
        assert "not today" in text_of(refused)
        waiting = client.call("add", "x")
        assert status_of(waiting) == "waiting"
        client.close()
    answer(notes, waiting, "refuse", "--reason", "never")
    with RawClient(notes, *options, era=era) as client:
        assert "never" in text_of(client.call("add", "x"))
        assert status_of(client.call("add", "x")) == "waiting"
    assert notes.notes == []


def test_arguments_that_a_person_corrected_are_what_the_server_gets(notes: Notes) -> None:
    """The rest of the message is the client's."""
    with RawClient(notes, *configured(notes, ASKS), era=MODERN) as client:
        answer(notes, client.call("add", "x"), "approve", "--args", '{"text": "better"}')
        assert text_of(client.call("add", "x")) == "add: better"
    assert notes.notes == ["better"]


@pytest.mark.parametrize(("action", "done"), [("accept", ["x"]), ("decline", []), ("cancel", [])])
def test_a_client_that_can_ask_its_person_is_told_to(notes: Notes, action: str, done: list[str]) -> None:
    """By an elicitation of the proxy's own, in the middle of the call. The server sees nothing of it."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=LEGACY, capabilities={"elicitation": {}}) as client:
        id = client.begin_call("add", "x")
        asked = client.read()
        assert asked["method"] == "elicitation/create"
        assert "add" in asked["params"]["message"]
        client.send({"id": asked["id"], "result": {"action": action, "content": {}}})
        result = client.wait(id)["result"]
        assert status_of(result) == {"accept": None, "decline": "refused", "cancel": "waiting"}[action]
        assert notes.notes == done
        assert [one for one in notes.seen if one.get("id") == asked["id"]] == []


@pytest.mark.parametrize(("action", "done"), [("accept", ["x"]), ("decline", []), ("cancel", [])])
def test_in_the_newer_era_the_call_is_answered_with_the_question(
    notes: Notes, action: str, done: list[str]
) -> None:
    """And made when it comes back with the answer, of which the server sees nothing."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=MODERN, capabilities={"elicitation": {"form": {}}}) as client:
        asked = client.call("add", "x")
        assert asked["resultType"] == "input_required"
        (name,) = asked["inputRequests"]
        assert asked["inputRequests"][name]["method"] == "elicitation/create"
        params = {"name": "add", "arguments": {"text": "x"}, "inputResponses": {name: {"action": action}}}
        result = client.ask("tools/call", params)["result"]
        assert status_of(result) == {"accept": None, "decline": "refused", "cancel": "waiting"}[action]
        assert notes.notes == done
        assert "inputResponses" not in json.dumps(notes.seen)


def test_a_client_that_can_only_open_links_is_not_asked_for_a_form(notes: Notes, era: str) -> None:
    """It is told the commands."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=era, capabilities={"elicitation": {"url": {}}}) as client:
        assert status_of(client.call("add", "x")) == "waiting"


def test_an_answer_that_nobody_was_asked_for_does_not_count(notes: Notes) -> None:
    """The person is asked."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=MODERN, capabilities={"elicitation": {}}) as client:
        said = {"holdfast/approval": {"action": "accept"}}
        params = {"name": "add", "arguments": {"text": "x"}, "inputResponses": said}
        assert client.ask("tools/call", params)["result"]["resultType"] == "input_required"
    assert notes.notes == []


def test_arguments_that_are_redacted_reach_the_server_and_not_the_record(notes: Notes) -> None:
    """Calls that differ in them are different calls, and one that was cut off is still found."""
    options = configured(notes, '[tools."*"]\nredact = ["text"]\n')
    with RawClient(notes, *options, era=MODERN) as client:
        assert text_of(client.call("add", "s3cret-one")) == "add: s3cret-one"
        client.begin_call("add", "s3cret-two", result={"content": []}, then={"die": True})
        client.finish()
    with RawClient(notes, *options, era=MODERN) as client:
        assert status_of(client.call("add", "s3cret-three", result={"content": []})) is None
        doubt = client.call("add", "s3cret-two", result={"content": []}, then={"die": True})
        assert status_of(doubt) == "in_doubt"
        client.close()
    assert notes.notes == ["s3cret-one", "s3cret-two", "s3cret-three"]
    stored = b"".join(path.read_bytes() for path in notes.place.glob("calls.db*"))
    assert b"redacted" in stored
    for secret in (b"s3cret-two", b"s3cret-three"):
        assert secret not in stored


def test_a_call_with_redacted_arguments_that_runs_again_has_its_own(notes: Notes) -> None:
    """Not those on record."""
    options = configured(notes, 'trust = true\n[tools.set]\nredact = ["text"]\n')
    with RawClient(notes, *options, era=MODERN) as client:
        client.begin_call("set", "s3cret", then={"wait": "go", "die": True})
        notes.wait_until_waiting("go")
        client.kill()
    notes.allow("go")
    with RawClient(notes, *options, era=MODERN) as client:
        client.begin_call("set", "s3cret", then={"wait": "go", "die": True})
        client.finish()
    assert set(notes.notes) == {"s3cret"}


LOOK = """
from pathlib import Path
from holdfast import Landed, NotLanded, Unsure

def added(ctx, **args):
    if isinstance(args.get("how"), str) or args["text"] == "[redacted]":
        return NotLanded()
    return Landed("found it") if args["text"] in Path("PLACE/notes").read_text() else NotLanded()
"""


@pytest.mark.parametrize("hidden", ["text", "how"])
def test_a_function_that_looks_gets_arguments_that_are_redacted(notes: Notes, hidden: str) -> None:
    """On a later connection, too: the client's own. With what is on record it would say that nothing
    happened, or the arguments would not fit the schema, and nothing would be asked."""
    (notes.place / "look.py").write_text(LOOK.replace("PLACE", str(notes.place)))
    rule = f'[tools.add]\nredact = ["{hidden}"]\nverify = "{notes.place / "look.py"}:added"\n'
    options = configured(notes, rule)
    how = {"then": {"wait": "never"}}
    with RawClient(notes, *options, era=MODERN) as client:
        client.begin_call("add", "s3cret", **how)
        notes.wait_until_waiting("never")
        client.kill()
    kill_servers(notes)
    with RawClient(notes, *options, era=MODERN) as client:
        result = client.call("add", "s3cret", **how)
        assert (status_of(result), text_of(result)) == ("replayed", "found it")
    assert notes.notes == ["s3cret"]


def test_a_call_that_a_person_corrected_is_settled_with_what_the_server_got(notes: Notes) -> None:
    """Not with what the client has asked for: that was never done. It runs again with that, too."""
    rule = f'[tools.add]\napproval = true\nverify = "{notes.place / "look.py"}:added"\n'
    (notes.place / "look.py").write_text(LOOK.replace("PLACE", str(notes.place)))
    for tool, rules in (("add", rule), ("set", "trust = true\n[tools.set]\napproval = true\n")):
        options = configured(notes, rules)
        with RawClient(notes, *options, era=MODERN) as client:
            waiting = client.call(tool, "x")
            better = {"text": f"better {tool}", "how": {"then": {"wait": f"go {tool}"}}}
            answer(notes, waiting, "approve", "--args", json.dumps(better))
            client.begin_call(tool, "x")
            notes.wait_until_waiting(f"go {tool}")
            client.kill()
        kill_servers(notes)
        notes.allow(f"go {tool}")
        with RawClient(notes, *options, era=MODERN) as client:
            result = client.call(tool, "x")
            assert not result.get("isError")
    assert notes.notes == ["better add", "better set", "better set"]


@pytest.mark.parametrize("text", [["s3cret"], {"s3cret": 1}])
def test_redacted_arguments_that_the_schema_refuses_are_not_on_record_either(notes: Notes, text: Any) -> None:
    """What is wrong with them is told without them."""
    options = configured(notes, '[tools.add]\nredact = ["text"]\n')
    with RawClient(notes, *options, era=MODERN) as client:
        refused = client.ask("tools/call", {"name": "add", "arguments": {"text": text, "else": 1}})["result"]
        assert status_of(refused) == "refused"
        assert "args.text: is not what the schema of the tool asks for (type)" in text_of(refused)
        assert "args.else: unknown argument" in text_of(refused)
        assert "s3cret" not in json.dumps(refused)
        client.close()
    stored = b"".join(path.read_bytes() for path in notes.place.glob("calls.db*"))
    assert b"args.text" in stored
    assert b"s3cret" not in stored


def test_parts_of_arguments_are_redacted_at_any_depth(notes: Notes) -> None:
    """What is beside them is on record. Calls that differ in them are different ones."""
    options = configured(notes, '[tools.add]\nredact = ["how.login.token", "how.users.*.pin", "how.a.b.c"]\n')
    said: dict[str, Any] = {
        "login": {"token": "s3cret-1", "user": "ann"},
        "users": [{"pin": "s3cret-2", "name": "bob"}],
    }
    result: dict[str, Any] = {"content": []}
    with RawClient(notes, *options, era=MODERN) as client:
        for secret in ("s3cret-3", "s3cret-4"):
            login = {"token": secret, "user": "ann"}
            client.begin_call("add", "x", **{**said, "login": login}, result=result, silent=True)
        client.begin_call("add", "x", **said, a={"b": "flat"}, result=result, silent=True)
        wait_until(lambda: len(notes.notes) == 3)
        client.begin_call("add", "x", **said, result=result, first={"wait": "never"})
        notes.wait_until_waiting("never")
        client.kill()
    kill_servers(notes)
    stored = b"".join(path.read_bytes() for path in notes.place.glob("calls.db*"))
    assert b"s3cret" not in stored
    for known in (b"ann", b"bob", b"flat"):
        assert known in stored
    assert notes.notes == ["x"] * 3


def test_results_are_redacted_where_the_configuration_says_so(notes: Notes) -> None:
    """Those of the tool and its errors reach the client, and not the record. What could not be delivered is
    known to have happened."""
    options = configured(notes, '[tools.add]\nredact = ["text", "how"]\nredact_results = true\n')
    failed = {"isError": True, "content": [{"type": "text", "text": "s3cret-2"}]}
    error = {"code": -32603, "message": "s3cret-3"}
    with RawClient(notes, *options, era=MODERN) as client:
        assert text_of(client.call("add", "s3cret-1")) == "add: s3cret-1"
        assert text_of(client.call("add", "x", result=failed)) == "s3cret-2"
        assert client.wait(client.begin_call("add", "x", error=error))["error"] == error
        assert status_of(client.call("add", "x", error=error)) == "in_doubt"
        client.begin_call("add", "s3cret-4", then={"wait": "go"})
        notes.wait_until_waiting("go")
        client.end_input()
        notes.allow("go")
        client.finish()
    with RawClient(notes, *options, era=MODERN) as client:
        again = client.call("add", "s3cret-4", then={"wait": "go"})
        assert (status_of(again), text_of(again)) == (
            "replayed",
            "its result is not on record (redact_results)",
        )
        client.close()
    stored = b"".join(path.read_bytes() for path in notes.place.glob("calls.db*"))
    assert b"which is not on record" in stored
    assert b"s3cret" not in stored


def test_what_is_wrong_with_all_arguments_together_quotes_none_that_is_redacted() -> None:
    """A message about the whole object would show it."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"pin": {"type": "string"}, "user": {"type": "integer"}},
        "required": ["user"],
        "not": {"required": ["pin"]},
    }
    arguments = RedactedArguments(ForeignArguments("login", schema, bytes_max=10_000), ("pin",))
    for check in (arguments.check, arguments.check_whole):
        with pytest.raises(BadArguments) as caught:
            check({"pin": "s3cret"})
        assert "args: is not what the schema of the tool asks for (not)" in str(caught.value)
        assert "'user' is a required property" in str(caught.value)
        assert "s3cret" not in str(caught.value)
        with pytest.raises(BadArguments, match='"ann" is not of type "integer"'):
            check({"user": "ann"})


def test_a_key_does_not_stand_for_a_call_with_another_secret(notes: Notes) -> None:
    """The record shows both alike. Such a call is refused, as with any other arguments: also while the first
    one waits for a person, and while it is in doubt."""
    rules = '[tools.add]\nredact = ["text"]\n[tools.set]\nredact = ["text"]\napproval = true\n'
    options = configured(notes, rules)
    error = {"code": -32603, "message": "no"}

    def call(client: RawClient, tool: str, key: str, text: str, **how: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": {"text": text, **({"how": how} if how else {})}}
        answer = client.ask("tools/call", params, **{"holdfast/key": key})
        found: dict[str, Any] = answer.get("result", answer)
        return found

    with RawClient(notes, *options, era=MODERN) as client:
        assert text_of(call(client, "add", "k1", "one")) == "add: one"
        assert "'k1' in _meta was used before" in text_of(call(client, "add", "k1", "two"))
        assert status_of(call(client, "add", "k1", "one")) == "replayed"
        assert call(client, "add", "k2", "one", error=error)["error"] == error
        assert "'k2' in _meta was used before" in text_of(call(client, "add", "k2", "two", error=error))
        assert status_of(call(client, "add", "k2", "one", error=error)) == "in_doubt"
        waiting = call(client, "set", "k3", "one")
        assert status_of(waiting) == "waiting"
        assert "'k3' in _meta was used before" in text_of(call(client, "set", "k3", "two"))
        answer(notes, waiting, "approve")
        assert "'k3' in _meta was used before" in text_of(call(client, "set", "k3", "two"))
        assert text_of(call(client, "set", "k3", "one")) == "set: one"
    assert notes.notes == ["one"] * 3


def test_the_answer_to_a_question_that_is_no_longer_open_does_not_reach_the_server(notes: Notes) -> None:
    """The client has taken the call back; the question was the proxy's own."""
    options = configured(notes, ASKS)
    with RawClient(notes, *options, era=LEGACY, capabilities={"elicitation": {}}) as client:
        id = client.begin_call("add", "x")
        asked = client.read()
        assert asked["method"] == "elicitation/create"
        client.send({"method": "notifications/cancelled", "params": {"requestId": id}})
        client.ask("other/thing")
        client.send({"id": asked["id"], "result": {"action": "accept"}})
        client.ask("other/thing")
        assert asked["id"] not in [one.get("id") for one in notes.seen]
    assert notes.notes == []
