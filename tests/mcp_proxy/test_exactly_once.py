"""What is called again after a crash is done once, or is in doubt."""

from __future__ import annotations

import os
import shlex
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.redact import without_password
from tests.conftest import IN_LONG
from tests.crash.fork_server import Warm
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


@pytest.fixture(params=[pytest.param(LEGACY, marks=pytest.mark.long), MODERN])
def era(request: pytest.FixtureRequest) -> str:
    """Each era of the protocol. What passes in the older one is the same: `test_relay` looks at both."""
    found: str = request.param
    return found


@pytest.fixture(params=["sqlite", pytest.param("dir", marks=pytest.mark.long), IN_LONG])
def notes(request: pytest.FixtureRequest, quick_path: Path, loaded_warm: Warm) -> Notes:
    """A folder that a server works in, with a ledger on each kind of store."""
    if request.param == "postgresql":
        request.getfixturevalue("postgres")
    return Notes(quick_path, loaded_warm, request.param)


def resolve(notes: Notes, result: dict[str, Any], *verdict: str) -> None:
    """Type the command that the result names."""
    meta = result["_meta"]
    words = ["resolve", meta["holdfast/session"], meta["holdfast/call"], *verdict]
    line = " ".join(("holdfast", *words[:4]))
    assert line in text_of(result)
    assert f"--store {shlex.quote(without_password(notes.store))}" in text_of(result)
    assert holdfast(*words, "--store", notes.store) == 0


def wait_for_servers(notes: Notes) -> None:
    """Wait until the servers of proxies that were killed have ended."""
    for pid in (notes.place / "started").read_text().split():
        wait_until(partial(_has_ended, pid))


def _has_ended(pid: str) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


# -- one after the other -------------------------------------------------------------------------------


def test_a_call_after_a_delivered_one_is_a_new_call(notes: Notes, era: str) -> None:
    """On the same connection, and on another."""
    for _ in range(2):
        with RawClient(notes, era=era) as client:
            for _ in range(2):
                result = client.call("add", "x")
                assert (status_of(result), text_of(result)) == (None, "add: x")
            client.close()
    assert notes.notes == ["x"] * 4


def test_an_outcome_that_was_not_delivered_is_given_once(notes: Notes, era: str) -> None:
    """To the same call that follows, on another connection, and marked. The one after that is a new call."""
    with RawClient(notes, era=era) as client:
        client.begin_call("add", "x", then={"wait": "go"})
        notes.wait_until_waiting("go")
        client.end_input()  # As a client that ends: it does not wait for the answer.
        notes.allow("go")
        assert client.finish() == 0
    with RawClient(notes, era=era) as client:
        again = client.call("add", "x", then={"wait": "go"})
        assert (status_of(again), text_of(again)) == ("replayed", "add: x")
        assert again.get("resultType") == ("complete" if era == MODERN else None)
        assert notes.notes == ["x"]
        other = client.call("add", "y", then={"wait": "go"})
        third = client.call("add", "x", then={"wait": "go"})
        assert (status_of(other), status_of(third)) == (None, None)
    assert notes.notes == ["x", "y", "x"]


def test_a_call_that_was_cut_off_blocks_its_repetition_until_a_person_says_what_happened(
    notes: Notes, era: str
) -> None:
    """Another call is made. After `landed`, the call is given the result, once; then it is a new one."""
    with RawClient(notes, era=era) as client:
        client.begin_call("add", "x", then={"wait": "never"})
        notes.wait_until_waiting("never")
        client.kill()
    kill_servers(notes)
    with RawClient(notes, era=era) as client:
        doubt = client.call("add", "x", then={"wait": "never"})
        assert doubt["isError"] is True
        assert doubt.get("resultType") == ("complete" if era == MODERN else None)
        assert status_of(doubt) == "in_doubt"
        assert "NOT RUN" in text_of(doubt)
        assert text_of(client.call("add", "y")) == "add: y"
        resolve(notes, doubt, "landed", "--result", "as you said")
        again = client.call("add", "x", then={"wait": "never"})
        assert (status_of(again), text_of(again)) == ("replayed", "as you said")
        assert not again.get("isError")
        assert notes.notes == ["x", "y"]
        notes.allow("never")
        assert status_of(client.call("add", "x", then={"wait": "never"})) is None
    assert notes.notes == ["x", "y", "x"]


