"""Gate 4: what a tool may do here, by its name, its side effects and its arguments, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Budget, Registry, tool
from holdfast.core.entries import ToolRefused
from holdfast.errors import BadInput
from holdfast.records import Usage
from holdfast.tools import Policy, Rule, allow, ask, deny, paths_inside
from tests.tools.example_tools import Url, bodies, kinds, opened


@pytest.fixture
def ran() -> list[Any]:
    """What was really done."""
    return []


@pytest.fixture
def tools(ran: list[Any]) -> list[Any]:
    """One tool of each sort."""

    @tool(side_effects={"read"})
    async def read_file(path: str) -> None:
        ran.append(path)

    @tool(side_effects={"write"})
    async def write_file(path: str, text: str = "") -> None:
        ran.append(path)

    @tool(side_effects={"mutate"})
    async def pay(cents: int) -> None:
        ran.append(cents)

    @tool(side_effects=())
    async def calc(a: int) -> None:
        ran.append(a)

    return [read_file, write_file, pay, calc]


async def decisions(tools: list[Any], *rules: Rule, **options: Any) -> str:
    """What a policy says of one call of each tool: `+` for run, `-` for denied."""
    registry = Registry(tools, policy=Policy(*rules, **options))
    found = ""
    for name, args in (
        ("read_file", {"path": "a"}),
        ("write_file", {"path": "a"}),
        ("pay", {"cents": 5}),
        ("calc", {"a": 1}),
    ):
        found += "+" if (await registry.dispatch(name, args)).status == "completed" else "-"
    return found


async def test_everything_is_allowed_unless_somebody_says_otherwise(tools: list[Any]) -> None:
    """Also by a policy without rules."""
    assert await decisions(tools) == "++++"


async def test_rules_go_by_name(tools: list[Any]) -> None:
    """Or by a pattern of it."""
    assert await decisions(tools, deny("pay")) == "++-+"
    assert await decisions(tools, deny("*_file")) == "--++"


async def test_rules_go_by_side_effect(tools: list[Any]) -> None:
    """Any of those that are named."""
    assert await decisions(tools, deny(side_effects={"write", "mutate"})) == "+--+"
    assert await decisions(tools, allow(side_effects={"read"}), default="deny") == "+---"


async def test_rules_go_by_argument(tools: list[Any], ran: list[Any]) -> None:
    """The condition is given the arguments in canonical form, defaults included."""
    seen: list[Any] = []

    def large(args: Any) -> bool:
        seen.append(args)
        return bool(args["cents"] > 100)

    registry = Registry(tools, policy=Policy(deny("pay", when=large, why="Too much.")))
    refused = await registry.dispatch("pay", {"cents": 101.0})
    assert refused.content == "pay: denied. Too much."
    assert refused.status == "refused"
    assert (await registry.dispatch("pay", {"cents": 100})).status == "completed"
    assert seen == [{"cents": 101}, {"cents": 100}]
    assert ran == [100]


async def test_the_first_rule_that_matches_decides(tools: list[Any]) -> None:
    """Then the default."""
    assert await decisions(tools, allow("read_file"), deny("*_file"), allow("pay"), default="deny") == "+-+-"


async def test_a_condition_that_cannot_decide_does_not_allow(tools: list[Any], ran: list[Any]) -> None:
    """And what went wrong in it becomes no crash of the loop."""
    registry = Registry(tools, policy=Policy(deny("pay", when=lambda args: args["nope"])))
    result = await registry.dispatch("pay", {"cents": 5})
    assert result.content == "pay: denied. No decision: KeyError: 'nope'"
    assert ran == []


async def test_a_denial_is_on_record(store_url: Url, tools: list[Any], ran: list[Any]) -> None:
    """With its gate; nothing else of the call is."""
    registry = Registry(tools, policy=Policy(deny("pay")))
    async with opened(store_url) as (store, session):
        result = await registry.dispatch("pay", {"cents": 5}, call_id="c1", session=session)
        assert result.content == "pay: denied. pay is not allowed here"
        (refused,) = await bodies(store, session, ToolRefused)
        assert (refused.call.id, refused.tool, refused.gate) == ("c1", "pay", "policy")
        assert "tool.issued" not in await kinds(store, session)
    assert ran == []


async def test_what_asks_for_a_person_is_refused_without_a_session(tools: list[Any], ran: list[Any]) -> None:
    """There is nothing to wait in."""
    result = await Registry(tools, policy=Policy(ask("pay"))).dispatch("pay", {"cents": 5})
    assert result.content == "pay: needs a person's approval, and there is no session to wait in"
    assert ran == []


@pytest.mark.parametrize("wrong", [{"destroy"}, "destroy"])
def test_a_rule_for_a_side_effect_that_does_not_exist_is_refused(wrong: Any) -> None:
    """It would never match, and nobody would notice."""
    with pytest.raises(BadInput, match=r"side.effects"):
        deny(side_effects=wrong)


def test_a_policy_needs_a_default_that_exists() -> None:
    """Allow, deny or ask."""
    with pytest.raises(BadInput, match="default is allow, deny or ask, not 'maybe'"):
        Policy(default="maybe")  # type: ignore[arg-type]


# -- a path inside a root ------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file, beside one with a secret, and links between them; we are in it."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "file").touch()
    (tmp_path / "secret").touch()
    (tmp_path / "root-too").mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "out-file").symlink_to(tmp_path / "secret")
    (root / "in").symlink_to(root / "sub")
    (root / "loop").symlink_to(root / "loop")
    (root / "chain").symlink_to("sub/../out")
    monkeypatch.chdir(root)
    return root.resolve()


INSIDE = [
    "file",
    "sub",
    ".",
    "",
    "sub/../file",
    "new/deep/file",
    "in/new",
    "{root}/file",
    "{root}",
    "sub//new",
]
OUTSIDE = [
    "..",
    "../secret",
    "sub/../../secret",
    "/etc/passwd",
    "{root}/../secret",
    "{root}-too/file",
    "out/secret",
    "out-file",
    "in/../../secret",
    "chain/secret",
    "chain/new",
    "out/root-too/../secret",
    "~/file",
    "~root/file",
    "a\0b",
    "new/../../secret",
]


@pytest.mark.parametrize("path", INSIDE)
async def test_a_path_inside_the_root_is_allowed(
    path: str, root: Path, tools: list[Any], ran: list[Any]
) -> None:
    """Whether it exists or not, however it is written."""
    registry = Registry(tools, policy=Policy(paths_inside(root, "path")))
    await registry.dispatch("write_file", {"path": path.format(root=root)})
    assert len(ran) == 1


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_path_outside_the_root_is_denied(
    path: str, root: Path, tools: list[Any], ran: list[Any]
) -> None:
    """Neither `..` nor a link nor a home directory is a way out."""
    registry = Registry(tools, policy=Policy(paths_inside(root, "path")))
    result = await registry.dispatch("write_file", {"path": path.format(root=root)})
    assert result.content == f"write_file: denied. only paths inside {root} are allowed"
    assert ran == []


async def test_a_root_may_be_a_link_itself(root: Path, tools: list[Any], ran: list[Any]) -> None:
    """What counts is where it leads."""
    registry = Registry(tools, policy=Policy(paths_inside(root / "in", "path")))
    await registry.dispatch("read_file", {"path": "in/x"})
    await registry.dispatch("read_file", {"path": str(root / "sub" / "y")})
    denied = await registry.dispatch("read_file", {"path": str(root / "file")})
    assert denied.is_error
    assert len(ran) == 2


async def test_a_relative_path_begins_where_the_tool_begins(
    root: Path, tools: list[Any], ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the working directory, where it will be opened, wherever the root is."""
    monkeypatch.chdir(root.parent)
    registry = Registry(tools, policy=Policy(paths_inside(root, "path")))
    assert (await registry.dispatch("read_file", {"path": "secret"})).is_error
    assert ran == []
    assert not (await registry.dispatch("read_file", {"path": "root/file"})).is_error


