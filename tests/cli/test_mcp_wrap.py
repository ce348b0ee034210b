"""`holdfast mcp wrap`: servers of a client behind the proxy, and everything else in its file as it was."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.cli.commands.mcp_wrap import wrap
from holdfast.cli.edit_file import back_up, list_backups, read_file, replace_file
from holdfast.cli.exit_codes import Exit, Stop
from holdfast.cli.json_text import BadJson, parse_text
from holdfast.cli.mcp_clients import (
    CLIENTS,
    find_client_file,
    find_holdfast,
    name_for_proxy,
    unwrap_servers,
    wrap_servers,
)
from holdfast.errors import StoreFailed
from holdfast.mcp_proxy.stdio_proxy import check_server_name
from tests.cli.cli_processes import Terminal
from tests.crash.fork_server import Line, Warm

HOLDFAST = ["/opt/hold fast/bin/holdfast"]
GIT = {"command": "uvx", "args": ["mcp-server-git", "--repository", "/src"], "env": {"TOKEN": "s3cret"}}
WEB = '{"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer 1"}}'
FILE = """\
{
  // those of the team
  "mcpServers": {
    "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "a\\u002fb"}},
    "time": {
      "type": "stdio",
      "command": "uvx", // a tool of uv
      "args": [ /* the newest */
        "mcp-server-time",
        "--local-timezone=UTC",
      ],
    },
    "bare": {"command": "C:\\u005cserver"},
    "empty": {"args": [ ], "command": "server"},
    "web": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer 1"}}
  },
  "theme":   "dark",   "big": 1.0e+400
}
"""


def run(*arguments: str) -> int:
    """The exit code of the command, called in this process."""
    return main(["mcp", "wrap", *arguments])


def commands(text: str) -> dict[str, list[str]]:
    """What each server of a file is started with."""
    servers = json.loads(text)["mcpServers"]
    return {name: [one["command"], *one.get("args", [])] for name, one in servers.items() if "command" in one}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a client, for its owner only."""
    path = tmp_path / "mcp.json"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


# -- the text ------------------------------------------------------------------------------------------


def test_only_commands_and_arguments_change() -> None:
    """Comments, spaces, order, numbers and escapes stay; the server's own command is passed on as it is."""
    rewritten = wrap_servers(FILE, HOLDFAST)
    proxy = '"mcp", "proxy", "--name", '
    expected = FILE
    for old, new in (
        (
            '"command": "uvx", "args": ["mcp-',
            f'"command": "{HOLDFAST[0]}", "args": [{proxy}"git", "--", "uvx", "mcp-',
        ),
        ('"uvx", // a tool', f'"{HOLDFAST[0]}", // a tool'),
        ('"mcp-server-time"', f'{proxy}"time", "--", "uvx", "mcp-server-time"'),
        ('"C:\\u005cserver"', f'"{HOLDFAST[0]}", "args": [{proxy}"bare", "--", "C:\\u005cserver"]'),
        ('[ ], "command": "server"', f'[{proxy}"empty", "--", "server"  ], "command": "{HOLDFAST[0]}"'),
        (
            WEB,
            (
                f'{{"command": "{HOLDFAST[0]}", "args": [{proxy}"web", "--url", "https://example.org/mcp", '
                '"--header", "Authorization=HOLDFAST_MCP_AUTHORIZATION"], '
                '"env": {"HOLDFAST_MCP_AUTHORIZATION": "Bearer 1", '
                f'"HOLDFAST_MCP_BEFORE": {json.dumps(WEB)}}}}}'
            ),
        ),
    ):
        assert expected.count(old) == 1, old
        expected = expected.replace(old, new)
    assert rewritten.text == expected
    assert [(one.server, one.action) for one in rewritten.changes] == [
        (name, "wrapped") for name in ("git", "time", "bare", "empty", "web")
    ]
    assert unwrap_servers(rewritten.text).text == FILE


