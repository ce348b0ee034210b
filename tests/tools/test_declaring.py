"""Declaring tools: what is taken from the function, and what is refused at once."""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

import holdfast
from holdfast import Registry, ToolContext, tool
from holdfast.core.entries import CallRef
from holdfast.errors import BadInput
from holdfast.tools import Policy, Retry, Tool, deny
from holdfast.tools.declaration import Hook, SideEffect, SideEffects
from holdfast.tools.dispatch import CallRequest
from tests.tools import hinted_by_name

Ctx = ToolContext[int]


class Size(enum.Enum):
    """A choice."""

    SMALL = "small"
    LARGE = "large"


class Item(BaseModel):
    """A nested model."""

    name: str
    count: Annotated[int, Field(ge=1)] = 1


def properties(declared: Tool[..., Any]) -> dict[str, Any]:
    """The properties of a tool's schema."""
    found: dict[str, Any] = declared.schema["properties"]
    return found


def test_the_name_and_the_description_are_the_functions() -> None:
    """Nothing has to be said twice."""

    @tool(side_effects=())
    def calc(expression: str) -> int:
        """Work it out.

        Slowly.
        """
        return len(expression)

    assert (calc.name, calc.description) == ("calc", "Work it out.\n\nSlowly.")
    assert calc("12") == 2  # Calling the tool calls the function.


def test_a_name_and_a_description_can_be_given() -> None:
    """For functions that are called otherwise."""
    declared = tool(name="sum-up", description="Adds.", side_effects=())(lambda a: a)
    assert (declared.name, declared.description) == ("sum-up", "Adds.")


def test_the_schema_comes_from_the_hints() -> None:
    """Constraints, defaults, choices and nested models are in it, and nothing else may be given."""

    def order(  # type: ignore[no-untyped-def]
        items: list[Item],
        size: Size,
        how: Literal["fast", "cheap"] = "fast",
        share: Annotated[float, Field(gt=0, le=1, description="of the cake")] = 0.5,
        note: str | None = None,
        plain=3,
    ) -> None: ...

    declared = tool(side_effects={"write"})(order)
    found = properties(declared)
    assert found["share"] == {
        "default": 0.5,
        "description": "of the cake",
        "exclusiveMinimum": 0,
        "maximum": 1,
        "title": "Share",
        "type": "number",
    }
    assert found["how"]["enum"] == ["fast", "cheap"]
    assert found["note"]["default"] is None
    assert found["plain"]["default"] == 3
    assert declared.schema["required"] == ["items", "size"]
    assert declared.schema["additionalProperties"] is False
    assert declared.schema["$defs"]["Size"]["enum"] == ["small", "large"]
    assert declared.schema["$defs"]["Item"]["properties"]["count"]["minimum"] == 1


