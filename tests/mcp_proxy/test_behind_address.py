"""The proxy in front of servers that have an address."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp.plain_http import DROP, HANG, PlainHttp
from tests.mcp_proxy.raw_client import LEGACY, MODERN, Notes, RawClient, holdfast, status_of, text_of

PAY = {"name": "pay", "arguments": {"to": "ann", "cents": 5}}


class Bank:
    """A server behind an address, and the folder with what it did."""

    def __init__(self, place: Path, url: str, server: PlainHttp, notes: Notes) -> None:
        self.place, self.url, self.server, self.notes = place, url, server, notes

    @property
    def paid(self) -> list[str]:
        """What was paid."""
        path = self.place / "paid"
        return path.read_text().splitlines() if path.exists() else []

    def client(self, era: str, *options: str) -> RawClient:
        """A client of a proxy in front of it."""
        return RawClient(self.notes, *options, url=self.url, era=era, name="bank")


@pytest.fixture
def bank(quick_path: Path, notes: Notes) -> Iterator[Bank]:
    """A bank that pays."""
    place = quick_path / "bank"
    place.mkdir()
    server = PlainHttp(place)
    with server.serve() as url:
        yield Bank(place, url, server, notes)


def test_a_call_passes_and_is_on_record(bank: Bank, era: str) -> None:
    """What the server says reaches the client as it is, and the headers are those of the era."""
    with bank.client(era) as client:
        answer = client.ask("tools/call", PAY)
        assert text_of(answer["result"]) == "paid"
        assert status_of(answer["result"]) is None
    assert bank.paid == ["ann:5"]
    said = {name.lower(): value for name, value in bank.server.headers[-1].items()}
    if era == MODERN:
        assert (said["mcp-protocol-version"], said["mcp-method"], said["mcp-name"]) == (
            MODERN,
            "tools/call",
            "pay",
        )
        assert "mcp-session-id" not in said
    else:
        assert said["mcp-session-id"] in bank.server.sessions
        assert said["mcp-protocol-version"] == LEGACY
        assert "mcp-method" not in said


def test_an_answer_that_was_lost_is_in_doubt_and_not_asked_for_again(bank: Bank, era: str) -> None:
    """The connection is cut after the effect: neither this client nor the next one pays twice."""
    bank.server.answers = [DROP]
    with bank.client(era) as client:
        answer = client.ask("tools/call", PAY)
        assert status_of(answer["result"]) == "in_doubt"
        assert "gave no answer" in text_of(answer["result"])
        # The connection of the proxy goes on, and so does everything else.
        assert "result" in client.ask("tools/list")
    with bank.client(era) as again:
        answer = again.ask("tools/call", PAY)
        assert status_of(answer["result"]) == "in_doubt"
        assert (
            text_of(again.ask("tools/call", {**PAY, "arguments": {"to": "bob", "cents": 1}})["result"])
            == "paid"
        )
    assert bank.paid == ["ann:5", "bob:1"]


@pytest.mark.parametrize(
    ("status", "is_done"), [(503, "in_doubt"), (500, "in_doubt"), (401, None), (429, None)]
)
def test_what_a_server_refuses_is_not_done_and_what_it_fails_at_is_in_doubt(
    bank: Bank, status: int, is_done: str | None
) -> None:
    """By the HTTP status."""
    bank.server.answers = [status]
    with bank.client(LEGACY) as client:
        answer = client.ask("tools/call", PAY)
        said = json.dumps(answer, ensure_ascii=False)
        assert f"HTTP {status}" in said
        assert ("--header" in said) == (status == 401)
        again = client.ask("tools/call", PAY)["result"]
    if is_done is None:
        assert text_of(again) == "paid"
        assert bank.paid == ["ann:5"]
    else:
        assert status_of(again) == is_done
        assert not bank.paid


def test_a_server_that_is_not_there_is_a_failure_and_is_found_when_it_comes(bank: Bank, notes: Notes) -> None:
    """Nothing was sent: the call is made again without a question."""
    server = PlainHttp(bank.place)
    with server.serve() as url:
        port = int(url.split(":")[2].split("/")[0])
    with RawClient(notes, url=url, name="bank", era=MODERN) as client:
        answer = client.ask("tools/call", PAY)
        assert "cannot be reached" in json.dumps(answer)
        assert status_of(answer.get("result", {})) != "in_doubt"
        with PlainHttp(bank.place).serve(port):
            assert text_of(client.ask("tools/call", PAY)["result"]) == "paid"
    assert bank.paid == ["ann:5"]


def test_a_session_that_the_server_has_forgotten_is_begun_again(bank: Bank) -> None:
    """The client does not notice: the call that was refused for it is sent once more."""
    with bank.client(LEGACY) as client:
        assert text_of(client.ask("tools/call", PAY)["result"]) == "paid"
        bank.server.sessions.clear()
        other = {**PAY, "arguments": {"to": "bob", "cents": 1}}
        assert text_of(client.ask("tools/call", other)["result"]) == "paid"
        assert len(bank.server.sessions) == 1
    assert bank.paid == ["ann:5", "bob:1"]


def test_calls_beside_one_that_hangs_go_on(bank: Bank, era: str) -> None:
    """And a client that ends leaves that one in doubt."""
    with bank.client(era) as client:
        client.ask("tools/list")
        bank.server.answers = [HANG]
        client.begin("tools/call", PAY)
        assert bank.server.waiting.wait(300)
        other = {**PAY, "arguments": {"to": "bob", "cents": 1}}
        assert text_of(client.ask("tools/call", other)["result"]) == "paid"
        client.kill()
    bank.server.released.set()
    with bank.client(era) as again:
        assert status_of(again.ask("tools/call", PAY)["result"]) == "in_doubt"
    assert bank.paid == ["ann:5", "bob:1"]


@pytest.mark.parametrize("era", [pytest.param(LEGACY, marks=pytest.mark.long), MODERN])
def test_a_kill_at_every_boundary_leaves_each_effect_once_or_in_doubt(bank: Bank, era: str) -> None:
    """The proxy kills itself before and after each thing that it hands to the disk, to the server and to the
    client; the client calls again through another one."""
    with bank.client(era) as client:
        client.ask("tools/call", PAY)
        client.close()
        count = len(client.list_passed())
    seen: set[str] = set()
    for boundary in range(count):
        to = f"n{boundary}"
        call = {"name": "pay", "arguments": {"to": to, "cents": 1}}
        with RawClient(bank.notes, url=bank.url, era=era, name="bank", dies_at=boundary) as client:
            is_delivered = client.has_answer(client.begin("tools/call", call))
            client.close()
            last = client.list_passed()[-1]
        done = bank.paid.count(f"{to}:1")
        with bank.client(era) as client:
            status = status_of(client.ask("tools/call", call)["result"])
        seen.add(f"{status} {done}")
        if status == "in_doubt":
            assert not is_delivered, last
        elif status == "replayed":
            assert done == 1, last
        else:
            # The server has never seen it, or the client has got its answer.
            assert status is None
            assert done == is_delivered, last
        assert bank.paid.count(f"{to}:1") == done + (status is None), last
    assert seen == {"None 0", "None 1", "in_doubt 0", "in_doubt 1", "replayed 1"}, seen


def test_a_header_comes_from_the_environment_and_is_nowhere_else(
    bank: Bank,
) -> None:
    """Neither on record nor in what is printed."""
    notes = Notes(bank.notes.place)
    env = {**os.environ, "BANK_TOKEN": "Bearer s3cret", "HOME": str(notes.place)}
    with RawClient(
        notes, "--header", "Authorization=BANK_TOKEN", url=bank.url, env=env, name="bank"
    ) as client:
        assert text_of(client.ask("tools/call", PAY)["result"]) == "paid"
        client.close()
        assert "s3cret" not in client.stderr
    assert bank.server.headers[-1]["Authorization"] == "Bearer s3cret"
    for path in notes.place.rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--url", "bank.example/mcp"], "begins with https://"),
        (
            ["--url", "https://bank.example/mcp", "--header", "Authorization=NOT_SET"],
            "no environment variable",
        ),
        (["--url", "https://bank.example/mcp", "--header", "Bearer s3cret"], "NAME=VARIABLE"),
        (["--url", "https://bank.example/mcp", "--header", "Host=HOME"], "makes this header itself"),
        (["--url", "https://bank.example/mcp", "--", "uvx", "bank"], "either --url or a command"),
        (["--header", "A=HOME", "--", "uvx", "bank"], "goes with --url"),
        ([], "which server?"),
    ],
)
def test_options_that_are_wrong_are_told_in_words(
    arguments: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no secret that stands in the wrong place is printed."""
    assert holdfast("mcp", "proxy", "--name", "bank", *arguments) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert advice in said
    assert "s3cret" not in said


def test_check_asks_a_server_with_an_address(bank: Bank, capsys: pytest.CaptureFixture[str]) -> None:
    """In either era."""
    assert holdfast("mcp", "check", "--json", "--url", bank.url) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["name"]: one["after_a_crash"] for one in found["tools"]} == {
        "pay": "in doubt",
        "find_payment": "runs again",
        "set_limit": "in doubt",
    }
