"""`holdfast mcp check`: what the proxy would treat each tool of a server as, and why."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.cli.exit_codes import Exit

from .cli_processes import call

SERVER = """
import json, sys

era = sys.argv[1]
tools = json.loads(open(sys.argv[2]).read())
print("a line that is no message", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    error = result = None
    if method == "initialize" and era == "legacy":
        print(json.dumps({"jsonrpc": "2.0", "id": "r", "method": "roots/list"}), flush=True)
        assert "error" in json.loads(sys.stdin.readline())
        about = {"name": "s", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": about}
    elif method == "tools/list" and era == "refusing":
        error = {"code": -32603, "message": "out of order"}
    elif method == "tools/list" and modern == (era == "modern"):
        at = int(params.get("cursor", 0))
        result = {"tools": tools[at : at + 2]}
        if at + 2 < len(tools):
            result["nextCursor"] = str(at + 2)
    elif era == "ending":
        sys.exit(3)
    else:
        error = {"code": -32601, "message": "Method not found"}
    answer = {"error": error} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS: list[Any] = [
    {"name": "look", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "set", "inputSchema": SCHEMA, "annotations": {"idempotentHint": True}},
    {"name": "delete", "inputSchema": SCHEMA, "annotations": {"destructiveHint": True}},
    {"name": "silent", "inputSchema": SCHEMA},
    {"name": "verified", "inputSchema": SCHEMA},
]
RULES = """
trust = true
[tools.silent]
side_effects = "read"
[tools.verified.verify]
tool = "look"
arguments = { path = "{args.path}" }
landed_if = { text_contains = "there" }
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """What starts the server, without its era."""
    server, tools = tmp_path / "server.py", tmp_path / "tools.json"
    server.write_text(SERVER)
    tools.write_text(json.dumps(TOOLS))
    return [sys.executable, "-S", "-E", str(server), "ERA", str(tools)]


def check(command: list[str], era: str, *options: str) -> int:
    """The exit code."""
    return main(["mcp", "check", *options, "--", *(era if word == "ERA" else word for word in command)])


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_each_tool_is_named_with_what_it_counts_as_and_why(
    era: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the one rule for hints; a server of each era, whose list has several pages."""
    assert check(command, era, "--json") == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["tools"]}
    assert {name: (one["side_effects"], one["after_a_crash"]) for name, one in found.items()} == {
        "look": ("read", "runs again"),
        "set": ("mutate", "in doubt"),
        "delete": ("mutate", "in doubt"),
        "silent": ("mutate", "in doubt"),
        "verified": ("mutate", "in doubt"),
    }
    assert "readOnlyHint" in found["look"]["why"]
    assert "trust = true" in found["set"]["why"]
    assert "does not say" in found["silent"]["why"]


def test_the_configuration_counts(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would in the proxy, and a table says so."""
    monkeypatch.setenv("COLUMNS", "200")
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    assert check(command, "legacy", "--config", str(rules)) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    shown = {row[0]: " ".join(row[1:]) for row in rows}
    assert shown["look"].startswith("read runs again")
    assert shown["set"].startswith("write runs again")
    assert shown["silent"].startswith("read runs again the configuration says so")
    assert shown["verified"].startswith("mutate verify is asked")


def test_a_name_in_the_configuration_that_no_tool_has_is_an_error(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a suggestion; the tools are shown all the same."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[tools.deleet]\nside_effects = "mutate"\n')
    assert check(command, "legacy", "--config", str(rules), "--json") == Exit.ERROR
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["tools"]) == len(TOOLS)
    assert "did you mean 'delete'?" in captured.err


def test_an_argument_or_a_verify_tool_that_is_not_there_is_an_error(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name under `redact` would put the secret on record."""
    rules = tmp_path / "rules.toml"
    landed = 'landed_if = { text_contains = "x" }'
    rules.write_text(
        '[tools."*"]\nredact = ["token"]\n[tools.set]\nredact = ["path", "pth"]\n'
        f'[tools.delete.verify]\ntool = "lok"\n{landed}\n[tools.verified.verify]\ntool = "look"\n{landed}\n'
    )
    assert check(command, "legacy", "--config", str(rules), "--json") == Exit.ERROR
    assert json.loads(capsys.readouterr().out)["unmatched"] == [
        "[tools.\"set\"] redact: no tool has an argument 'pth'; did you mean 'path'?",
        "[tools.\"delete\"] verify: the server has no tool 'lok'; did you mean 'look'?",
    ]


@pytest.mark.parametrize("more", [{"additionalProperties": True}, {"allOf": [{}]}, {"properties": {}}])
def test_arguments_of_which_the_schema_does_not_list_all_may_have_any_name(
    more: dict[str, Any], command: list[str], tmp_path: Path
) -> None:
    """Nothing is wrong with their redaction, as far as can be known."""
    tools = [{"name": "set", "inputSchema": {**SCHEMA, **more}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    rules = tmp_path / "rules.toml"
    rules.write_text('[tools.set]\nredact = ["token"]\n')
    assert check(command, "legacy", "--config", str(rules)) == 0


@pytest.mark.parametrize(
    ("era", "why"), [("ending", "ended with exit code 3"), ("refusing", "out of order (-32603)")]
)
def test_a_server_that_lists_nothing_is_named(
    era: str, why: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the reason."""
    assert check(command, era) == Exit.ERROR
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_command_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """And one that was not given."""
    assert main(["mcp", "check", "--", "no-such-server"]) == Exit.NOT_FOUND
    assert "'no-such-server'" in capsys.readouterr().err
    assert main(["mcp", "check"]) == Exit.USAGE
    assert "which server?" in capsys.readouterr().err


FUNCTIONS = """
from holdfast import Unsure
from neighbour import SAID

def looked(path=None):
    return Unsure(SAID)

def wrong(name):
    return Unsure(SAID)
"""


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    """A folder of functions that are verify hooks, which is not the working directory."""
    folder = tmp_path / "rules of mine"
    folder.mkdir()
    (folder / "checks_of_mine.py").write_text(FUNCTIONS)
    (folder / "neighbour.py").write_text("SAID = 'who knows'\n")
    return folder


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("checks_of_mine.py:looked", None),
        ("checks_of_mine:looked", None),
        ("checks_of_mine.py:loked", "there is no 'loked' in it; did you mean looked?"),
        ("cheks_of_mine.py:looked", "there is no file"),
        ("cheks_of_mine:looked", "there is no module 'cheks_of_mine'"),
        ("checks_of_mine.py:wrong", "verify must have the tool's own parameters (path)"),
    ],
)
def test_a_function_of_the_configuration_is_loaded_from_its_folder(
    target: str, why: str | None, command: list[str], functions: Path
) -> None:
    """Whatever the working directory is. What is wrong with it is said before a call needs it."""
    (functions / "rules.toml").write_text(f'[tools.delete]\nverify = "{target}"\n')
    words = [one if one != "ERA" else "legacy" for one in command]
    options = ["--config", str(functions / "rules.toml"), "--json"]
    done = call(Path("/"), shlex.join(["mcp", "check", *options, "--", *words]))
    if why is None:
        assert done.code == 0, done.err
        (delete,) = [one for one in done.json["tools"] if one["name"] == "delete"]
        assert delete["after_a_crash"] == "verify is asked"
    else:
        assert done.code != 0
        assert why in " ".join(done.err.split())
