"""The configuration says what is wrong with it, and where."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.errors import BadInput, BadUrl
from holdfast.mcp_proxy.configuration import (
    MissingArgument,
    ProxyConfiguration,
    fill,
    parse_configuration,
    read_configuration,
)
from holdfast.mcp_proxy.data_directory import absolute_url, default_store
from tests.docs.blocks import ROOT, find_blocks

VERIFY = '[tools.a.verify]\ntool = "b"\n'


def parse(text: str) -> ProxyConfiguration:
    return parse_configuration(tomllib.loads(text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("trsut = true", "unknown key 'trsut'; did you mean 'trust'?"),
        ("trust = 1", "trust is true or false, not 1"),
        ("[tool.add]", "did you mean 'tools'?"),
        ("tools = 3", "tools is a table, not 3"),
        ("[tools]\nadd = 3", '[tools."add"] is a table'),
        ('[tools."a*"]\nsideeffects = "read"', "[tools.\"a*\"] unknown key 'sideeffects'; did you mean"),
        ('[tools.a]\nside_effects = "reed"', "did you mean 'read'?"),
        ('[tools.a]\nscope = "globl"', "did you mean 'global'?"),
        ('[tools.a]\nonce = true\nscope = "call"', "once = true is the same as"),
        ('[tools.a]\nonce = "yes"', "once is true or false, not 'yes'"),
        ('[tools.a]\napproval = true\nscope = "call"', "approval needs scope"),
        ('[tools.a]\nredact = "x"', "redact is a list, not 'x'"),
        ("[tools.a]\nredact = [1]", "redact lists the names of arguments"),
        ("[tools.a]\nredact_results = 1", "redact_results is true or false, not 1"),
        ("[tools.a]\ntimeout_s = 0", "timeout_s must be positive"),
        ("[tools.a]\nverify_after_s = -1", "verify_after_s is a number of seconds, not -1"),
        ('[tools.a]\nverify = "look"', 'write "module:function"'),
        ("[tools.a.verify]\nlanded_if = { text_contains = 'x' }", "lacks tool"),
        ('[tools.a.verify]\ntool = "b"', "lacks landed_if"),
        ('[tools.a.verify]\ntool = "b"\nlanded_if = { text = "x" }', "did you mean 'text_contains'?"),
        ('[tools.a.verify]\ntool = "b"\nlanded_if = { }', "either text_contains or pointer"),
        ('[tools.a.verify]\ntool = "b"\nlanded_if = { pointer = "a", exists = true }', 'write "/a"'),
        ('[tools.a.verify]\ntool = "b"\nlanded_if = { pointer = "/a" }', "add equals or exists"),
        ('[tools.a.verify]\ntool = "b"\nlanded_if = { text_contains = "" }', "every text contains"),
        (
            '[tools.a.verify]\ntool = "b"\nlanded_if = { text_contains = "{ctx.key}" }',
            "{args.NAME} and no other",
        ),
        (f'{VERIFY}arguments = {{ x = ["{{args}}"] }}\nlanded_if = {{ text_contains = "y" }}', "no other"),
        (
            f'[tools.a]\nredact = ["p"]\n{VERIFY}landed_if = {{ text_contains = "{{args.p}}" }}',
            "which redact leaves out",
        ),
        (
            f'[tools.a]\nredact = ["p.*.q"]\n{VERIFY}landed_if = {{ text_contains = "{{args.p}}" }}',
            "which redact leaves out",
        ),
        ('[tools.a]\nside_effects = "read"\nverify = "m:f"', "makes sense only for a tool that acts"),
    ],
)
def test_a_mistake_is_explained(text: str, says: str) -> None:
    """With the right word where there is one."""
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert says in str(caught.value)


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    """As a proxy is started with it."""
    with pytest.raises(BadInput, match="nothing"):
        read_configuration(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(BadInput, match="is no TOML"):
        read_configuration(tmp_path / "bad.toml")


def test_the_rule_of_a_tool_is_that_of_its_name_or_of_the_closest_glob() -> None:
    """Of several globs, the one that says most."""
    found = parse(
        '[tools."*"]\nonce = true\n[tools."git_*"]\nside_effects = "read"\n[tools.git_add]\napproval = true'
    )
    assert found.find_rule("git_add").glob == "git_add"
    assert found.find_rule("git_log").side_effects == "read"
    assert found.find_rule("other").scope == "global"


def test_a_name_that_no_tool_has_is_told() -> None:
    """With the one that may be meant."""
    found = parse('[tools."*"]\n[tools.git_ad]\n[tools."svn_*"]\n[tools.log]\n')
    assert found.list_unmatched(["git_add", "log"]) == [
        """[tools."git_ad"] matches no tool; did you mean 'git_add'?""",
        '[tools."svn_*"] matches no tool; there are git_add, log',
    ]


def test_the_configurations_on_the_page_can_be_read() -> None:
    """As they stand."""
    blocks = list(find_blocks(ROOT / "docs" / "mcp-proxy.md", "toml"))
    assert [parse(block.source).rules != () for block in blocks] == [True] * len(blocks) != []


def test_templates_keep_the_type_of_an_argument() -> None:
    """Where it is all of a text; inside of one, it is text."""
    args = {"n": 5, "t": "x", "l": [1]}
    assert fill({"a": "{args.n}", "b": ["n={args.n} {args.t}{args.l}"], "c": 1}, args) == {
        "a": 5,
        "b": ["n=5 x[1]"],
        "c": 1,
    }
    with pytest.raises(MissingArgument):
        fill("{args.other}", args)
    assert fill("{args.t}", {"t": "{args.n}"}) == "{args.n}"


def test_the_store_is_in_the_data_directory_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is made, for this user alone; a relative one is no data directory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_store() == f"sqlite:{tmp_path}/data/holdfast/mcp.db"
    assert (tmp_path / "data" / "holdfast").stat().st_mode & 0o777 == 0o700
    assert default_store() == f"sqlite:{tmp_path}/data/holdfast/mcp.db"
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_store() == f"sqlite:{tmp_path}/.local/share/holdfast/mcp.db"


def test_urls_are_shown_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands are typed in another directory than the proxy's."""
    monkeypatch.chdir(tmp_path)
    assert absolute_url("sqlite:a.db") == f"sqlite:{tmp_path}/a.db"
    assert absolute_url("dir:a/b") == f"dir:{tmp_path}/a/b"
    assert absolute_url("postgresql://host/db") == "postgresql://host/db"
    with pytest.raises(BadUrl, match="outlive"):
        absolute_url("memory:")
