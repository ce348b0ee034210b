"""`effects={…}`: tools that cannot be decorated, declared by their names."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Agent, Registry, ToolContext, tool
from holdfast.agents import ScriptedModel
from holdfast.errors import BadInput
from holdfast.tools import Retry, Tool, ToolEffects, mutate, pure, read, write
from holdfast.tools.effects_by_name import EffectsByName
from tests.tools.example_tools import call, reply


def search_web(query: str) -> str:
    """Search."""
    return f"found {query}"


def search_mail(query: str) -> str:
    """Search the mail."""
    return f"no mail about {query}"


def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


ALL: list[Callable[..., Any]] = [search_web, search_mail, send_mail]


def declared(effects: dict[str, ToolEffects], *tools: Callable[..., Any]) -> dict[str, Tool[..., Any]]:
    """The tools as a registry has them."""
    return dict(Registry(tools or ALL, effects=effects).tools)


def side_effects(effects: dict[str, ToolEffects], *tools: Callable[..., Any]) -> dict[str, set[str]]:
    """What each of them does."""
    return {name: set(one.side_effects) for name, one in declared(effects, *tools).items()}


def test_tools_are_declared_by_name_and_by_glob(caplog: pytest.LogCaptureFixture) -> None:
    """With words or with options; then there is nothing to warn of."""
    found = declared({"search_*": "read", "send_mail": mutate(timeout_s=7)})
    assert {name: set(one.side_effects) for name, one in found.items()} == {
        "search_web": {"read"},
        "search_mail": {"read"},
        "send_mail": {"mutate"},
    }
    assert (found["send_mail"].timeout_s, found["send_mail"].scope) == (7, "session")
    assert found["search_web"].description == "Search."
    assert list(found["search_web"].schema["properties"]) == ["query"]
    assert caplog.records == []


@pytest.mark.parametrize(
    ("given", "effects"),
    [
        ("pure", set()),
        ((), set()),
        ("read", {"read"}),
        ("write", {"write"}),
        ("mutate", {"mutate"}),
        ({"read", "write"}, {"read", "write"}),
        (["mutate"], {"mutate"}),
        (pure(), set()),
        (read(), {"read"}),
        (write(), {"write"}),
        (mutate(), {"mutate"}),
    ],
)
def test_a_declaration_is_a_word_or_what_the_function_of_that_name_gives(
    given: ToolEffects, effects: set[str]
) -> None:
    """With the defaults that `@holdfast.tool` has."""
    (found,) = declared({"send_mail": given}, send_mail).values()
    same = tool(side_effects=tuple(effects))(send_mail)  # type: ignore[arg-type]
    for name in ("side_effects", "scope", "idempotent_s", "timeout_s", "retry", "changes_the_world"):
        assert getattr(found, name) == getattr(same, name), name
    assert found.side_effects == effects


def test_every_option_of_a_declaration_arrives() -> None:
    """None of them is only for show."""

    def was_sent(to: str) -> None: ...
    def take_back(to: str) -> None: ...

    retry = Retry(attempts=5)
    for make in (write, mutate):
        made = make(
            scope="global",
            verify=was_sent,
            verify_after_s=2,
            undo=take_back,
            idempotent=10.5,
            harmless=iter([KeyError]),
            retry=retry,
            timeout_s=7,
            needs_approval=True,
            pollable=True,
        )
        found = declared({"send_mail": made}, send_mail)["send_mail"]
        assert found.verify is not None
        assert found.undo is not None
        assert (found.verify.function, found.undo.function) == (was_sent, take_back)
        assert (found.scope, found.verify_after_s, found.idempotent_s) == ("global", 2, 10.5)
        assert (found.harmless, found.retry, found.timeout_s) == ((KeyError,), retry, 7)
        assert (found.needs_approval, found.pollable) == (True, True)
    for make_harmless in (pure, read):
        made = make_harmless(retry=retry, timeout_s=7, needs_approval=True, pollable=True)
        found = declared({"send_mail": made}, send_mail)["send_mail"]
        assert (found.retry, found.timeout_s, found.needs_approval, found.pollable) == (retry, 7, True, True)


# -- which one counts --------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])
def test_a_name_wins_over_a_glob_and_a_longer_glob_over_a_shorter_one(turned: bool) -> None:
    """Whatever their order."""
    effects: dict[str, ToolEffects] = {"s*": "pure", "search_*": "read", "search_mail": "write"}
    given = dict(reversed(effects.items())) if turned else effects
    assert side_effects(given) == {"search_web": {"read"}, "search_mail": {"write"}, "send_mail": set()}


def test_what_counts_in_a_glob_is_its_literal_part() -> None:
    """Not how long it is to write; of equal ones, the first."""
    assert side_effects({"send_m???": "mutate", "[a-z]*[a-z][a-z]_mail": "read"}, send_mail) == {
        "send_mail": {"mutate"}
    }
    assert side_effects({"send_*": "read", "*_mail": "pure"}, send_mail) == {"send_mail": {"read"}}
    assert side_effects({"*_mail": "pure", "send_*": "read"}, send_mail) == {"send_mail": set()}


def test_a_name_with_the_letters_of_a_glob_is_also_a_name() -> None:
    """Servers name their tools as they like."""
    by_name = EffectsByName({"read[1]": "read", "read*": "mutate"})
    found = by_name.find("read[1]", is_declared=False)
    assert found is not None
    assert found.options["side_effects"] == {"read"}


def test_names_and_globs_win_over_the_decorator() -> None:
    """The mapping is what the operator of this agent says; the tool stays what it is otherwise."""

    @tool(side_effects={"mutate"}, scope="global", name="pay", description="Pay it.")
    def pay_order(ctx: ToolContext[Any], cents: int, to: str = "ann") -> str:
        return f"{cents} to {to}"

    for effects in ({"pay": read()}, {"p*": read()}):
        found = declared({**effects}, pay_order)["pay"]
        assert found.side_effects == {"read"}
        assert (found.scope, found.timeout_s) == ("call", None)
        assert (found.description, found.schema) == ("Pay it.", pay_order.schema)
        assert found.body == pay_order.body
    assert pay_order.side_effects == {"mutate"}


async def test_a_tool_that_was_declared_anew_runs_as_before() -> None:
    """Its arguments are checked and made as its own hints say."""
    seen = []

    @tool(side_effects={"mutate"})
    def pack(sizes: tuple[int, ...], name: str = "box") -> str:
        seen.append(sizes)
        return name

    registry = Registry([pack], effects={"pack": "pure"})
    assert (await registry.dispatch("pack", {"sizes": [1, 2]})).value == "box"
    assert seen == [(1, 2)]
    assert (await registry.dispatch("pack", {"size": [1]})).status == "refused"


def test_a_star_is_for_the_tools_that_declare_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """One that says that it pays is not made a reader by it."""
    pay = tool(side_effects={"mutate"}, name="pay")(lambda cents: cents)
    found = declared({"*": "read", "send_mail": "mutate"}, pay, search_web, send_mail)
    assert {name: set(one.side_effects) for name, one in found.items()} == {
        "pay": {"mutate"},
        "search_web": {"read"},
        "send_mail": {"mutate"},
    }
    assert "covers search_web:" in caplog.text
    # One of a registry that found nothing declared still declares nothing.
    again = declared({"*": "mutate"}, *Registry([search_web]).tools.values())["search_web"]
    assert again.side_effects == {"mutate"}
    assert again.scope == "session"


# -- what is warned of -------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["read", "write", "pure", mutate(idempotent=True)])
def test_a_star_under_which_tools_may_run_again_warns_with_their_names(
    given: ToolEffects, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with all of them: somebody should look at the list."""
    with caplog.at_level(logging.WARNING, "holdfast"):
        registry = Registry([search_web, send_mail], effects={"*": given})
        assert [one.getMessage() for one in caplog.records] == [
            (
                "effects={'*': …} covers search_web, send_mail: they are run again after a crash. "
                'Give those that act a "mutate" of their own.'
            )
        ]
        caplog.clear()
        registry.add(search_mail)
        assert "covers search_mail:" in caplog.text