async def test_a_relative_path_begins_where_the_tool_will_open_it(
    root: Path, tools: list[Any], ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the working directory, wherever the root is."""
    registry = Registry(tools, policy=Policy(paths_inside(root, "path")))
    monkeypatch.chdir(root.parent)
    assert (await registry.dispatch("read_file", {"path": "file"})).is_error
    assert not (await registry.dispatch("read_file", {"path": "root/file"})).is_error
    assert ran == ["root/file"]


async def test_lists_of_paths_are_checked_each(root: Path) -> None:
    """One bad one is enough; what is no path at all is bad, and what was not given is not."""
    ran: list[Any] = []

    @tool(side_effects={"read"})
    async def read(paths: list[str], other: Any = None) -> None:
        ran.append(paths)

    registry = Registry([read], policy=Policy(paths_inside(root, "paths", "other")))
    for args, allowed in (
        ({"paths": ["file", "sub"]}, True),
        ({"paths": ["file", "../secret"]}, False),
        ({"paths": [], "other": "file"}, True),
        ({"paths": [], "other": {"deep": "../secret"}}, False),
        ({"paths": [], "other": 5}, False),
    ):
        assert ((await registry.dispatch("read", args)).status == "completed") is allowed, args


async def test_the_rule_can_be_for_some_tools_only(root: Path, tools: list[Any]) -> None:
    """And needs to know which arguments are paths."""
    registry = Registry(tools, policy=Policy(paths_inside(root, "path", tool="write_*")))
    assert not (await registry.dispatch("read_file", {"path": "/etc/passwd"})).is_error
    assert (await registry.dispatch("write_file", {"path": "/etc/passwd"})).is_error
    with pytest.raises(BadInput, match="needs the names of the arguments"):
        paths_inside(root)


# -- what is left of the budget ------------------------------------------------------------------------


async def test_nothing_is_run_once_the_budget_is_spent(
    store_url: Url, tools: list[Any], ran: list[Any]
) -> None:
    """The model is told which cap it is."""
    registry = Registry(tools)
    async with opened(store_url) as (_, session):
        await session.set_budget(Budget(usd=1, tokens=100))
        async with session.run() as run, run.request() as request:
            await request.reply("ok", usage=Usage(input_tokens=60), cost_usd=0.5)
        assert (await registry.dispatch("calc", {"a": 1}, session=session)).status == "completed"
        async with session.run() as run, run.request() as request:
            await request.reply("ok", usage=Usage(input_tokens=60), cost_usd=0.1)
        result = await registry.dispatch("calc", {"a": 2}, session=session)
        assert result.content == "calc: the budget is spent: 120 of 100 tokens"
        assert result.status == "refused"
    assert ran == [1]
