"""Gate 2: the body is entered with arguments that fit its schema, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from holdfast import Registry, tool
from holdfast.tools import Result, Tool


class Item(BaseModel):
    """A line of an order."""

    name: str
    count: int = 1


def recording(declare: Callable[..., Any], body: Callable[..., Any]) -> tuple[Registry, list[Any]]:
    """A registry with one tool, and what its body was entered with."""
    entered: list[Any] = []

    def note(**values: Any) -> str:
        entered.append(values)
        return "ok"

    note.__signature__ = __import__("inspect").signature(body)  # type: ignore[attr-defined]
    note.__annotations__ = body.__annotations__
    note.__name__ = body.__name__
    return Registry([declare(note)]), entered


def order(
    items: list[Item],
    size: int,
    paid: bool,
    share: Annotated[float, Field(gt=0, le=1)],
    due: date,
    tags: Annotated[list[str], Field(min_length=1)],
    code: Annotated[str, Field(pattern="^[a-z]+$")],
    note: str | None = None,
) -> None:
    """Place an order."""


def search(query: str, limit: int = 10) -> None:
    """Look it up."""


async def test_the_text_says_which_tool_and_which_argument() -> None:
    """In the words of the schema."""

    @tool(side_effects=())
    def calc(expression: str) -> int:
        return len(expression)

    result = await Registry([calc]).dispatch("calc", {})
    assert result.content == "calc: invalid arguments. args: 'expression' is a required property"
    assert (result.status, result.is_error) == ("refused", True)


async def test_ten_problems_come_back_as_ten_lines() -> None:
    """All at once, each with its path, so that a model can mend them all at once."""
    registry, entered = recording(tool(side_effects={"mutate"}), order)
    bad = {
        "items": [{"nmae": "x"}, {"name": 5, "count": "3"}],
        "size": "7",
        "paid": 1,
        "share": 2,
        "due": "tomorrow",
        "tags": [],
        "code": "A1",
    }
    result = await registry.dispatch("order", bad)
    header, *lines = ("\n" + result.content.removeprefix("order: invalid arguments. ")).split("\n")
    paths = [line.split(": ")[0] for line in lines]
    assert header == ""
    assert set(paths[:4]) == {
        "args.items[0].nmae",
        "args.items[0]",
        "args.items[1].name",
        "args.items[1].count",
    }
    assert paths[4:] == [
        "args.size",
        "args.paid",
        "args.share",
        "args.due",
        "args.tags",
        "args.code",
    ]
    assert "args.items[0]: 'name' is a required property" in lines
    assert 'args.size: "7" is not of type "integer"' in lines
    assert 'args.due: "tomorrow" is not a "date"' in lines
    assert entered == []


async def test_a_misnamed_argument_is_told_which_was_meant() -> None:
    """And one that resembles none is told which there are."""
    registry, entered = recording(tool(side_effects=()), search)
    result = await registry.dispatch("search", {"qurey": "x", "colour": 1})
    assert "args.qurey: unknown argument; did you mean 'query'?" in result.content
    assert "args.colour: unknown argument; known are query, limit" in result.content
    assert entered == []


@pytest.mark.parametrize("closed", [{}, {"additionalProperties": False}])
async def test_an_explicit_schema_is_checked_the_same_way(closed: dict[str, Any]) -> None:
    """Unknown arguments are refused whether it says so or not, and told which were meant."""
    schema = {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            "limit": {"type": "integer", "minimum": 1, "default": 10},
            "flag": True,
        },
        "required": ["items"],
        **closed,
    }
    entered: list[Any] = []

    @tool(side_effects=(), schema=schema)
    def search(**asked: Any) -> None:
        entered.append(asked)

    registry = Registry([search])
    bad = {"items": [{"name": 5}], "limit": 0, "limti": 2}
    result = await registry.dispatch("search", bad)
    assert result.content.splitlines() == [
        "search: invalid arguments. args.limti: unknown argument; did you mean 'limit'?",
        'args.items[0].name: 5 is not of type "string"',
        "args.limit: 0 is less than the minimum of 1",
    ]
    result = await registry.dispatch("search", {})
    assert "args: 'items' is a required property" in result.content
    assert entered == []
    await registry.dispatch("search", {"items": []})
    assert entered == [{"items": [], "limit": 10}]


async def test_an_explicit_schema_can_be_open() -> None:
    """If it says so."""
    entered: list[Any] = []

    @tool(side_effects=(), schema={"type": "object", "additionalProperties": {"type": "integer"}})
    def put(**asked: Any) -> None:
        entered.append(asked)

    registry = Registry([put])
    await registry.dispatch("put", {"any": 1})
    refused = await registry.dispatch("put", {"any": "1"})
    assert entered == [{"any": 1}]
    assert refused.content == 'put: invalid arguments. args.any: "1" is not of type "integer"'


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "args.x: nan is not a JSON number"),
        (math.inf, "args.x: inf is not a JSON number"),
        ({"y": [1, -math.inf]}, "args.x.y[1]: -inf is not a JSON number"),
        ("\ud800", "args.x: holds a lone surrogate, which is not text"),
        ({"\udfff": 1}, "args.x: holds a lone surrogate, which is not text"),
        ({1: 2}, "args.x: the key 1 is not a string"),
        (object, "args.x: a type is not JSON"),
        (1 << 10_000, "args.x: is an integer of too many digits"),
    ],
)
@pytest.mark.parametrize("explicit", [False, True])
async def test_what_json_cannot_hold_is_refused(value: object, why: str, explicit: bool) -> None:
    """Whatever the schema says of it."""
    entered: list[object] = []

    def put(x: Any) -> None:
        entered.append(x)

    options: dict[str, Any] = {"schema": {"properties": {"x": {}}, "required": ["x"]}} if explicit else {}
    result = await Registry([tool(side_effects=(), **options)(put)]).dispatch("put", {"x": value})
    assert result.content == f"put: invalid arguments. {why}"
    assert entered == []


@pytest.mark.parametrize(
    "args", ['{"x": NaN}', '{"x": 1e999}', "[" * 100_000, "{", "[1]", '"x"', "null", 5, None]
)
async def test_arguments_that_are_no_object_are_refused(args: object) -> None:
    """Some providers give JSON text, and some models get it wrong."""
    entered: list[object] = []
    registry = Registry([tool(side_effects=(), name="put")(lambda x: entered.append(x))])
    result = await registry.dispatch("put", args)
    assert result.status == "refused"
    assert result.content.startswith("put: invalid arguments. args")
    assert entered == []


async def test_nesting_without_end_is_refused() -> None:
    """Whoever reads it has only so much stack."""
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    result = await Registry([tool(side_effects=(), name="put")(lambda x: None)]).dispatch("put", {"x": deep})
    assert "nested more than 200 levels deep" in result.content


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "5"),
        (int, True),
        (int, 5.5),
        (float, "5"),
        (str, 5),
        (bool, 1),
        (bool, "yes"),
        (list[int], "12"),
        (date, 20260101),
        (dict[str, int], []),
    ],
)
async def test_a_value_of_another_type_is_refused(kind: Any, value: object) -> None:
    """A string is no integer, and `true` is not 1: nothing is guessed."""
    registry, entered = recording(tool(side_effects=(), name="put"), _taking(kind))
    result = await registry.dispatch("put", {"x": value})
    assert result.content.startswith("put: invalid arguments. args.x: ")
    assert entered == []


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        (int, 5.0, 5),
        (float, 5, 5.0),
        (float, 1e300, 1e300),
        (int, 2**70, 2**70),
        (date, "2026-01-02", date(2026, 1, 2)),
        (bytes, "aGk=", b"hi"),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[str], ["b", "a"], {"a", "b"}),
        (Item, {"name": "n"}, Item(name="n")),
        (int | None, None, None),
    ],
)
async def test_the_body_gets_the_types_it_asked_for(kind: Any, value: object, given: object) -> None:
    """From the one way in which JSON can say them."""
    registry, entered = recording(tool(side_effects=(), name="put"), _taking(kind))
    result = await registry.dispatch("put", {"x": value})
    assert result.status == "completed", result.content
    assert entered == [{"x": given}]
    assert type(entered[0]["x"]) is type(given)


class Address(BaseModel):
    """Where somebody lives; perhaps with somebody else."""

    name: str = "nobody"
    care_of: Address | None = None


class Kept(BaseModel):
    """Takes whatever comes."""

    model_config = ConfigDict(extra="allow")

    address: Address = Address()


@dataclass
class Parcel:
    """A dataclass with a model in it."""

    weight: int = 0
    address: Address | None = None


class Note(TypedDict, total=False):
    """A dict with known keys."""

    text: str


class Shipment(BaseModel):
    """What pydantic would take extras for in a model: they are dropped."""

    model_config = ConfigDict(extra="ignore")

    parcel: Parcel = Parcel()
    note: Note = {}


class Letter(BaseModel):
    """By its kind."""

    kind: Literal["letter"]
    stamp: str = ""


class Card(BaseModel):
    """By its kind."""

    kind: Literal["card"]
    motif: str = ""


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Address, {"nmae": "x"}, "args.x.nmae: unknown argument; did you mean 'name'?"),
        (
            Address,
            {"care_of": {"care_of": {"nmae": 1}}},
            "args.x.care_of.care_of.nmae: unknown argument; did",
        ),
        (list[Address], [{}, {"nmae": 1}], "args.x[1].nmae: unknown argument; did you mean 'name'?"),
        (dict[str, Address], {"a": {"nmae": 1}}, "args.x.a.nmae: unknown argument; did you mean 'name'?"),
        (tuple[int, Address], [1, {"nmae": 1}], "args.x[1].nmae: unknown argument; did you mean 'name'?"),
        (Address | None, {"nmae": 1}, "args.x.nmae: unknown argument; did you mean 'name'?"),
        (Address | Parcel, {"wieght": 1}, "args.x.wieght: unknown argument; did you mean 'weight'?"),
        (
            Parcel,
            {"address": {"colour": 1}},
            "args.x.address.colour: unknown argument; known are name, care_of",
        ),
        (
            Shipment,
            {"parcel": {"wieght": 1}},
            "args.x.parcel.wieght: unknown argument; did you mean 'weight'?",
        ),
        (Shipment, {"note": {"txet": 1}}, "args.x.note.txet: unknown argument; did you mean 'text'?"),
        (Shipment, {"prcel": {}}, "args.x.prcel: unknown argument; did you mean 'parcel'?"),
        (
            Annotated[Letter | Card, Field(discriminator="kind")],
            {"kind": "card", "motiv": "sea"},
            "args.x.motiv: unknown argument; did you mean 'motif'?",
        ),
        (
            Kept,
            {"address": {"nmae": 1}, "more": 1},
            "args.x.address.nmae: unknown argument; did you mean 'name'?",
        ),
    ],
)
async def test_an_unknown_name_is_refused_at_every_depth(kind: Any, value: object, problem: str) -> None:
    """Dropped, it would leave the body with a default that the model did not choose."""
    registry, entered = recording(tool(side_effects={"mutate"}, name="put"), _taking(kind))
    result = await registry.dispatch("put", {"x": value})
    assert result.content.startswith(f"put: invalid arguments. {problem}")
    assert "\n" not in result.content
    assert (result.status, entered) == ("refused", [])


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        (Kept, {"more": {"nmae": 1}}, Kept.model_validate({"more": {"nmae": 1}})),
        (dict[str, Any], {"nmae": {"any": 1}}, {"nmae": {"any": 1}}),
        (dict[str, int], {"nmae": 1}, {"nmae": 1}),
        (Any, {"nmae": 1}, {"nmae": 1}),
        (Address | dict[str, int], {"nmae": 1}, {"nmae": 1}),
    ],
)
async def test_names_that_a_type_allows_are_given_on(kind: Any, value: object, given: object) -> None:
    """A model that keeps extras gets them, and a dict has the keys it has."""
    registry, entered = recording(tool(side_effects=(), name="put"), _taking(kind))
    result = await registry.dispatch("put", {"x": value})
    assert result.status == "completed", result.content
    assert entered == [{"x": given}]


async def test_an_explicit_schema_is_closed_at_every_depth() -> None:
    """Where it lists names and does not say that there are others."""
    part = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "closed": {"anyOf": [{"$ref": "#/$defs/part"}, {"type": "null"}]},
            "many": {"type": "array", "items": part},
            "open": {**part, "additionalProperties": {"type": "integer"}},
            "pattern": {**part, "patternProperties": {"^x-": {}}},
            "free": {"type": "object"},
        },
        "$defs": {"part": part},
    }

    @tool(side_effects=(), schema=schema)
    def put(**asked: Any) -> Any:
        return asked

    registry = Registry([put])
    fine = {"open": {"nmae": 1}, "free": {"nmae": 1}, "pattern": {"x-nmae": 1}, "closed": {"name": "a"}}
    assert (await registry.dispatch("put", fine)).value == fine
    bad = {"closed": {"nmae": 1}, "many": [{"nmae": 1}]}
    assert (await registry.dispatch("put", bad)).content.splitlines() == [
        "put: invalid arguments. args.closed.nmae: unknown argument; did you mean 'name'?",
        "args.many[0].nmae: unknown argument; did you mean 'name'?",
    ]
    assert put.schema["$defs"]["part"]["additionalProperties"] is False


async def test_an_explicit_schema_of_several_parts_is_taken_at_its_word() -> None:
    """Each part lists only some of the names."""
    schema = {
        "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {"a": {"properties": {"one": {}}}, "b": {"properties": {"two": {"type": "integer"}}}},
    }

    @tool(side_effects=(), schema=schema)
    def put(**asked: Any) -> Any:
        return asked

    registry = Registry([put])
    assert (await registry.dispatch("put", {"one": 1, "two": 2})).value == {"one": 1, "two": 2}
    assert "args.three: unknown argument" in (await registry.dispatch("put", {"three": 3})).content


async def test_what_a_schema_cannot_say_is_said_by_the_type() -> None:
    """Beside what the schema says."""

    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def check(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    registry, entered = recording(tool(side_effects=(), name="put"), _taking(list[Even]))
    result = await registry.dispatch("put", {"x": [{"number": 1}, {"number": "2"}]})
    assert result.content.splitlines() == [
        'put: invalid arguments. args.x[1].number: "2" is not of type "integer"',
        "args.x[0].number: Value error, odd",
    ]
    assert entered == []


async def test_a_value_without_end_is_not_quoted_whole() -> None:
    """A model that gave ten megabytes knows them."""
    registry, _ = recording(tool(side_effects=(), name="put"), _taking(int))
    result = await registry.dispatch("put", {"x": "y" * 1_000_000})
    assert len(result.content) < 1000


async def test_the_members_of_a_union_are_not_in_the_path() -> None:
    """The model knows its arguments, not how they are checked."""
    registry, _ = recording(tool(side_effects=(), name="put"), _taking(list[int] | dict[str, Item]))
    result = await registry.dispatch("put", {"x": {"a": {"name": 1}}})
    assert result.content == 'put: invalid arguments. args.x.a.name: 1 is not of type "string"'
    result = await registry.dispatch("put", {"x": 1})
    assert result.content == 'put: invalid arguments. args.x: 1 is not of type "array" or "object"'


async def test_an_alias_is_the_name_of_the_argument() -> None:
    """For names that Python does not allow."""
    entered: list[str] = []

    @tool(side_effects=())
    def fetch(source: Annotated[str, Field(alias="from")]) -> None:
        entered.append(source)

    registry = Registry([fetch])
    await registry.dispatch("fetch", {"from": "here"})
    refused = await registry.dispatch("fetch", {"form": "here"})
    assert entered == ["here"]
    assert "args.form: unknown argument; did you mean 'from'?" in refused.content


async def test_a_missing_argument_may_be_left_to_its_default() -> None:
    """Also one that is given as JSON text without anything in it."""
    entered: list[Any] = []
    registry = Registry([tool(side_effects=(), name="put")(lambda x=3: entered.append(x))])
    nothing: list[Any] = [{}, "", "{}", " "]
    for args in nothing:
        await registry.dispatch("put", args)
        await registry.dispatch("put", {"x": 4})
    assert entered == [3, 4] * 4


def _taking(kind: Any) -> Callable[..., None]:
    def put(x: Any) -> None: ...

    put.__annotations__["x"] = kind
    return put


def test_the_types_are_kept() -> None:
    """For type checkers: a tool is called like its function, and a result is a result."""

    @tool(side_effects=())
    def calc(expression: str) -> int:
        return len(expression)

    declared: Tool[[str], int] = calc
    number: int = declared("12")
    assert number == 2
    assert Result(call_id="c", name="n", content="").is_error is False