@pytest.mark.parametrize("effects", [{"*": "mutate"}, {"*": mutate(scope="call")}, {"s*": "read"}])
def test_a_careful_star_and_a_glob_with_letters_warn_of_nothing(
    effects: dict[str, ToolEffects], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing runs again for it, or somebody thought of names."""
    declared(effects)
    assert caplog.records == []


def test_a_tool_that_declares_nothing_is_told_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    """In the words of an agent of our own."""
    declared({"search_*": "read"})
    assert [one.getMessage() for one in caplog.records] == [
        (
            "tool 'send_mail' does not say what it does to the world: treated as side_effects='mutate', "
            "scope='call'. If it only reads, write @holdfast.tool(side_effects=\"read\"), or "
            "Agent(…, effects={'send_mail': \"read\"})."
        )
    ]


def test_a_name_that_no_tool_has_is_refused() -> None:
    """It was meant for one, which would go without."""
    with pytest.raises(BadInput, match=r"'send_mial': …\} matches no tool; .* Did you mean 'send_mail'\?"):
        Registry(ALL, effects={"send_mial": "mutate"})
    with pytest.raises(BadInput, match=r"'x': …\} matches no tool; there are \['search_mail', "):
        Registry(ALL, effects={"x": "mutate"})


def test_a_glob_that_matches_nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """There may be such tools elsewhere; that no tool is left for a `*` is no mistake at all."""
    declared({"find_*": "read", "search_*": "read", "send_*": "mutate", "*": "mutate"})
    assert [one.getMessage() for one in caplog.records] == [
        "effects={'find_*': …} matches no tool; there are ['search_mail', 'search_web', 'send_mail']"
    ]


def test_a_glob_that_others_go_before_has_matched(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody misspelt it."""
    declared({"send_*": "read", "send_mail": "mutate"}, send_mail)
    assert caplog.records == []


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        ({"send_mail": "reads"}, r"effects=\{'send_mail': …\}: unknown side effects \['reads'\]"),
        ({"send_mail": None}, r"effects=\{'send_mail': None\}: give a name or a glob one of"),
        ({"send_mail": mutate}, r"or what the functions of these names return, as in .*mutate\(verify=…\)"),
        ({"send_mail": {"side_effects": "read"}}, "give a name or a glob one of"),
        ({"send_mail": b"read"}, "give a name or a glob one of"),
        ({5: "read"}, "give a name or a glob one of"),
        ({5: mutate()}, "give a name or a glob one of"),
        (["send_mail"], "it has the names of tools and what they do"),
        ("read", "it has the names of tools and what they do"),
        ({"send_mail": mutate(verify=lambda whom: None)}, r"'send_mail': verify must have .* \(to\)"),
        ({"s*": mutate(verify=lambda to: None)}, r"'search_web': verify must have .* \(query\)"),
    ],
)
def test_effects_that_cannot_be_meant_are_refused(effects: Any, message: str) -> None:
    """When the registry is made, with what would be right."""
    with pytest.raises(BadInput, match=message):
        Registry(ALL, effects=effects)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scope": "galaxy"}, "unknown scope 'galaxy'"),
        ({"idempotent": 0}, "no time at all"),
        ({"timeout_s": math.inf}, "must be positive and finite"),
        ({"harmless": ["KeyError"]}, "lists types of exceptions"),
        ({"verify": lambda x: None, "undo": lambda y: None}, "must have the tool's own parameters"),
    ],
)
def test_options_that_fit_no_tool_are_refused_where_they_are_written(
    options: dict[str, Any], message: str
) -> None:
    """Before there is a tool."""
    with pytest.raises(BadInput, match=message):
        mutate(**options)


