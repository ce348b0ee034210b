"""`Durable(…, effects={…})`: tools of toolsets and servers, declared by name and by glob."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

import holdfast
from holdfast.adapters.pydantic_ai import Durable, as_tools, effects, mutate, read
from holdfast.adapters.pydantic_ai.declarations import Declarations, NamedEffects
from holdfast.drivers.memory import MemoryDriver
from holdfast.tools import Tool

from .scripted_runs import SESSION, Script, call, kill, killed, look, results

TIMEOUT_S = 300.0


def declare(
    by_name: NamedEffects, name: str, *, metadata: dict[str, Any] | None = None, **more: Any
) -> Tool[..., Any]:
    """How a tool counts under `effects=by_name`."""
    return Declarations(by_name, TIMEOUT_S).find(ToolDefinition(name=name, metadata=metadata, **more))


def with_toolset(script: Script, sent: list[str], **options: Any) -> Agent[Any, Any]:
    """An agent with tools that somebody else has written."""

    def search_mail(query: str) -> str:
        return f"no mail about {query}"

    def send_mail(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    toolset: FunctionToolset[Any] = FunctionToolset([search_mail, send_mail])
    return script.agent(toolsets=[toolset], **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of."""
    return [one.getMessage() for one in caplog.records if one.name == "holdfast"]


async def test_tools_of_a_toolset_are_declared_by_name_and_by_glob(caplog: pytest.LogCaptureFixture) -> None:
    """The ledger has them so, and there is nothing to warn of."""
    sent: list[str] = []
    script = Script(
        [call("search_mail", "c0", query="x"), call("send_mail", "c1", to="a")],
        [call("send_mail", "c2", to="a")],
        "done",
    )
    async with holdfast.open_store("memory:") as store:
        named: NamedEffects = {"search_*": "read", "send_mail": mutate(timeout_s=9)}
        durable = Durable(store, session=SESSION, effects=named)
        result = await with_toolset(script, sent).run("a", capabilities=[durable])
        rows = (await look(store)).facts.effects.rows.values()
        assert {(row.tool, row.side_effects) for row in rows} == {
            ("search_mail", ("read",)),
            ("send_mail", ("mutate",)),
        }
    assert sent == ["a"]
    assert results(result.all_messages())[-1].startswith("[idempotent replay of ")
    assert warnings(caplog) == []


async def test_a_call_that_was_cut_off_is_settled_as_its_glob_says() -> None:
    """The hook that was declared for the name is asked, and the mail is not sent again."""
    driver, sent = MemoryDriver(), list[str]()
    script = Script([call("send_mail", to="a")], "done")

    def was_sent(to: str) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed("it was sent") if to in sent else holdfast.NotLanded()

    async def drive(store: holdfast.Store) -> Any:
        def send_mail(to: str) -> str:
            sent.append(to)
            if len(sent) == 1:
                kill(store)
            return "sent again"

        agent = script.agent(toolsets=[FunctionToolset([send_mail])])
        durable = Durable(store, session=SESSION, effects={"send_*": mutate(verify=was_sent)})
        return await agent.run("a", capabilities=[durable])

    await killed(driver, drive)
    async with holdfast.open_store(driver) as store:
        result = await drive(store)
        assert results(result.all_messages()) == ["it was sent"]
    assert sent == ["a"]


def test_a_declaration_is_a_word_a_function_or_the_metadata() -> None:
    """All three mean the same."""
    given: list[NamedEffects] = [
        {"a": "write"},
        {"a": {"write"}},
        {"a": effects(side_effects="write")},
        {"a*": effects(side_effects={"write"})},
    ]
    for by_name in given:
        found = declare(by_name, "a")
        assert found.side_effects == {"write"}
        assert (found.scope, found.timeout_s) == ("repeat", TIMEOUT_S)
    assert declare({"a": "pure"}, "a").side_effects == set()
    assert declare({"a": effects(side_effects="mutate", timeout_s=3)}, "a").timeout_s == 3