@pytest.mark.parametrize(
    "doc",
    [
        """Send it.

        Args:
            to: Whom to.
            body: What to say,
                at length.
        """,
        """Send it.

        Parameters
        ----------
        to : str
            Whom to.
        body : str
            What to say,
            at length.
        """,
        """Send it.

        :param to: Whom to.
        :param body: What to say,
            at length.
        """,
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_parameters_are_described_by_the_docstring(doc: str) -> None:
    """In any of the usual styles; what is said of the parameters is not said again in the description."""

    def send(to: str, body: str = "") -> None: ...

    send.__doc__ = doc
    declared = tool(side_effects={"mutate"})(send)
    assert declared.description == "Send it."
    assert properties(declared)["to"]["description"] == "Whom to."
    assert properties(declared)["body"]["description"].split() == ["What", "to", "say,", "at", "length."]
    assert properties(declared)["body"]["default"] == ""


def test_a_description_in_the_hint_wins_over_the_docstring() -> None:
    """It stands nearer."""

    @tool(side_effects=())
    def find(where: Annotated[str, Field(description="the place", min_length=2)]) -> None:
        """Find it.

        Args:
            where: somewhere
        """

    assert properties(find)["where"]["description"] == "the place"
    assert properties(find)["where"]["minLength"] == 2


def test_the_context_is_no_argument() -> None:
    """It is recognised by its name, or by its type whatever its name."""

    def by_name(ctx, x: int) -> None: ...  # type: ignore[no-untyped-def]
    def by_type(context: ToolContext[Any], x: int) -> None: ...
    def by_alias(context: Ctx, x: int) -> None: ...
    def bare(c: ToolContext, x: int) -> None: ...  # type: ignore[type-arg]

    for function in (by_name, by_type, by_alias, bare):
        declared = tool(side_effects=())(function)
        assert list(properties(declared)) == ["x"], function


def test_a_parameter_that_only_sounds_like_the_context_is_an_argument() -> None:
    """What counts is its type."""

    class ToolContextName(BaseModel):
        name: str

    def pick(context: ToolContextName) -> None: ...

    pick.__annotations__["context"] = ToolContextName
    assert list(properties(tool(side_effects=())(pick))) == ["context"]


def test_hints_may_be_strings() -> None:
    """This module has them all as strings, and so has another one with types of its own."""
    found = properties(hinted_by_name.paint)
    assert found["colour"] == {"$ref": "#/$defs/Colour"}
    assert list(found) == ["colour", "times"]


def test_parameters_may_be_called_like_methods_of_a_model() -> None:
    """How arguments are checked is nobody's business."""

    def save(json: str, copy: bool, schema: int = 3, model_name: str = "", self_: int = 1) -> None: ...

    assert list(properties(tool(side_effects=())(save))) == ["json", "copy", "schema", "model_name", "self_"]


def test_the_defaults_follow_from_the_side_effects() -> None:
    """What writes sets something, what mutates does it once a session, what only reads may be read again."""

    def body() -> None: ...

    reads = tool(side_effects={"read"})(body)
    writes = tool(side_effects={"write"})(body)
    mutates = tool(side_effects={"mutate"})(body)
    both = tool(side_effects={"write", "mutate"})(body)
    assert [one.scope for one in (reads, writes, mutates, both)] == ["call", "repeat", "session", "session"]
    assert [one.idempotent_s for one in (reads, writes, mutates, both)] == [None, math.inf, None, None]
    assert [one.changes_the_world for one in (reads, writes, mutates, both)] == [False, True, True, True]
    assert reads.timeout_s is None
    assert writes.timeout_s == mutates.timeout_s == 300  # A body with side effects always has a limit.
    assert tool(side_effects={"write"}, idempotent=False)(body).idempotent_s is None
    assert tool(side_effects={"mutate"}, idempotent=60)(body).idempotent_s == 60


def test_every_option_arrives() -> None:
    """None of them is only for show."""

    def pay(cents: int) -> None: ...
    def paid(cents: int) -> None: ...
    def back(cents: int) -> None: ...

    retry = Retry(attempts=5)
    declared = tool(
        side_effects={"mutate"},
        scope="global",
        verify=paid,
        verify_after_s=2,
        undo=back,
        idempotent=10.5,
        harmless=[KeyError],
        retry=retry,
        timeout_s=7,
        needs_approval=True,
        pollable=True,
    )(pay)
    assert declared.verify is not None
    assert declared.undo is not None
    assert (declared.verify.function, declared.undo.function) == (paid, back)
    assert (declared.scope, declared.verify_after_s, declared.idempotent_s) == ("global", 2, 10.5)
    assert (declared.harmless, declared.retry, declared.timeout_s) == ((KeyError,), retry, 7)
    assert (declared.needs_approval, declared.pollable) == (True, True)
    assert repr(declared) == "<tool pay (mutate)>"


def test_a_tool_that_declares_nothing_counts_as_mutating_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every call of it counts by itself: nothing is known that could be the same."""

    def shout(text: str) -> None: ...

    with caplog.at_level(logging.WARNING, "holdfast"):
        registry = Registry([shout])
    assert registry.tools["shout"].side_effects == {"mutate"}
    assert registry.tools["shout"].scope == "call"
    assert len(caplog.records) == 1
    assert "write @holdfast.tool(side_effects=" in caplog.text


def test_a_tool_that_declares_something_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Also if it declares that it is pure."""
    tool(side_effects=(), name="f")(lambda a: a)
    assert caplog.records == []


def test_side_effects_are_a_name_or_a_set_of_names() -> None:
    """A tool, and a rule about tools, take either."""

    def act(x: int) -> None: ...

    both: list[SideEffect] = ["read", "mutate"]
    cases: list[tuple[SideEffects, set[str]]] = [
        ("write", {"write"}),
        ({"write"}, {"write"}),
        (both, {"read", "mutate"}),
        ((), set()),
    ]
    for given, effects in cases:
        declared = tool(side_effects=given)(act)
        assert declared.side_effects == effects
        assert Registry([declared]).get_tool("act").side_effects == effects
        assert deny(side_effects=given).side_effects == effects


async def test_a_call_may_bring_a_body_of_its_own() -> None:
    """The gates and the declaration stay; the registry need not know the tool."""

    def act(x: int) -> int:
        return x

    def body(x: int) -> int:
        return 10 * x

    declared = tool(side_effects=())(act)
    own = declared.with_body(Hook.of(body))
    for registry in (Registry([declared]), Registry(policy=Policy(deny(side_effects="mutate")))):
        found = await registry.dispatch_call(CallRequest(CallRef(id="c"), "act", {"x": 2}, own), session=None)
        assert (found.status, found.value) == ("completed", 20)
        bad = CallRequest(CallRef(id="d"), "act", {"y": 2}, own)
        assert (await registry.dispatch_call(bad, session=None)).status == "refused"
    assert (await Registry([declared]).dispatch("act", {"x": 2})).value == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"side_effects": {"destroy"}}, r"unknown side effects \['destroy'\]; known are read, write, mutate"),
        ({"side_effects": "none"}, r"unknown side effects \['none'\]; .* and \(\) for none"),
        ({"side_effects": {"write"}, "scope": "galaxy"}, "unknown scope 'galaxy'; known are session, repeat"),
        ({"scope": "galaxy"}, "unknown scope 'galaxy'"),
        ({"side_effects": {"mutate"}, "idempotent": 0}, "no time at all"),
        ({"side_effects": {"mutate"}, "idempotent": math.nan}, "no time at all"),
        ({"side_effects": {"mutate"}, "timeout_s": 0}, "must be positive and finite"),
        ({"side_effects": {"mutate"}, "timeout_s": math.inf}, "must be positive and finite"),
        ({"side_effects": {"mutate"}, "verify_after_s": -1}, "must not be negative"),
        ({"side_effects": {"mutate"}, "harmless": ["KeyError"]}, "lists types of exceptions, not 'KeyError'"),
        ({"side_effects": (), "retry": 3}, r"retry=3 is not a policy; write Retry\(attempts=3\)"),
        ({"side_effects": (), "name": "no spaces"}, "'no spaces' is not a name for a tool"),
        ({"side_effects": (), "name": "x" * 65}, "is not a name for a tool"),
        (
            {"side_effects": {"mutate"}, "verify": lambda y: None},
            r"verify must have .* \(x\), .* it has \(y\)",
        ),
        ({"side_effects": {"mutate"}, "verify": lambda: None}, r"verify must have the tool's own parameters"),
        ({"side_effects": {"mutate"}, "undo": lambda ctx, x, y: None}, r"undo must have .* it has \(x, y\)"),
        ({"side_effects": {"mutate"}, "undo": lambda y, **rest: None}, r"undo must have"),
        (
            {"side_effects": {"read"}, "verify": lambda x: None},
            "verify makes sense only for a tool that writes",
        ),
        ({"side_effects": (), "undo": lambda x: None}, "undo makes sense only for a tool that writes"),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    """And the message says which tool, what is wrong and what would be right."""

    def act(x: int) -> None: ...

    with pytest.raises(BadInput, match=message):
        tool(**options)(act)