@pytest.mark.parametrize(
    ("make", "option", "message"),
    [
        (mutate, "verfy", r"mutate\(\) got an unexpected option verfy=; did you mean verify=\?"),
        (write, "name", r"write\(\) got an unexpected option name=; there are harmless, "),
        (read, "verify", r"read\(\) got an .* verify=; there are needs_approval, pollable, retry, "),
        (pure, "scope", r"pure\(\) got an unexpected option scope="),
    ],
)
def test_an_option_that_there_is_not_is_refused(make: Any, option: str, message: str) -> None:
    """Type checkers see it as well: the options are listed once, for all of them."""
    with pytest.raises(TypeError, match=message):
        make(**{option: None})


def test_a_hook_of_a_declaration_may_take_any_argument() -> None:
    """One for all tools of a glob, beside one for the tool's own."""
    found = declared({"s*": mutate(verify=lambda **all: None)})
    assert all(one.verify is not None for one in found.values())
    mutate(verify=lambda **all: None, undo=lambda x: None)


# -- in use ------------------------------------------------------------------------------------------


async def test_a_call_that_a_name_declares_goes_through_the_ledger() -> None:
    """Done once in the session, as the mapping says; the reader beside it is asked each time."""
    sent, found = list[str](), list[str]()

    def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    def search(query: str) -> str:
        found.append(query)
        return f"{len(found)} found"

    registry = Registry([send, search], effects={"send": "mutate", "sea*": "read"})
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        for _ in range(2):
            await reply(session, call("send", {"to": "ann"}, "c0"), call("search", {"query": "x"}, "c1"))
            await registry.dispatch_step(session)
    assert (sent, found) == (["ann"], ["x", "x"])


async def test_an_agent_takes_effects_by_name() -> None:
    """They are those of its registry."""
    agent = Agent(ScriptedModel(["Hello."]), tools=ALL, effects={"se*": "read"})
    assert {one.scope for one in agent.registry.tools.values()} == {"call"}
    assert {tuple(one.sorted_effects) for one in agent.registry.tools.values()} == {("read",)}
    blocking = holdfast.blocking.Registry(ALL, effects={"se*": "read"})
    assert blocking.get_tool("send_mail").side_effects == {"read"}