def kill_servers(notes: Notes) -> None:
    """Kill servers that wait for something, and would not notice that their client has gone."""
    for pid in (notes.place / "started").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    wait_for_servers(notes)


def test_after_not_landed_the_call_is_made(notes: Notes, era: str) -> None:
    """A person looked, and nothing had happened."""
    with RawClient(notes, era=era) as client:
        client.begin_call("add", "x", first={"die": True})
        assert client.finish() is not None
    with RawClient(notes, era=era) as client:
        doubt = client.call("add", "x", first={"die": True})
        assert status_of(doubt) == "in_doubt"
        resolve(notes, doubt, "not-landed")
        client.begin_call("add", "x", first={"die": True})
        assert client.finish() is not None
    assert notes.calls_seen == ["add", "add"]


def test_a_server_that_crashes_in_a_call_leaves_it_in_doubt(notes: Notes, era: str) -> None:
    """The client is told so by the proxy, before that ends as the server did."""
    with RawClient(notes, era=era) as client:
        doubt = client.call("add", "x", then={"die": True})
        assert status_of(doubt) == "in_doubt"
        assert "the server ended during the call" in text_of(doubt)
        assert client.finish() == 128 + signal.SIGKILL
    with RawClient(notes, era=era) as client:
        again = client.call("add", "x", then={"die": True})
        assert status_of(again) == "in_doubt"
        assert notes.notes == ["x"]
        resolve(notes, again, "landed", "--result", "ok")
        assert text_of(client.call("add", "x", then={"die": True})) == "ok"
    assert notes.notes == ["x"]


def test_a_doubt_of_a_connection_that_still_lives_is_settled_there(notes: Notes, era: str) -> None:
    """The proxy takes the answer in that another process has left for it."""
    with RawClient(notes, era=era) as client:
        error = {"code": -32603, "message": "out of paper"}
        told = client.wait(client.begin_call("add", "x", error=error))
        assert told["error"] == error  # What the server says reaches the client.
        doubt = client.call("add", "x", error=error)
        assert status_of(doubt) == "in_doubt"
        assert "out of paper" in text_of(doubt)
        resolve(notes, doubt, "landed", "--result", "seen")
        assert text_of(client.call("add", "x", error=error)) == "seen"
    assert notes.notes == ["x"]


@pytest.mark.parametrize("code", [-32601, -32602])
def test_a_call_that_the_server_refused_may_be_made_again(notes: Notes, code: int) -> None:
    """Nothing was done; the client sees the error as it is."""
    error = {"code": code, "message": "no", "data": {"x": 1}}
    with RawClient(notes, era=MODERN) as client:
        for _ in range(3):
            assert client.wait(client.begin_call("add", "x", error=error, nothing=True))["error"] == error
    assert notes.calls_seen == ["add"] * 3


def test_an_error_of_the_tool_is_believed(notes: Notes, era: str) -> None:
    """It has failed; the same call is made again."""
    failed = {"isError": True, "content": [{"type": "text", "text": "no such page"}]}
    with RawClient(notes, era=era) as client:
        for _ in range(3):
            result = client.call("add", "x", result=failed, nothing=True)
            assert (result["isError"], text_of(result), status_of(result)) == (True, "no such page", None)
    assert notes.calls_seen == ["add"] * 3


def test_a_server_that_asks_for_something_first_is_asked_again(notes: Notes) -> None:
    """The client answers by sending the call again, with what was asked for: these are calls of their own."""
    asks = {"resultType": "input_required", "requestState": "s1", "content": None}
    with RawClient(notes, era=MODERN) as client:
        for _ in range(2):
            assert client.call("add", "x", result=asks, nothing=True)["requestState"] == "s1"
        params = {
            "name": "add",
            "arguments": {"text": "x"},
            "requestState": "s1",
            "inputResponses": {"a": {}},
        }
        assert text_of(client.ask("tools/call", params)["result"]) == "add: x"
        assert notes.seen[-1]["params"]["inputResponses"] == {"a": {}}