SPACES = st.sampled_from(["", " ", "\n", "\r\n  ", "\t", '/* "command": [ */', '// "args": {\n', " /**/ "])
TEXTS = st.sampled_from(
    ["uvx", "--", "mcp", "proxy", "--name", "", "a b", 'q"\\', "é\U0001f600", "holdfast", "-m"]
)
OTHERS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def written(draw: st.DrawFn, value: object) -> str:
    """A value as somebody might write it."""

    def space() -> str:
        return draw(SPACES)

    def join(parts: list[str], opening: str, closing: str) -> str:
        comma = draw(st.sampled_from(["", ","])) if parts else ""
        return opening + ",".join(f"{space()}{one}{space()}" for one in parts) + comma + space() + closing

    if isinstance(value, dict):
        return join(
            [f"{json.dumps(key)}{space()}:{space()}{draw(written(one))}" for key, one in value.items()],
            "{",
            "}",
        )
    if isinstance(value, list):
        return join([draw(written(one)) for one in value], "[", "]")
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def servers(draw: st.DrawFn) -> dict[str, Any]:
    """A server with a command, with keys in any order."""
    members: dict[str, Any] = {"command": draw(TEXTS.filter(bool))}
    if draw(st.booleans()):
        members["args"] = draw(st.lists(TEXTS, max_size=4))
    if draw(st.booleans()):
        members["env"] = draw(OTHERS)
    return {key: members[key] for key in draw(st.permutations(list(members)))}


@st.composite
def client_files(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """What a file of a client holds, and its text."""
    names = st.sampled_from(["git", "time", "a b", 'q"\\', "é"])
    held = {
        draw(st.sampled_from(["mcpServers", "servers"])): draw(st.dictionaries(names, servers(), max_size=3)),
        "other": draw(OTHERS),
    }
    return held, draw(SPACES) + draw(written(held)) + draw(SPACES)


@given(client_files())
def test_what_is_wrapped_is_taken_back_to_the_byte(drawn: tuple[dict[str, Any], str]) -> None:
    """Whatever the text looks like. Wrapping twice is wrapping once, and the servers' own words stay."""
    held, text = drawn
    rewritten = wrap_servers(text, HOLDFAST)
    (section,) = (one for key, one in held.items() if key != "other")
    done = {one.server: one for one in rewritten.changes}
    assert list(done) == list(section)
    wrapped = {name for name, one in done.items() if one.action == "wrapped"}
    for name in wrapped:
        own = [section[name]["command"], *section[name].get("args", [])]
        assert list(done[name].after) == [
            *HOLDFAST,
            "mcp",
            "proxy",
            "--name",
            name_for_proxy(name),
            "--",
            *own,
        ]
    again = wrap_servers(rewritten.text, ["/elsewhere/holdfast"])
    assert again.text == rewritten.text
    assert {one.action for one in again.changes} <= {"left"}
    # Those that were behind a proxy before stay there.
    assert unwrap_servers(rewritten.text, only=wrapped or {"none"}).text == text


def test_what_changed_elsewhere_in_between_stays() -> None:
    """A client writes its file, too: another layout, another server, another argument."""
    wrapped = json.loads(wrap_servers(json.dumps({"mcpServers": {"git": GIT}}), HOLDFAST).text)
    wrapped["mcpServers"]["git"]["args"].append("-v")
    wrapped["mcpServers"]["time"] = {"command": "uvx", "args": ["mcp-server-time"]}
    taken_back = json.loads(unwrap_servers(json.dumps(wrapped, indent=3)).text)
    assert taken_back["mcpServers"] == {
        "git": {**GIT, "args": [*GIT["args"], "-v"]},
        "time": wrapped["mcpServers"]["time"],
    }


def test_an_empty_list_that_was_laid_out_anew_is_taken_back() -> None:
    """Also with a comma at its end."""
    wrapped = wrap_servers('{"mcpServers": {"a": {"command": "x", "args": []}}}', HOLDFAST).text
    laid_out = wrapped.replace('"x" ]', '"x",\n ]')
    assert json.loads(unwrap_servers(laid_out).text)["mcpServers"] == {"a": {"command": "x", "args": []}}


def test_a_proxy_that_was_written_by_hand_counts() -> None:
    """It is not put behind a second one, and can be taken back."""
    own = {
        "command": "uvx",
        "args": ["--from", "holdfast[mcp]", "holdfast", "mcp", "proxy", "--store", "x", "--", "srv", "-v"],
    }
    text = json.dumps({"mcpServers": {"mine": own}})
    assert wrap_servers(text, HOLDFAST).text == text
    assert commands(unwrap_servers(text).text) == {"mine": ["srv", "-v"]}


@pytest.mark.parametrize(
    "name", ["git", "my server", "example.org/git", "-v", "", "é\x00", "x" * 99, "a" * 40]
)
def test_the_name_of_a_server_is_one_that_the_proxy_takes(name: str) -> None:
    """Its own, if that can be; else one that differs from those of other servers."""
    found = name_for_proxy(name)
    assert check_server_name(found) == found
    assert (found == name) == (name in ("git", "a" * 40))
    assert found != name_for_proxy(f"{name}!")


def test_the_servers_of_projects_are_found() -> None:
    """Claude Code has them in the same file."""
    held = {"projects": {"/src": {"mcpServers": {"git": GIT}, "history": []}}, "mcpServers": {"time": GIT}}
    rewritten = wrap_servers(json.dumps(held), HOLDFAST)
    assert [(one.server, one.action) for one in rewritten.changes] == [
        ("time", "wrapped"),
        ("git", "wrapped"),
    ]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ('{"url": "x"}', "does not begin with https://"),
        ('{"url": "http://x", "type": "sse"}', "before streamable HTTP"),
        ('{"url": "http://x", "headers": {"a": 1}}', "no texts"),
        ('{"url": "http://x", "headers": {"a b": ""}}', "names of headers"),
        ('{"url": "http://x", "serverUrl": "http://x"}', "more than one address"),
        ('{"url": "http://x", "env": []}', "no object of texts"),
        ('{"name": "x"}', "neither a command nor an address"),
        ('{"command": 7}', "its command is no text"),
        ('{"command": "x", "args": "y"}', "no list of texts"),
        ('{"command": "x", "args": ["y", 1]}', "no list of texts"),
        (
            '{"command": "holdfast", "args": ["mcp", "proxy", "--url", "http://x"]}',
            "behind the proxy already",
        ),
        ("[]", "no object"),
    ],
)
def test_a_server_that_cannot_be_wrapped_is_left_and_the_reason_named(server: str, why: str) -> None:
    """The others are wrapped all the same."""
    text = f'{{"mcpServers": {{"odd": {server}, "git": {json.dumps(GIT)}}}}}'
    rewritten = wrap_servers(text, HOLDFAST)
    odd, git = rewritten.changes
    assert (odd.action, git.action) == ("left", "wrapped")
    assert why in odd.why
    assert server in rewritten.text