def test_what_the_mapping_says_wins_over_the_metadata_and_the_hints_of_a_server() -> None:
    """Names and globs do; a bare `*` is for tools that declare nothing, whatever their server says."""
    metadata = effects(side_effects="mutate", scope="call")
    for by_name in ({"send": read()}, {"se*": read()}):
        assert declare({**by_name}, "send", metadata=metadata).side_effects == {"read"}
    assert declare({"*": "read"}, "send", metadata=metadata).side_effects == {"mutate"}
    hints = {"annotations": {"readOnlyHint": True}}
    assert declare({"*": "mutate"}, "send", metadata=hints).side_effects == {"mutate"}
    assert declare({"send*": "mutate", "*": "read"}, "send", metadata=hints).side_effects == {"mutate"}
    assert declare({}, "send", metadata=hints).side_effects == {"read"}


def test_a_star_leaves_the_tools_of_pydantic_ai_itself_alone() -> None:
    """Those show the model more tools, and do nothing else."""
    found = declare({"*": "mutate"}, "search_tools", tool_kind="tool-search")
    assert found.side_effects == set()


def test_tools_of_our_own_are_declared_anew() -> None:
    """By their names; the bare `*` covers those that declare nothing."""

    @holdfast.tool(side_effects={"mutate"})
    def pay(cents: int) -> str:
        return "paid"

    @holdfast.tool
    def push(n: int) -> str:
        return "pushed"

    for one, by_star in ((pay, {"mutate"}), (push, {"read"})):
        (made,) = as_tools(one)
        assert declare({"p*": "read"}, one.name, metadata=made.metadata).side_effects == {"read"}
        assert declare({"*": "read"}, one.name, metadata=made.metadata).side_effects == by_star


async def test_a_name_that_matches_no_tool_is_warned_of_once_per_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the name that was meant, also beside the tool that goes without. A glob is not left out."""
    script = Script([call("send_mail", to="a")], "one")
    agent = with_toolset(script, [])
    named: NamedEffects = {"search_*": "read", "send_mial": "mutate", "find_*": "read"}
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION, effects=named)
        with caplog.at_level(logging.WARNING, "holdfast"):
            await agent.run("a", capabilities=[durable])
        unmatched = [
            (
                "effects={'send_mial': …} matches no tool; there are ['search_mail', 'send_mail']. "
                "Did you mean 'send_mail'?"
            ),
            "effects={'find_*': …} matches no tool; there are ['search_mail', 'send_mail']",
        ]
        assert warnings(caplog) == [
            (
                "tool 'send_mail' does not say what it does to the world: treated as side_effects='mutate', "
                "scope='call'. If it only reads, write metadata=effects(side_effects=\"read\"), or "
                "Durable(…, effects={'send_mail': \"read\"}). "
                "effects={…} has 'send_mial': did you mean 'send_mail'?"
            ),
            *unmatched,
        ]
        caplog.clear()
        with caplog.at_level(logging.WARNING, "holdfast"):
            await agent.run("b", capabilities=[durable])
        assert warnings(caplog) == unmatched


async def test_a_tool_that_comes_in_a_later_step_is_a_tool_of_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Toolsets may change from step to step."""
    script = Script([call("first")], [call("second")], "done")
    agent = script.agent()

    def first() -> str:
        return "1"

    def second() -> str:
        return "2"

    @agent.toolset
    def tools(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return FunctionToolset([first] if ctx.run_step < 2 else [second])

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION, effects={"first": "read", "second": "read"})
        result = await agent.run("a", capabilities=[durable])
        assert results(result.all_messages()) == ["1", "2"]
    assert warnings(caplog) == []


async def test_a_star_warns_of_the_tools_that_it_covers(caplog: pytest.LogCaptureFixture) -> None:
    """Before one of them is called, and once; not of those that declare something."""
    agent = with_toolset(Script("done"), [])

    @agent.tool_plain(metadata=effects(side_effects="mutate"))
    def pay() -> str:
        return "paid"

    async with holdfast.open_store("memory:") as store:
        for given, expected in (
            ("mutate", []),
            (
                "read",
                [
                    (
                        "effects={'*': …} covers search_mail, send_mail: they are run again after a crash. "
                        'Give those that act a "mutate" of their own.'
                    )
                ],
            ),
        ):
            caplog.clear()
            by_name: dict[str, Any] = {"*": given}
            durable = Durable(store, session=SESSION, effects=by_name)
            with caplog.at_level(logging.WARNING, "holdfast"):
                for prompt in ("a", "b"):
                    await agent.run(prompt, capabilities=[durable])
            assert warnings(caplog) == expected
