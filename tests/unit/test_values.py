"""User state: faithful where the type is known, marked where it is not, never pickled."""

import dataclasses
import datetime
import enum
import math
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.values import Values
from holdfast.errors import BadInput
from holdfast.limits import REPR_CHARS, STATE_DEPTH_MAX
from holdfast.records import Codec, Opaque

VALUES = Values()


def stored(value: object) -> Any:
    """The value as another process loads it."""
    return VALUES.decode(VALUES.encode(value))


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types all the way down; NaN is NaN, and zero has a sign."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(j, k) and same(v, w) for (j, v), (k, w) in zip(a.items(), b.items(), strict=True)
        )
    return bool(a == b)


any_text = st.text(st.characters(exclude_categories=[]))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    any_text,
    st.binary(),
    st.complex_numbers(),
    st.datetimes(timezones=st.none() | st.just(datetime.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
hashable = st.recursive(
    scalars.filter(lambda value: value == value),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(any_text, inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=3),
        st.dictionaries(st.sampled_from(["$holdfast", "a"]), inner, max_size=2),
        st.tuples(inner, inner),
        st.sets(hashable, max_size=3),
    ),
    max_leaves=12,
)


@given(anything)
def test_every_value_of_a_known_type_comes_back_as_it_was(value: Any) -> None:
    """JSON-like values, and those that JSON has no word for: bytes, dates, sets, tuples, odd keys."""
    found = stored(value)
    assert same(found, value), found


@given(anything)
def test_the_stored_form_is_json_without_surprises(value: Any) -> None:
    """Any JSON reader can read it, in one line."""
    data = VALUES.encode(value)
    assert b"\n" not in data
    data.decode("utf-8")
    assert msgspec.json.encode(msgspec.json.decode(data)) == data


def test_json_like_values_are_stored_as_themselves() -> None:
    """Who looks into the database sees what was set."""
    assert VALUES.encode({"cart": [1, 2.5, "x", None, True]}) == b'{"cart":[1,2.5,"x",null,true]}'


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.5


@dataclasses.dataclass
class Drawing:
    name: str
    points: list[Point]
    colour: Colour
    at: datetime.datetime
    raw: bytes = b""
    made: int = dataclasses.field(default=3, init=False)


class Item(pydantic.BaseModel):
    sku: str
    price: Decimal


class Cart(pydantic.BaseModel):
    owner_id: int = pydantic.Field(alias="ownerId")
    items: list[Item]
    colour: Colour = Colour.RED


class Inner(msgspec.Struct, tag=True):
    value: int


class Other(msgspec.Struct, tag=True):
    value: int


class Outer(msgspec.Struct, rename="camel"):
    inner_value: Inner
    seen_at: datetime.datetime
    tags: frozenset[str] = frozenset()
    colour: Colour = Colour.BLUE


class Pair(msgspec.Struct, array_like=True, tag="pair"):
    left: int
    right: str


NOW = datetime.datetime(2026, 11, 15, 19, 29, 38, 5, datetime.UTC)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Point(1), Point),
        (Drawing("d", [Point(1), Point(2, 0.25)], Colour.BLUE, NOW, b"\0\xff"), Drawing),
        (Cart(ownerId=7, items=[Item(sku="a", price=Decimal("1.10"))], colour=Colour.BLUE), Cart),
        (Inner(3), Inner),
        (Outer(Inner(1), NOW, frozenset({"x"})), Outer),
        (Pair(1, "x"), Pair),
        (Other(4), Inner | Other),
        ([Inner(1), Inner(2)], list[Inner]),
        ({"a": Point(1)}, dict[str, Point]),
        ({Point(1), Point(2)}, set[Point]),
        ((Point(1), Item(sku="a", price=Decimal(2))), tuple[Point, Item]),
        (Colour.RED, Colour),
        (Level.LOW, Level),
        (Rights.READ | Rights.WRITE, Rights),
        ([Colour.RED, Colour.BLUE], list[Colour]),
        (Point(1), Point | None),
        (None, Point | None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_value_comes_back_in_the_type_that_is_asked_for(value: object, wanted: Any) -> None:
    """Dataclasses, pydantic models, msgspec structs and enums, also inside one another."""
    found = VALUES.decode(VALUES.encode(value), wanted)
    assert found == value
    assert type(found) is type(value)


def test_without_a_type_a_record_is_a_plain_dict_and_an_enum_its_value() -> None:
    """Loading needs none of the application's classes."""
    assert stored(Drawing("d", [Point(1)], Colour.BLUE, NOW)) == {
        "name": "d",
        "points": [{"x": 1, "y": 0.5}],
        "colour": "blue",
        "at": NOW,
        "raw": b"",
        "made": 3,
    }


def test_the_stored_record_says_which_type_it_was() -> None:
    """For people who look into the store."""
    assert f'"{__name__}.Point"'.encode() in VALUES.encode(Point(1))
    assert b'"RED"' in VALUES.encode(Colour.RED)


def test_records_that_cannot_be_hashed_without_their_type_still_load() -> None:
    """A set or dict of them loads as its items."""
    assert stored({Point(1)}) == [{"x": 1, "y": 0.5}]
    assert stored({Point(1): "here"}) == [({"x": 1, "y": 0.5}, "here")]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"x": "no number"}, Point),
        ("green", Colour),
        ({"value": "x"}, Inner),
        (object(), Item),
        ("x", list[int]),
        (object(), type("Lock", (), {})),
    ],
)
def test_a_value_that_does_not_fit_the_type_is_an_error_of_ours(value: object, wanted: Any) -> None:
    """It says which type was wanted."""
    with pytest.raises(BadInput, match="the stored value is not a"):
        VALUES.decode(VALUES.encode(value), wanted)