# -- tools that may run again ---------------------------------------------------------------------------


def test_a_tool_that_only_reads_runs_again(notes: Notes, era: str) -> None:
    """Whatever became of it: nothing is in doubt. What it read is not on record."""
    with RawClient(notes, era=era) as client:
        client.call("add", "a secret")
        client.begin_call("find", "secret", then={"wait": "go"})
        notes.wait_until_waiting("go")
        client.kill()
    kill_servers(notes)
    notes.allow("go")
    with RawClient(notes, era=era) as client:
        for _ in range(4):
            assert text_of(client.call("find", "secret", then={"wait": "go"})) == "a secret"


def test_what_the_server_calls_idempotent_is_believed_with_trust_only(notes: Notes) -> None:
    """With `trust = true`, a call that was cut off is made again."""
    with RawClient(notes, era=MODERN) as client:
        client.begin_call("set", "x", then={"wait": "go"})
        notes.wait_until_waiting("go")
        client.kill()
    kill_servers(notes)
    with RawClient(notes, era=MODERN) as client:
        assert status_of(client.call("set", "x", then={"wait": "go"})) == "in_doubt"
        client.close()
    (notes.place / "trust.toml").write_text("trust = true\n")
    notes.allow("go")
    with RawClient(notes, "--config", str(notes.place / "trust.toml"), era=MODERN) as client:
        result = client.call("set", "x", then={"wait": "go"})
        assert (status_of(result), text_of(result)) == (None, "set: x")
        assert notes.notes == ["x", "x"]
        client.call("set", "x", then={"wait": "go"})
    assert notes.notes == ["x", "x", "x"]


# -- keys and once --------------------------------------------------------------------------------------


def test_a_key_in_meta_names_a_call_for_good(notes: Notes, era: str) -> None:
    """The same key is the same call, on any connection; with other arguments, it is refused."""
    for status in (None, "replayed", "replayed"):
        with RawClient(notes, era=era) as client:
            params = {"name": "add", "arguments": {"text": "x"}}
            result = client.ask("tools/call", params, **{"holdfast/key": "k1"})["result"]
            assert (status_of(result), text_of(result)) == (status, "add: x")
            other = {"name": "add", "arguments": {"text": "y"}}
            refused = client.ask("tools/call", other, **{"holdfast/key": "k1"})["result"]
            assert refused["isError"]
            assert "'k1'" in text_of(refused)
            client.close()
    with RawClient(notes, era=era) as client:
        assert status_of(client.call("add", "x")) is None
        params = {"name": "add", "arguments": {"text": "x"}}
        assert status_of(client.ask("tools/call", params, **{"holdfast/key": "k2"})["result"]) is None
    assert notes.notes == ["x"] * 3


def test_once_means_once_for_good(notes: Notes, era: str) -> None:
    """Whoever asks, and however often."""
    (notes.place / "c.toml").write_text("[tools.add]\nonce = true\n")
    for status in (None, "replayed"):
        with RawClient(notes, "--config", str(notes.place / "c.toml"), era=era) as client:
            results = [client.call("add", "x") for _ in range(3)]
            assert [status_of(one) for one in results] == [status, "replayed", "replayed"]
            assert {text_of(one) for one in results} == {"add: x"}
            client.close()
    assert notes.notes == ["x"]


def test_a_scope_of_one_connection(notes: Notes) -> None:
    """The same call is made once in each."""
    (notes.place / "c.toml").write_text('[tools.add]\nscope = "session"\n')
    for _ in range(2):
        with RawClient(notes, "--config", str(notes.place / "c.toml"), era=MODERN) as client:
            results = [client.call("add", "x") for _ in range(3)]
            assert [status_of(one) for one in results] == [None, "replayed", "replayed"]
            assert {text_of(one) for one in results} == {"add: x"}
            client.close()
    assert notes.notes == ["x", "x"]


# -- two clients at once --------------------------------------------------------------------------------