@pytest.mark.parametrize(
    "hook",
    [
        lambda x: None,
        lambda ctx, x: None,
        lambda **all: None,
        lambda ctx, **all: None,
    ],
)
def test_a_hook_has_the_parameters_of_its_tool(hook: Callable[..., Any]) -> None:
    """With the context first if it wants it."""

    def act(x: int) -> None: ...

    assert tool(side_effects={"mutate"}, verify=hook, undo=hook)(act).verify is not None


def test_a_parameter_without_a_json_schema_is_refused() -> None:
    """Nobody could tell a model how to give it."""

    class Odd: ...

    def act(x: Any) -> None: ...

    act.__annotations__["x"] = Odd
    with pytest.raises(BadInput, match="'act': its parameters have no JSON Schema"):
        tool(side_effects=())(act)


def test_a_hint_that_cannot_be_resolved_is_refused() -> None:
    """With the name that is missing."""

    def act(x: int) -> None: ...

    act.__annotations__["x"] = "Nowhere"
    with pytest.raises(BadInput, match="a type hint cannot be resolved: name 'Nowhere'"):
        tool(side_effects=())(act)


@pytest.mark.parametrize("body", [lambda *x: x, lambda **x: x, eval("lambda x, /: x")])
def test_parameters_must_be_given_by_name(body: Callable[..., Any]) -> None:
    """That is how models give them."""
    with pytest.raises(BadInput, match="parameter 'x' cannot be given by name"):
        tool(side_effects=(), name="act")(body)