class Stranger:
    def __repr__(self) -> str:
        return "<stranger>"


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Chatty:
    def __repr__(self) -> str:
        return "\ud800" + "x" * 10_000


class Slippery:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class RaisingModel(pydantic.BaseModel):
    x: int

    @pydantic.model_serializer
    def fail(self) -> dict[str, int]:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("make", "type_name"),
    [
        (Stranger, f"{__name__}.Stranger"),
        (Mute, f"{__name__}.Mute"),
        (Chatty, f"{__name__}.Chatty"),
        (Slippery, f"{__name__}.Slippery"),
        (lambda: RaisingModel(x=1), f"{__name__}.RaisingModel"),
        (lambda: Stranger, "builtins.type"),
        (lambda: Point, "builtins.type"),
        (lambda: print, "builtins.builtin_function_or_method"),
        (lambda: stored, "builtins.function"),
        (lambda: iter([1]), "builtins.list_iterator"),
        (lambda: sys, "builtins.module"),
    ],
)
def test_what_cannot_be_encoded_is_marked_in_its_place(make: Callable[[], object], type_name: str) -> None:
    """Everything around it is kept; it loads as a type and a repr, and the save does not fail."""
    found = stored({"before": 1, "here": [make()], "after": 2})
    opaque = found["here"][0]
    assert isinstance(opaque, Opaque)
    assert opaque.type == type_name
    assert len(opaque.repr) <= REPR_CHARS + 10
    assert (found["before"], found["after"]) == (1, 2)


def test_what_cannot_be_encoded_is_marked_inside_every_kind_of_value() -> None:
    """Also in sets, as a key, and in the fields of records."""
    mark = Opaque(f"{__name__}.Stranger", "<stranger>")
    assert stored((Stranger(),)) == (mark,)
    assert stored({Stranger()}) == {mark}
    assert stored({Stranger(): 1}) == {mark: 1}
    assert stored(Point(Stranger())) == {"x": mark, "y": 0.5}  # type: ignore[arg-type]
    assert stored(Inner(Stranger())) == {"type": "Inner", "value": mark}  # type: ignore[arg-type]


def test_two_strangers_that_look_alike_stay_two() -> None:
    """A dict that would lose one of them loads as its items."""
    mark = Opaque(f"{__name__}.Stranger", "<stranger>")
    assert stored({Stranger(): 1, Stranger(): 2}) == [(mark, 1), (mark, 2)]


def test_a_loaded_opaque_value_can_be_saved_again() -> None:
    """It stays what it was, and does not become opaque once more."""
    once = stored(Stranger())
    assert VALUES.decode(VALUES.encode(once), Opaque) == once


def make_list_cycle() -> object:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    return cycle


def make_tree_with_parents() -> object:
    """Each child knows its parent: without looking for cycles, the copies would fill every disk."""
    parent: dict[str, Any] = {"children": []}
    for name in range(50):
        parent["children"].append({"name": name, "parent": parent})
    return parent


def make_dataclass_cycle() -> object:
    node = Drawing("loop", [], Colour.RED, NOW)
    node.points.append(node)  # type: ignore[arg-type]
    return node


@pytest.mark.parametrize("make", [make_list_cycle, make_tree_with_parents, make_dataclass_cycle])
def test_a_value_that_holds_itself_is_saved_up_to_there(make: Callable[[], object]) -> None:
    """Where it comes back to itself there is a mark."""
    assert b"opaque" in VALUES.encode(make())


