"""`holdfast notify` tells people what waits, by a webhook or a command: never lost, and secrets stay here."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cli_processes import Done, call, end, start
from tests.crash.fork_server import poll
from tests.tools.http_services import Service, refusing_url

WAITS = [("doubtful", "charge"), ("asking", "refund"), ("deleted", "announce")]
SECRET = "/hooks/0a1b2c3d4e5f/xY9?token=hunter22"

Call = Callable[[Path, str], Done]


def told(service: Service) -> list[Any]:
    return [json.loads(body) for body in service.bodies]


def names(service: Service) -> list[tuple[str, str]]:
    return [(one["session"], one["tool"]) for one in told(service)]


def test_a_webhook_gets_everything_that_waits_once(shop: Path, call_here: Call) -> None:
    """With what a person needs to decide, and the command that answers it, which works as it stands."""
    with Service() as service:
        for _ in range(2):
            done = call_here(
                shop, f"notify --webhook {service.url(SECRET)} --once --ui http://127.0.0.1:8787/"
            )
            assert (done.code, done.err) == (0, "")
        assert names(service) == WAITS
        doubt, approval, operation = told(service)
        assert {one.path for one in service.received} == {SECRET}
        assert service.keys == [doubt["id"], approval["id"], operation["id"]]
    assert (approval["kind"], approval["call"]) == ("approval", "c-refund")
    assert approval["args"] == {"order": "42", "cents": 9900}
    assert approval["text"].startswith(
        'to approve: refund(order="42", cents=9900) in session asking, since 20'
    )
    assert doubt["text"].startswith('in doubt: charge(order="42", cents=500) in session doubtful, since 20')
    assert "the process that ran it is gone" in doubt["text"]
    assert approval["link"].startswith("http://127.0.0.1:8787/")
    assert operation["args"] is None
    for one, answer in ((approval, "refuse"), (doubt, "not_landed"), (operation, "not_landed")):
        assert call(shop, one["commands"][answer].removeprefix("holdfast ")).code == 0
    assert call(shop, "pending").err == "nothing waits for you\n"


def test_what_was_told_is_printed(shop: Path, call_here: Call) -> None:
    """A line for each call, or with `--json` an object on it."""
    with Service() as service:
        lines = call_here(shop, f"notify --webhook {service.url(SECRET)} --once").out.splitlines()
        assert re.fullmatch(rf"\S+ told {service.url('')}/…: in doubt: charge\(.*", lines[0])
        done = call_here(shop, f"notify --webhook {service.url(SECRET)} --once --name pager --json")
    assert [json.loads(line)["session"] for line in done.out.splitlines()] == [name for name, _ in WAITS]


@pytest.mark.parametrize("answer", [500, 302, "refused", "drop"])
def test_a_webhook_that_fails_is_tried_again_and_its_secrets_stay_here(answer: Any, shop: Path) -> None:
    """By the next start at the latest. A redirect is not followed: it may lead to another host."""
    with Service(answer if answer != "refused" else 200) as service, refusing_url(SECRET) as refusing:
        url = refusing if answer == "refused" else service.url(SECRET)
        done = call(shop, f"notify --webhook {url.replace('://', '://ann:pass-word@')} --once --attempts 1")
        assert done.code == 1
        assert "3 of the calls that wait could not be told" in done.err
        assert "charge waits in session doubtful" in done.err
        assert {one.path for one in service.received} <= {SECRET}
    for secret in ("hooks", "0a1b2c3d4e5f", "xY9", "hunter22", "pass-word"):
        assert secret not in done.err + done.out


def test_the_password_of_an_address_is_sent_as_one(shop: Path) -> None:
    """As browsers do; and the address can be told by the environment."""
    with Service() as service:
        url = service.url().replace("://", "://ann:p%40ss@")
        assert call(shop, "notify --once", HOLDFAST_WEBHOOK=url).code == 0
        assert len(service.received) == 3


def test_a_command_gets_each_call_on_stdin(shop: Path) -> None:
    """As JSON, with a text in its environment. No shell takes part: what a model wrote is data."""
    script = shop / "tell.py"
    script.write_text(
        "import json, os, sys\n"
        "found = json.load(sys.stdin)\n"
        "assert os.environ['HOLDFAST_TEXT'] == found['text']\n"
        "print(found['session'], sys.argv[1], file=open('told', 'a'))\n"
        "print('said by the program')\n"
    )
    command = shlex.quote(f"{sys.executable} tell.py '$(touch pwned); a b'")
    for _ in range(2):
        done = call(shop, f"notify --command {command} --once")
        assert done.code == 0, done.err
        assert "said by" not in done.out
    assert (shop / "told").read_text().splitlines() == [f"{name} $(touch pwned); a b" for name, _ in WAITS]
    assert not (shop / "pwned").exists()


@pytest.mark.parametrize("command", ["false", "no-such-program-here"])
def test_a_command_that_fails_has_told_no_person(command: str, shop: Path) -> None:
    """The next one does."""
    failed = call(shop, f"notify --command {command} --once --name x --attempts 1")
    assert failed.code == 1
    assert command in failed.err
    assert call(shop, "notify --command true --once --name x").out.count("told true") == 3


def test_what_looks_like_a_secret_is_left_out(shop: Path) -> None:
    """Long texts are shortened; what a terminal or a chat would act on is escaped."""
    stock = (
        "import holdfast, anyio\n"
        "from clerk import call\n"
        "@holdfast.tool(side_effects={'mutate'}, needs_approval=True)\n"
        "async def send(password: str, body: str, deep: dict[str, str]) -> str:\n"
        "    'Send.'\n"
        "    return ''\n"
        "body = 'key sk-abcdefghijklmnop1234 \\u202e' + 'x' * 90000\n"
        "script = [call('send', password='hunter22', body=body,"
        " deep={'api_key': 's3cr3t'}), 'done']\n"
        "agent = holdfast.Agent(holdfast.agents.ScriptedModel(script), name='sender', tools=[send])\n"
        "anyio.run(lambda: agent.run('go', store='sqlite:holdfast.db', session='secretive'))\n"
    )
    subprocess.run([sys.executable, "-c", stock], cwd=shop, check=True)
    with Service() as service:
        assert call(shop, f"notify --webhook {service.url()} --once").code == 0
        one = next(one for one in told(service) if one["session"] == "secretive")
    sent = json.dumps(one)
    for secret in ("hunter22", "abcdefghijklmnop1234", "s3cr3t", "\u202e", "x" * 3000):
        assert secret not in sent
    assert "left out" in one["text"]


def test_a_notifier_that_is_killed_before_it_recorded_tells_again(shop: Path) -> None:
    """The message was out, and nothing said so: twice is better than never."""
    with Service() as service:
        line = ("notify", "--webhook", service.url(), "--once")
        process = start(shop, *line)
        service.on_done = process.kill
        assert end(process).code == -signal.SIGKILL
        service.on_done = lambda: None
        assert names(service) == WAITS[:1]
        assert call(shop, shlex.join(line)).code == 0
        assert names(service) == [WAITS[0], *WAITS]
        assert (
            told(service)[0]["id"] == told(service)[1]["id"]
        )  # The other side can tell that it is the same.


def test_two_notifiers_tell_each_call_once(shop: Path) -> None:
    """They run until they are stopped; when one is killed, the other one goes on, and tells what comes."""
    with Service() as service:
        first = start(shop, "notify", "--webhook", service.url())
        poll(lambda: len(service.received) == 3, "the first to tell")
        second = start(shop, "notify", "--webhook", service.url())
        assert second.stderr is not None
        assert second.stderr.readline() == f"tells {service.url('')}/… what waits for a person\n"
        done = call(shop, f"notify --webhook {service.url()} --once")
        assert done.code == 4
        assert "tells already what waits" in done.err
        first.kill()
        end(first)
        assert call(shop, "run clerk.py 'Ask them' --session asking-too").code == 5
        poll(lambda: len(service.received) >= 4, "the second to tell")
        second.send_signal(signal.SIGTERM)
        assert end(second).code == 0
        assert names(service) == [*WAITS, ("asking-too", "refund")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "say where to tell: --webhook URL or --command PROGRAM"),
        ("--webhook ftp://h/hunter22", "an address that begins with https:// or http://"),
        ("--webhook https://h:p/hunter22", "an address that begins with https:// or http://"),
        ("--webhook 'https://h/a b-hunter22'", "an address that begins with https:// or http://"),
        ('--command "a \'b"', "cannot be taken apart"),
        ("--command ''", "names no program"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: str, says: str, shop: Path, call_here: Call) -> None:
    """Without a secret in the message."""
    done = call_here(shop, f"notify {options} --once")
    assert done.code == 2
    assert says in done.err
    assert "hunter22" not in done.err


def test_a_missing_store_is_not_made(tmp_path: Path, call_here: Call) -> None:
    """A misspelt one would wait for ever."""
    assert call_here(tmp_path, "notify --command true --once").code == 3
    assert list(tmp_path.iterdir()) == []