def test_a_secret_is_no_argument() -> None:
    """It would be in the model's context and in the journal, or two of them would look alike."""

    def log_in(password: SecretStr) -> None: ...

    with pytest.raises(BadInput, match="hand it over in deps"):
        tool(side_effects={"mutate"})(log_in)


def test_a_duplicate_name_is_refused() -> None:
    """The model could not say which one it means."""
    registry = Registry([tool(side_effects=(), name="calc")(lambda a: a)])
    with pytest.raises(BadInput, match="there is a tool 'calc' already"):
        registry.add(tool(side_effects=(), name="calc")(lambda b: b))


def test_a_function_without_a_name_needs_one() -> None:
    """A partial has none."""
    with pytest.raises(BadInput, match=r"has no name of its own: declare it with tool\(name=…\)"):
        tool(side_effects=())(partial(int, base=2))


@pytest.mark.parametrize("given", [None, 5, "calc"])
def test_what_cannot_be_called_is_no_tool(given: Any) -> None:
    """And is shown."""
    with pytest.raises(BadInput, match=f"{given!r} is not a tool"):
        Registry([given])


def test_an_explicit_schema_is_taken_as_it_is_and_says_that_it_is_closed() -> None:
    """The function only has to be callable with it."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}

    @tool(side_effects={"read"}, schema=schema)
    def search(**asked: Any) -> Any:
        """Search."""
        return asked

    assert search.schema == {**schema, "additionalProperties": False}
    assert search.description == "Search."


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "not a JSON Schema"),
        ({"properties": {"q": {}}}, "the function has no parameter 'q'"),
        ({"properties": {"x": {}}}, "the function always needs 'x'"),
        ({"properties": {"x": {"default": math.nan}}}, "not a JSON Schema: args.x: nan is not a JSON number"),
    ],
)
def test_an_explicit_schema_that_does_not_fit_is_refused(schema: dict[str, Any], message: str) -> None:
    """A body that cannot be called with what the schema allows would be found out too late."""

    def act(x: Any) -> None: ...

    with pytest.raises(BadInput, match=message):
        tool(side_effects={"mutate"}, schema=schema)(act)


def test_each_provider_is_told_in_its_own_shape() -> None:
    """The schema inside is the same."""

    @tool(side_effects=())
    def calc(expression: str) -> int:
        """Work it out."""
        return 0

    registry = Registry([calc])
    plain = {"name": "calc", "description": "Work it out.", "parameters": calc.schema}
    assert registry.schemas() == registry.schemas("google") == [plain]
    assert registry.schemas("openai") == [{"type": "function", "function": plain}]
    assert registry.schemas("anthropic") == [
        {"name": "calc", "description": "Work it out.", "input_schema": calc.schema}
    ]
    with pytest.raises(BadInput, match="no schemas for 'acme'; there are json, google, openai, anthropic"):
        registry.schemas("acme")  # type: ignore[arg-type]


def test_a_registry_gives_its_tools() -> None:
    """By name, and says which there are if it has none."""
    registry = Registry([tool(side_effects=(), name="calc")(lambda a: a)])
    assert registry.get_tool("calc") is registry.tools["calc"]
    with pytest.raises(holdfast.errors.NotFound, match=r"no tool 'calk'; there are \['calc'\]"):
        registry.get_tool("calk")


@pytest.mark.parametrize("options", [{"in_doubt": "ask"}, {"max_repeats": 1}, {"max_crashes": 0}])
def test_a_registry_refuses_options_that_make_no_sense(options: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(BadInput):
        Registry([], **options)


@pytest.mark.parametrize("options", [{"attempts": 0}, {"backoff_s": -1}, {"factor": 0.5}, {"jitter": 2}])
def test_a_retry_policy_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(BadInput, match="attempts is at least 1"):
        Retry(**options)