def test_a_value_that_appears_twice_is_no_cycle() -> None:
    """Both places keep it."""
    shared = [1, 2]
    assert stored({"a": shared, "b": [shared, shared]}) == {"a": [1, 2], "b": [[1, 2], [1, 2]]}


@pytest.mark.parametrize("depth", [STATE_DEPTH_MAX, STATE_DEPTH_MAX + 1, 100_000])
def test_deep_nesting_ends_in_a_mark_instead_of_an_error(depth: int) -> None:
    """However deep it is, saving and loading work."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    found, levels = stored(value), 0
    while isinstance(found, list) and found:
        found, levels = found[0], levels + 1
    assert levels >= min(depth, STATE_DEPTH_MAX)
    assert found == [] if depth <= STATE_DEPTH_MAX else isinstance(found, Opaque)


class Money:
    def __init__(self, amount: str) -> None:
        self.amount = amount


MONEY = Codec(type=Money, encode=lambda money: money.amount, decode=Money, name="money")


def test_a_codec_writes_and_reads_its_type() -> None:
    """Wherever in a value it appears."""
    values = Values([MONEY])
    found = values.decode(values.encode({"due": [Money("3.50")]}))
    assert isinstance(found["due"][0], Money)
    assert found["due"][0].amount == "3.50"


def test_a_codec_may_use_what_values_can_hold() -> None:
    """What it gives is encoded in turn, bytes and all."""
    codec = Codec(type=Stranger, encode=lambda _: (b"\0", {1}), decode=lambda data: ("back", data))
    values = Values([codec])
    assert values.decode(values.encode(Stranger())) == ("back", (b"\0", {1}))


def test_a_codec_of_a_built_in_type_wins() -> None:
    """The application knows better."""
    values = Values([Codec(type=bytes, encode=lambda data: data.hex(), decode=bytes.fromhex, name="hex")])
    assert values.encode(b"\xff") == b'{"$holdfast":["hex","ff"]}'
    assert values.decode(values.encode([b"\xff"])) == [b"\xff"]


def test_a_codec_that_fails_leaves_a_mark() -> None:
    """The save goes on."""

    def fail(value: object) -> object:
        raise RuntimeError("no")

    values = Values([Codec(type=Stranger, encode=fail, decode=fail)])
    assert values.decode(values.encode([Stranger(), 1])) == [Opaque(f"{__name__}.Stranger", "<stranger>"), 1]


def test_without_its_codec_a_value_loads_as_a_mark() -> None:
    """A process that lacks the codec can still load everything else."""
    data = Values([MONEY]).encode({"due": Money("3.50"), "to": "you"})
    assert VALUES.decode(data) == {"due": Opaque("money", '"3.50"'), "to": "you"}


@pytest.mark.parametrize("name", ["money", "bytes", "set", "record", "opaque"])
def test_a_codec_cannot_have_a_name_that_is_taken(name: str) -> None:
    """By another codec, or by one of the marks of our own."""
    codecs = [MONEY, Codec(type=Stranger, encode=str, decode=str, name=name)]
    with pytest.raises(BadInput, match="already"):
        Values(codecs)


def test_nothing_is_ever_unpickled_or_imported() -> None:
    """Loading a value of a type that could do harm makes neither the type nor an import of its module."""
    evil = b'{"$holdfast":["record","os.system",{"command":"true"}]}'
    assert VALUES.decode(evil) == {"command": "true"}
    assert VALUES.decode(b'{"$holdfast":["pickle","gASV"]}') == Opaque("pickle", '"gASV"')
    assert VALUES.decode(b'{"$holdfast":["builtins.eval","1+1"]}') == Opaque("builtins.eval", '"1+1"')
    assert pickle.dumps(Point(1))[:2] not in VALUES.encode(Point(1))


def test_loading_imports_nothing() -> None:
    """A stored type's module is not looked for, and no pickle is near."""
    program = (
        "import sys; from holdfast.core.values import Values\n"
        "before = set(sys.modules)\n"
        """print(Values().decode(b'{"$holdfast":["record","antigravity.Fly",{"up":1}]}'))\n"""
        "assert set(sys.modules) == before and 'antigravity' not in sys.modules\n"
        "values = sys.modules['holdfast.core.values']\n"
        "assert 'pickle' not in vars(values)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "{'up': 1}\n", done.stderr


def test_uuids_are_not_strings() -> None:
    """A value of a listed type is not mistaken for how it is written."""
    id = uuid.uuid4()
    assert stored([id, str(id)]) == [id, str(id)]