def test_a_call_of_a_living_connection_makes_the_same_call_elsewhere_wait(notes: Notes, era: str) -> None:
    """That one is given the outcome, marked: most probably, it is the same client, connected again."""
    with RawClient(notes, era=era) as first, RawClient(notes, era=era) as second:
        begun = first.begin_call("add", "x", then={"wait": "go"})
        notes.wait_until_waiting("go")
        waiting = second.begin_call("add", "x", then={"wait": "go"})
        assert text_of(second.call("add", "y")) == "add: y"
        wait_until(lambda: "waits for the same call" in second.stderr)
        notes.allow("go")
        assert status_of(first.wait(begun)["result"]) is None
        joined = second.wait(waiting)["result"]
        assert (status_of(joined), text_of(joined)) == ("replayed", "add: x")
        assert notes.notes == ["x", "y"]
        assert status_of(second.call("add", "x", then={"wait": "go"})) is None
    assert notes.notes == ["x", "y", "x"]


def test_a_call_that_waits_for_one_that_dies_is_told_that_it_is_in_doubt(notes: Notes, era: str) -> None:
    """It is not made."""
    with RawClient(notes, era=era) as first, RawClient(notes, era=era) as second:
        first.begin_call("add", "x", then={"wait": "go"})
        notes.wait_until_waiting("go")
        waiting = second.begin_call("add", "x", then={"wait": "go"})
        second.call("add", "y")
        first.kill()
        assert status_of(second.wait(waiting)["result"]) == "in_doubt"
    assert notes.notes == ["x", "y"]


def test_servers_of_other_names_have_ledgers_of_their_own(notes: Notes) -> None:
    """In the same store."""
    with RawClient(notes, era=MODERN) as client:
        client.begin_call("add", "x", then={"wait": "go"})
        notes.wait_until_waiting("go")
        client.kill()
    kill_servers(notes)
    notes.allow("go")
    with RawClient(notes, name="others", era=MODERN) as client:
        assert status_of(client.call("add", "x", then={"wait": "go"})) is None
    assert notes.notes == ["x", "x"]


def test_a_ledger_that_is_used_for_another_server_is_warned_of(notes: Notes) -> None:
    """Once the other one is called. The same server is not warned of."""
    said: list[bool] = []
    for more in ([], [], ["else"], ["else"]):
        with RawClient(notes, era=MODERN, server=[*notes.server(), *more]) as client:
            client.call("add", "x")
            client.close()
            said.append("was used last for a server with another command" in client.stderr)
    assert said == [False, False, True, False]


KINDS = ("commit", "claim", "server", "client")


# -- kills at every boundary ----------------------------------------------------------------------------


def test_a_kill_at_every_boundary_leaves_each_effect_once_or_in_doubt(notes: Notes) -> None:
    """The proxy kills itself before and after each thing that it hands to the disk, to the server and to the
    client. The client is started anew and calls again. What it gets is either the outcome, once, or that it
    is in doubt; and that only while the outcome was not on the disk."""
    with RawClient(notes, era=MODERN) as client:
        client.call("add", "probe")
        client.close()
        passed = client.list_passed()
    count = len(passed)
    assert {f"{when} {what}" for when in ("before", "after") for what in KINDS} == set(passed)
    seen: set[str] = set()
    for boundary in range(count):
        text = f"n{boundary}"
        with RawClient(notes, era=MODERN, dies_at=boundary) as client:
            is_delivered = client.has_answer(client.begin_call("add", text))
            client.close()
            wait_for_servers(notes)
            last = client.list_passed()[-1]
        done = notes.notes.count(text)
        with RawClient(notes, era=MODERN) as client:
            result = client.call("add", text)
            status = status_of(result)
            seen.add(f"{status} {done}")
            if status == "in_doubt":
                assert not is_delivered, last
                resolve(notes, result, *(["landed", "--result", "it is there"] if done else ["not-landed"]))
                result = client.call("add", text)
                assert status_of(result) == ("replayed" if done else None), last
            elif status == "replayed":
                assert (done, text_of(result)) == (1, f"add: {text}"), last
            else:
                # The server has never seen it, or the client has got its answer.
                assert status is None
                assert done == is_delivered, last
            assert notes.notes.count(text) == (2 if is_delivered and status is None else 1), last
            client.close()
    assert seen == {"None 0", "None 1", "in_doubt 0", "in_doubt 1", "replayed 1"}, seen