@pytest.mark.parametrize(
    "server",
    [
        WEB,
        '{ "type" : "http",\n      "url":"https://x/mcp?key=s3cret", /* why */ "timeout": 1e3,\n  }',
        '{\n\t\t"httpUrl": "http://x", "headers": {"A-b": "1", "a.B": "\\u0032"},\n\t\t"env": {"X": "y"}}',
        '{"serverUrl": "https://\\u00e9.example/mcp", "disabled": true}',
    ],
)
def test_a_server_with_an_address_is_wrapped_and_taken_back_to_the_byte(server: str) -> None:
    """Whatever is in it, also if something else in the file has changed meanwhile."""
    text = f'{{\n  "mcpServers": {{\n    "web": {server}, "git": {json.dumps(GIT)}}}\n}}'
    rewritten = wrap_servers(text, HOLDFAST, only=["web"])
    (change,) = rewritten.changes
    assert change.action == "wrapped"
    assert "s3cret" not in " ".join([*change.before, *change.after])
    entry = json.loads(rewritten.text)["mcpServers"]["web"]
    assert entry["args"][:5] == ["mcp", "proxy", "--name", "web", "--url"]
    assert not {"url", "httpUrl", "serverUrl", "headers"} & set(entry)
    assert entry.get("type") in (None, "stdio")
    headers = [one.partition("=")[2] for one in entry["args"] if one.startswith(("A", "a"))]
    assert set(headers) <= set(entry["env"])
    assert len(set(headers)) == len(headers)
    again = wrap_servers(rewritten.text, HOLDFAST, only=["web"])
    assert [one.action for one in again.changes] == ["left"]
    grown = rewritten.text.replace('"git"', '"git2"').replace('{\n  "mcp', '{"new": [1],\n  "mcp', 1)
    assert unwrap_servers(grown, only=["web"]).text == text.replace('"git"', '"git2"').replace(
        '{\n  "mcp', '{"new": [1],\n  "mcp', 1
    )


