"""`holdfast replay` and a session as a test, on the command line; and what looks like a secret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from holdfast.errors import BadInput
from holdfast.redact import LEFT_OUT, find_secret, leave_out_secrets
from holdfast.replay import Recording, read_recording, replay_recording
from holdfast.replay.pytest_form import write_test
from tests.replay.clerks import call, make_clerk, recorded

AGENT = '''
import holdfast
from holdfast.agents import ScriptedModel
from holdfast.messages import ToolCall


@holdfast.tool(side_effects="mutate")
async def pay(order: str, cents: int) -> str:
    """Pay."""
    with open("done.txt", "a") as file:
        file.write("paid")
    return f"paid {cents} for {order}"


paying = ToolCall(id="toolu_01AbCdEfGhIjKlMnOpQrStUv", name="pay", args={"order": "42", "cents": 5})
script = [paying, "It's paid."]
desk = holdfast.Agent(ScriptedModel(script), name="desk", tools=[pay])


def make() -> holdfast.Agent:
    """The same one."""
    return desk
'''


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """A command in this process: its code, and what it prints."""
    code = main(line.split())
    return code, capsys.readouterr().out


def test_the_command_line_replays_and_writes_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test is green, does nothing, and fails once the agent is another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    agent = tmp_path / "desk_agent.py"
    agent.write_text(AGENT)
    assert run("run desk_agent.py Pay --session order-42 --quiet", capsys)[0] == 0
    assert run("run desk_agent.py Pay --session order-43 --quiet", capsys)[0] == 0
    (tmp_path / "done.txt").unlink()

    assert run("replay order-42 desk_agent.py", capsys) == (
        0,
        "session order-42: no difference, 2 of 2 replies, 1 turn\n",
    )
    code, printed = run("replay --all desk_agent.py --since 7d --json", capsys)
    found = json.loads(printed)
    assert (code, found["differ"], found["left_out"]) == (0, 0, {})
    assert {one["session"] for one in found["replays"]} == {"order-43", "order-42"}
    for name, target in {"found": "desk_agent.py", "made": "desk_agent.py:make"}.items():
        line = f"export order-42 --form pytest --agent {target} --output test_{name}.py"
        assert run(line, capsys)[0] == 0
    assert _pytest(tmp_path) == (0, 2, 0)

    agent.write_text(AGENT.replace("cents: int) -> str", "cents: int, why: str) -> str"))
    assert _pytest(tmp_path) == (1, 0, 2)
    code, printed = run("replay order-42 desk_agent.py", capsys)
    assert code == 8
    assert "turn 1, reply 1: refused by gate 'arguments' pay(order=\"42\", cents=5)" in printed
    assert run("replay --all desk_agent.py", capsys)[0] == 8
    assert not (tmp_path / "done.txt").exists()


def _pytest(folder: Path) -> tuple[int, int, int]:
    """The exit code of pytest in a process of its own, how many tests passed, and how many failed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", "--rootdir", ".", "."],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ("session order-42: 1 difference, 2 of 2 replies" in done.stdout) == bool(done.returncode)
    passed, failed = (re.search(rf"(\d+) {word}", done.stdout) for word in ("passed", "failed"))
    return done.returncode, int(passed[1]) if passed else 0, int(failed[1]) if failed else 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("replay order-42", "name the agent, too"),
        ("replay --all agent.py more.py", "name only the agent"),
        ("replay order-42 agent.py --since 7d", "--since is for --all"),
        ("replay --all agent.py --since soon", "write 7d, 12h or 30min"),
        ("export order-42 --form pytest", "needs the agent"),
        ("export order-42 --agent agent.py", "needs the agent"),
    ],
)
def test_what_makes_no_sense_is_refused(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read."""
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err


# -- secrets -----------------------------------------------------------------------------------------------

KEY = "sk-" + "proj-" + "0123456789abcdefABCDEF"


async def _record(script: list[Any], message: str) -> Recording:
    async with recorded(make_clerk(script), [message]) as store:
        return await read_recording(store, "done")


@pytest.mark.anyio
async def test_what_looks_like_a_secret_is_refused_or_left_out() -> None:
    """In a message, in a field with such a name, in a result; the rest is replayed as it is."""
    script = [call("look_up", order=KEY), call("look_up", order="42", password="hunter22"), "Done."]
    recording = await _record(script, f"My key is {KEY}.")
    with pytest.raises(BadInput, match=r"looks like a secret[\s\S]*opening\[0\][\s\S]*a key of an API"):
        write_test(recording, module="desk", attribute="desk")
    text = write_test(recording, module="desk", attribute="desk", without_secrets=True)
    assert KEY not in text
    assert "hunter22" not in text
    assert text.count(LEFT_OUT) > 4
    names: dict[str, Any] = {}
    source = text.replace("from desk import desk", "desk = None")
    exec(compile(source, "test_done.py", "exec"), names)
    replay = await replay_recording(names["RECORDING"], make_clerk(script))
    assert replay.differences == ()


@holdfast.tool(side_effects="read")
async def sign_in(user: str) -> dict[str, Any]:
    """Get what an account signs in with."""
    return {"user": user, "accessToken": "correct-horse", "pins": {"password": 12345678}}


@pytest.mark.anyio
async def test_a_structured_result_holds_no_secret_as_data_and_none_as_text() -> None:
    """It is in the recording as both; what is left is replayed as it is."""
    script = [call("sign_in", user="ann"), "Done."]
    clerk = make_clerk(script, tools=[sign_in])
    async with recorded(clerk, ["Sign in"]) as store:
        recording = await read_recording(store, "done")
    (reply, *_) = recording.replies
    assert reply.calls[0].result is not None
    assert "correct-horse" in reply.calls[0].result.text
    text = write_test(recording, module="desk", attribute="desk", without_secrets=True)
    for secret in ("correct-horse", "12345678"):
        assert secret not in text
    names: dict[str, Any] = {}
    exec(compile(text.replace("from desk import desk", "desk = None"), "test_done.py", "exec"), names)
    left = holdfast_recording(names["RECORDING"]).replies[0].calls[0].result
    assert left is not None
    assert json.loads(left.text) == left.value
    assert left.value == {"user": "ann", "accessToken": LEFT_OUT, "pins": {"password": 0}}
    assert (await replay_recording(names["RECORDING"], clerk)).differences == ()


@pytest.mark.anyio
async def test_a_test_is_python_whatever_was_said() -> None:
    """Quotes, backslashes and invisible characters neither end the text nor hide in it."""
    nasty = "'''\\'\"\"\" \u202e \x1b[31m \U000e0041 é {recording} {module}"
    recording = await _record(["Said: " + nasty], nasty)
    text = write_test(recording, module="desk", attribute="desk")
    assert text.isascii()
    assert "\x1b" not in text
    names: dict[str, Any] = {}
    exec(compile(text.replace("from desk import desk", "desk = None"), "test_done.py", "exec"), names)
    made = holdfast_recording(names["RECORDING"])
    assert made.turns[0].opening[0].data["blocks"][0]["text"] == nasty


def holdfast_recording(text: str) -> Recording:
    """The recording in a test."""
    from holdfast.replay.recording import load_recording

    return load_recording(text)


SECRETS = [
    KEY,
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "a1B2c3D4e5F6g7H8i9J0",
    "Authorization: Bearer abc.def-ghi",
    "postgresql://ann:pa55@db/x",
    "password=hunter2",
    "eyJhbGciOi.eyJzdWIiOi.c2ln",
    "Zm9vYmFyQmF6MTIzNDU2Nzg5MA==",
    "Bearer abcdef012345",
    "Basic YW5uOmh1bnRlcjIy",
    "-----BEGIN RSA " + "PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----",
]
NAMED = [
    'the row {"password":"%s"} of the table',
    "password='%s'",
    'api_key="%s"',
    "API_KEY: %s",
    "{'accessToken': '%s'}",
    "clientSecret=%s",
    "refresh_token=%s&state=1",
    "Pwd=%s;Server=db",
    "dbPass: %s",
    'say "{\\"secret\\": \\"%s\\"}" twice',
    '{"password":"%s"}',
    '{"user": {"name": "ann", "accessToken": ["%s"]}}',
    '[{"arguments": "{\\"clientSecret\\": \\"%s\\"}"}]',
    '{"password": "%s", "password": "no"}',
    "Authorization: Token %s",
]
"""Text in which what has such a name is a secret, whatever it looks like."""
HARMLESS = [
    "Order 42 is paid, see https://example.com/orders/42?page=2",
    "session 0f8fad5b-d9cb-469f-a165-70867728950e",
    "the password was wrong",
    "d41d8cd98f00b204e9800998ecf8427e",
    "a-long-name-of-a-file-without-capitals-2026.txt",
    "The basic information about bearer instruments is in read/write mode",
    "Basic JavaScript, basic well-known examples",
    "12 tokens: 5000 were left; the compass: northwest; secretary: Ann Smith",
    '{"max_tokens": 4096, "token": "", "tokens": {"input": 3000}, "password": null}',
]


def test_what_looks_like_a_secret() -> None:
    """Keys and tokens; not addresses, ids, digests and words."""
    for text in SECRETS:
        assert find_secret(f"It is {text} here"), text
        assert text not in leave_out_secrets(f"It is {text} here")
    for form in NAMED:
        text = form % "hunter2x"
        assert find_secret(text), text
        assert "hunter2x" not in leave_out_secrets(text), text
        assert find_secret(leave_out_secrets(text)) is None, leave_out_secrets(text)
    for text in HARMLESS:
        assert find_secret(text) is None, text
        assert leave_out_secrets(text) == text