def test_a_server_that_was_changed_since_it_was_wrapped_is_not_taken_back() -> None:
    """What was changed would be lost."""
    text = f'{{"mcpServers": {{"web": {WEB}}}}}'
    changed = wrap_servers(text, HOLDFAST).text.replace("Bearer 1", "Bearer 2", 1)
    rewritten = unwrap_servers(changed)
    assert rewritten.text == changed
    assert "changed since" in rewritten.changes[0].why


def test_a_client_that_takes_a_url_for_the_older_transport_keeps_it() -> None:
    """Its name for the other one is wrapped."""
    text = json.dumps({"mcpServers": {"old": {"url": "http://x"}, "new": {"httpUrl": "http://x"}}})
    rewritten = wrap_servers(text, HOLDFAST, url_is_sse=True)
    assert [(one.server, one.action) for one in rewritten.changes] == [("old", "left"), ("new", "wrapped")]
    rewritten = wrap_servers(text, HOLDFAST, why_no_addresses="something is missing")
    assert [(one.action, one.why) for one in rewritten.changes] == [("left", "something is missing")] * 2
    assert rewritten.text == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1, column 1: there is no value"),
        ('{"mcpServers": {}} {}', "line 1, column 20: there is more"),
        ('{"mcpServers": {\n "a" {}}}', "line 2, column 6: a colon"),
        ('{"mcpServers": {"a": {"command": "x" "args": []}}}', "a comma or }"),
        ('{"mcpServers": {"a": {"command": "x\n"}}}', "does not end on its line"),
        ('{"mcpServers": {"a": {"command": "\\x"}}}', "no JSON"),
        ("{'mcpServers': {}}", "a key in quotes"),
        ('{"mcpServers": 01}', "no number"),
        ("/* ", "there is no value"),
        ('{"a": ' * 200 + "1" + "}" * 200, "inside of each other"),
        ('{"mcpServers": {}, "mcpServers": {}}', "'mcpServers' is there twice"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' is there twice"),
        ('{"mcpServers": {"a": {"command": "x", "command": "y"}}}', "'command' is there twice"),
    ],
)
def test_a_file_that_is_not_clear_is_refused_in_words(
    text: str, why: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not touched."""
    file.write_text(text)
    assert run(str(file), "--yes") == Exit.ERROR
    printed = capsys.readouterr().err
    assert why in printed
    assert "nothing was done" in printed
    assert file.read_text() == text
    assert list_backups(file) == []


def test_a_comment_among_our_arguments_is_not_lost(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Taking back would remove it with them."""
    assert run(str(file), "--yes") == 0
    changed = file.read_text().replace('"time", "--", "uvx"', '"time", "--", /* mine */ "uvx"')
    file.write_text(changed)
    assert run(str(file), "--undo", "--yes", "--only", "time") == 0
    assert "a comment among the arguments" in " ".join(capsys.readouterr().out.split())
    assert file.read_text() == changed


@given(st.text() | client_files().map(lambda one: one[1][: len(one[1]) // 2]))
def test_any_text_is_read_or_refused(text: str) -> None:
    """What is read is JSON once comments are left out."""
    try:
        parse_text(text)
    except BadJson:
        return
    assert text.strip()


# -- the file ------------------------------------------------------------------------------------------


def test_a_file_is_wrapped_and_taken_back(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a copy of what it was, and nothing left behind in the end."""
    assert run(str(file), "--yes") == 0
    captured = capsys.readouterr()
    shown = " ".join(captured.out.split())
    holdfast = shlex.join(find_holdfast())
    assert f"git - uvx mcp-server-git + {holdfast} mcp proxy --name git -- uvx mcp-server-git" in shown
    assert f"web - https://example.org/mcp + {holdfast} mcp proxy --name web --url" in shown
    assert "Bearer 1" not in shown
    assert file.read_text() == wrap_servers(FILE, find_holdfast()).text
    (backup,) = list_backups(file)
    assert backup.name == "mcp.json.before-holdfast"
    assert backup.name in captured.err.replace("\n", "")
    assert backup.read_text() == FILE
    assert {one.stat().st_mode & 0o7777 for one in (file, backup)} == {0o600}

    assert run(str(file), "--undo", "--yes") == 0
    assert file.read_text() == FILE
    assert file.stat().st_mode & 0o7777 == 0o600
    assert os.listdir(file.parent) == [file.name]


def test_the_second_time_nothing_is_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor asked."""
    assert run(str(file), "--yes") == 0
    before = file.stat()
    assert run(str(file)) == 0
    assert "nothing was changed" in capsys.readouterr().err
    assert file.stat() == before
    assert len(list_backups(file)) == 1


def test_only_the_named_servers_change(file: Path) -> None:
    """Those that come later are wrapped later, and each state of the file is kept."""
    assert run(str(file), "--yes", "--only", "git", "--only", "bare") == 0
    first = file.read_text()
    assert first.count('"proxy"') == 2
    assert run(str(file), "--yes") == 0
    assert file.read_text() == wrap_servers(FILE, find_holdfast()).text
    assert [one.read_text() for one in list_backups(file)] == [FILE, first]
    assert run(str(file), "--undo", "--yes", "--only", "time", "--only", "empty", "--only", "web") == 0
    assert file.read_text() == first


def test_an_unknown_server_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a suggestion."""
    assert run(str(file), "--only", "gti") == Exit.NOT_FOUND
    assert "did you mean 'git'?" in capsys.readouterr().err
    assert file.read_text() == FILE


def test_it_asks_first(file: Path, tmp_path: Path) -> None:
    """After it has shown the difference; without a terminal it says so, and does nothing."""
    assert run(str(file)) == Exit.USAGE
    assert file.read_text() == FILE
    with Terminal(tmp_path, ["mcp", "wrap", str(file)], columns=200) as terminal:
        terminal.read_until("[y/N]")
        assert "mcp proxy --name git -- uvx mcp-server-git" in terminal.plain
        assert file.read_text() == FILE
        terminal.type("n\n")
        assert terminal.finish() == Exit.ERROR
    assert file.read_text() == FILE
    assert os.listdir(file.parent) == [file.name]


def test_json_says_what_was_done(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing else is on stdout."""
    assert run(str(file), "--yes", "--json", "--only", "git") == 0
    own = ["uvx", "mcp-server-git"]
    proxy = [*find_holdfast(), "mcp", "proxy", "--name", "git", "--"]
    assert json.loads(capsys.readouterr().out) == {
        "file": str(file),
        "backup": f"{file}.before-holdfast",
        "servers": [{"name": "git", "action": "wrapped", "why": "", "before": own, "after": proxy + own}],
    }


def test_two_servers_of_one_name_get_two_ledgers(file: Path) -> None:
    """In the file of Claude Code, each project lists servers of its own. The same server in two of them keeps
    its name; what was wrapped before keeps its own, too, and all is taken back."""

    def project(*args: str, **more: Any) -> dict[str, Any]:
        return {"mcpServers": {"files": {"command": "files", "args": [*args], **more}}}

    def names() -> list[str]:
        found = [
            one["mcpServers"]["files"]["args"] for one in json.loads(file.read_text())["projects"].values()
        ]
        return [args[args.index("--name") + 1] for args in found if "--name" in args]

    text = json.dumps({"projects": {"/a": project("/a"), "/b": project("/a")}})
    file.write_text(text)
    assert run(str(file), "--yes") == 0
    assert names() == ["files", "files"]
    assert run(str(file), "--undo", "--yes") == 0
    others = [project("/a"), project("/b"), project("/b"), project("/b", env={"A": "1"})]
    url = {"mcpServers": {"files": {"type": "http", "url": "https://example.org/mcp"}}}
    text = json.dumps({"projects": dict(zip("abcde", [*others, url], strict=True))})
    file.write_text(text)
    assert run(str(file), "--yes") == 0
    found = names()
    assert [re.sub("[0-9a-f]{6}$", "DIGEST", one) for one in found] == ["files_DIGEST"] * len(found)
    assert found[1] == found[2]
    assert len(set(found)) == 4
    assert run(str(file), "--undo", "--yes") == 0
    assert file.read_text() == text


def test_a_server_that_is_wrapped_later_does_not_share_the_ledger_of_another(file: Path) -> None:
    """That one keeps its name: its calls are on record under it."""
    proxied = {"command": "holdfast", "args": ["mcp", "proxy", "--name", "files", "--", "files", "/a"]}
    own = {"command": "files", "args": ["/b"]}
    file.write_text(json.dumps({"mcpServers": {"files": proxied}, "servers": {"files": own}}))
    assert run(str(file), "--yes") == 0
    written = json.loads(file.read_text())
    assert written["mcpServers"]["files"] == proxied
    assert re.fullmatch("files_[0-9a-f]{6}", written["servers"]["files"]["args"][3])


def test_with_json_the_difference_is_shown_before_it_is_asked_about(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr."""
    assert run(str(file), "--json") == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "mcp proxy --name git -- uvx mcp-server-git" in " ".join(captured.err.split())
    with Terminal(tmp_path, ["mcp", "wrap", str(file), "--json"], columns=200) as terminal:
        terminal.read_until("[y/N]")
        assert "mcp proxy --name git -- uvx mcp-server-git" in terminal.plain
        terminal.type("y\n")
        assert terminal.finish() == 0
    assert file.read_text() == wrap_servers(FILE, find_holdfast()).text


def test_the_command_that_takes_it_back_can_be_copied(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if there are spaces and quotes in the path."""
    odd = tmp_path / "Application Support" / "it's.json"
    odd.parent.mkdir()
    file.rename(odd)
    assert run(str(odd), "--yes") == 0
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "to take it back" in one]
    words = shlex.split(line.partition("take it back: ")[2])
    assert words == ["holdfast", "mcp", "wrap", str(odd), "--undo"]
    assert main([*words[1:], "--yes"]) == 0
    assert odd.read_text() == FILE


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    """The file behind it changes: dotfiles often are kept elsewhere."""
    link = tmp_path / "link.json"
    link.symlink_to(file.name)
    assert run(str(link), "--yes") == 0
    assert link.is_symlink()
    assert file.read_text() == wrap_servers(FILE, find_holdfast()).text


def test_a_file_with_another_name_is_refused(file: Path, tmp_path: Path) -> None:
    """A hard link: one of the two names would keep the old text."""
    os.link(file, tmp_path / "other.json")
    assert run(str(file), "--yes") == Exit.ERROR
    assert file.read_text() == FILE


@pytest.mark.parametrize("text", ["\ufeff" + FILE, FILE.replace("\n", "\r\n")])
def test_marks_and_line_ends_of_windows_stay(text: str, file: Path) -> None:
    """To the byte."""
    file.write_bytes(text.encode())
    assert run(str(file), "--yes") == 0
    assert file.read_bytes() == wrap_servers(text, find_holdfast()).text.encode()
    assert run(str(file), "--yes", "--undo") == 0
    assert file.read_bytes() == text.encode()


def test_what_is_not_utf_8_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the place."""
    file.write_bytes(b'{"mcpServers": {"\xff": {"command": "x"}}}')
    assert run(str(file), "--yes") == Exit.ERROR
    assert "byte 17" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["written", "replaced"])
def test_a_file_that_was_changed_meanwhile_is_not_overwritten(change: str, file: Path) -> None:
    """By the client, for example, while the question is on the screen."""
    read = read_file(file)
    if change == "written":
        file.write_text("{}")
    else:
        other = file.with_name("new")
        other.write_text(FILE)
        other.rename(file)
    now = file.read_text()
    with pytest.raises(Stop, match="changed by another program meanwhile"):
        replace_file(read, b"[]")
    assert file.read_text() == now
    assert os.listdir(file.parent) == [file.name]


def test_a_full_disk_leaves_the_file_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else."""
    read = read_file(file)

    def full(fd: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for attempt in (lambda: back_up(read), lambda: replace_file(read, b"[]")):
            with pytest.raises(StoreFailed, match="Free some space"):
                attempt()
    assert file.read_text() == FILE
    assert os.listdir(file.parent) == [file.name]


CALLS = ("open", "write", "fchmod", "fsync", "close", "rename")


def wrap_and_die(line: Line, path: str, at: int) -> int:
    """Wrap the file, and die right before the call of the operating system with this number; else how many
    there were."""
    count = 0

    def counted(name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def die_or_call(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return die_or_call

    for name in CALLS:
        setattr(os, name, counted(name))
    wrap(path, yes=True, as_json=True)
    return count


def test_a_process_that_is_killed_leaves_the_old_file_or_the_new_one(file: Path, warm: Warm) -> None:
    """At each call of the operating system. A changed file has a whole copy beside it, and the next attempt
    works."""
    new = wrap_servers(FILE, find_holdfast()).text
    calls = warm.call(wrap_and_die, str(file), 0)
    assert calls >= len(CALLS)
    found: list[str] = []
    for at in range(1, calls + 1):
        for leftover in file.parent.iterdir():
            leftover.unlink()
        file.write_text(FILE)
        with warm.child(wrap_and_die, str(file), at) as child:
            assert child.outcome() is None, "it was not killed"
        found.append(file.read_text())
        assert found[-1] in (FILE, new)
        assert [one.read_text() for one in list_backups(file)] in ([FILE], [] if found[-1] == FILE else None)
        assert run(str(file), "--yes") == 0
        assert file.read_text() == new
        assert [one.read_text() for one in list_backups(file)] == [FILE]
    assert (found[0], found[-1]) == (FILE, new)


# -- clients -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "linux", "macos"),
    [
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", "Claude/claude_desktop_config.json"),
        ("claude-code", ".claude.json", None),
        ("cursor", ".cursor/mcp.json", None),
        ("vscode", ".config/Code/User/mcp.json", "Code/User/mcp.json"),
        ("windsurf", ".codeium/windsurf/mcp_config.json", None),
        ("gemini-cli", ".gemini/settings.json", None),
    ],
)
def test_clients_are_known_by_name(client: str, linux: str, macos: str | None) -> None:
    """As their own documentation names their files."""
    home = {"HOME": "/h"}
    on_macos = f"Library/Application Support/{macos}" if macos else linux
    assert find_client_file(client, platform="linux", environment=home) == Path("/h", linux)
    assert find_client_file(client, platform="darwin", environment=home) == Path("/h", on_macos)
    elsewhere = find_client_file(client, platform="linux", environment={**home, "XDG_CONFIG_HOME": "/c"})
    assert elsewhere == Path(re.sub(r"^/h/\.config/", "/c/", f"/h/{linux}"))


def test_a_client_is_wrapped_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that lists nothing, and one that is misspelt, are named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("cursor", "--yes") == Exit.NOT_FOUND
    assert "there is no " in capsys.readouterr().err
    path = tmp_path / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(FILE)
    assert run("cursor", "--yes") == 0
    assert path.read_text() == wrap_servers(FILE, find_holdfast()).text
    path.write_text('{"other": 1}')
    assert run("cursor", "--yes") == Exit.NOT_FOUND
    assert "lists no servers" in " ".join(capsys.readouterr().err.split())
    assert run("cursro") == Exit.NOT_FOUND
    assert "did you mean cursor?" in capsys.readouterr().err


def test_the_help_names_every_client(capsys: pytest.CaptureFixture[str]) -> None:
    """By the word that is typed."""
    assert run("--help") == 0
    words = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert set(CLIENTS) <= words


def test_the_command_is_found_without_a_path() -> None:
    """Clients start it with a minimal PATH."""
    command, *arguments = find_holdfast()
    assert Path(command).is_absolute()
    assert os.access(command, os.X_OK)
    assert arguments in ([], ["-m", "holdfast"])
