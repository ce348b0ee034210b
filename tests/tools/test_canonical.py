"""Canonical arguments: equal meanings are one operation, different ones never."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import PlainSerializer

from holdfast import tool
from holdfast.tools.canonical import NotCanonical, canonical, digest, fingerprint, normalise

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**53, max_value=2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values mean the same: the oracle. Numbers by their value, `true` is no number."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


def of(value: Any) -> str:
    """What stands for the value."""
    return fingerprint("tool", normalise(value))


@given(values, values)
def test_two_values_are_one_operation_if_and_only_if_they_mean_the_same(a: Any, b: Any) -> None:
    """Over everything that JSON can say."""
    assert (of(a) == of(b)) == same(a, b)


def respell(value: Any, draw: Callable[[Any], Any]) -> Any:
    """The same value, written otherwise."""
    if isinstance(value, dict):
        shuffled = draw(st.permutations(list(value.items())))
        return {key: respell(item, draw) for key, item in shuffled}
    if isinstance(value, list):
        return (list if draw(st.booleans()) else tuple)(respell(item, draw) for item in value)
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and float(value) == value
        and draw(st.booleans())
    ):
        return float(value)
    return value


@given(values, st.data())
def test_another_spelling_is_the_same_operation(value: Any, data: st.DataObject) -> None:
    """Keys in another order, whole numbers with a point, at any depth."""
    other = respell(value, data.draw)
    assert of(other) == of(value)
    assert normalise(other) == normalise(value)


@given(values)
def test_normalising_changes_no_meaning_and_is_done_once(value: Any) -> None:
    """And survives being written as JSON and read again."""
    once = normalise(value)
    assert same(once, value)
    assert canonical(normalise(once)) == canonical(once)
    assert canonical(normalise(json.loads(canonical(once)))) == canonical(once)


@given(values, values)
def test_a_change_deep_inside_is_another_operation(outer: Any, inner: Any) -> None:
    """Nesting hides nothing."""
    a, b = {"a": [outer, {"b": inner}]}, {"a": [outer, {"b": [inner]}]}
    assert of(a) != of(b)
    assert of({"a": outer}) != of({"b": outer})


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (0, False),
        (1.0, True),
        (0, None),
        ("", None),
        ("1", 1),
        ([], {}),
        ([], None),
        ([1], 1),
        (2**53, 2**53 + 1),
        (2**64, 2**64 + 1),
        (1e16 + 2, 10**16 + 1),
        (0.1, 0.1 + 2**-56),
        ("é", unicodedata.normalize("NFD", "é")),
        ("ﬁ", "fi"),
        ("a", "A"),
        (" a", "a"),
        ({"a": 1, "b": None}, {"a": 1}),
        ({"a": {"b": 1}}, {"a.b": 1}),
        (["a", "b"], ["b", "a"]),
    ],
)
def test_these_are_not_the_same(a: Any, b: Any) -> None:
    """Where other libraries have been fooled."""
    assert of({"x": a}) != of({"x": b})


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (-0.0, 0),
        (1e22, 10**22),
        (2.0**60, 2**60),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ((1,), [1]),
    ],
)
def test_these_are_the_same(a: Any, b: Any) -> None:
    """A float equal to an integer is that integer, also beyond 2^53."""
    assert of({"x": a}) == of({"x": b})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "\ud800", {"\udc00": 1}, b"x", {1: 2}, {1}])
def test_what_json_cannot_hold_has_no_canonical_form(value: Any) -> None:
    """It is refused, and the path says where it is."""
    with pytest.raises(NotCanonical, match=r"^args\.x\[1\]"):
        normalise({"x": [0, value]})


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_lists_of_parts_never_run_together(a: list[str], b: list[str]) -> None:
    """`ab`, `c` is not `a`, `bc`: a key that mixes them up would be somebody else's."""
    assert (digest(*a) == digest(*b)) == (a == b)


def test_the_tool_is_part_of_the_operation() -> None:
    """Equal arguments of two tools have nothing in common."""
    assert fingerprint("a", {"x": 1}) != fingerprint("b", {"x": 1})


def test_defaults_and_coercion_come_first() -> None:
    """Given or left out, a default is the same call; so is a date, however many digits its seconds have."""

    @tool(side_effects={"mutate"})
    async def book(at: datetime, seats: int = 1) -> None:
        """Book it."""

    spellings: list[dict[str, Any]] = [
        {"at": "2026-01-02T03:04:05Z"},
        {"at": "2026-01-02T03:04:05.000000+00:00", "seats": 1},
        {"seats": 1.0, "at": "2026-01-02T03:04:05Z"},
    ]
    for args in spellings:
        assert book.arguments.check(args)[1] == {"at": "2026-01-02T03:04:05Z", "seats": 1}


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (int, 5.0, 5),
        (float, 5.0, 5),
        (str | None, "é", "é"),
        (list[str], ["b", "a"], ["b", "a"]),
        (tuple[int, ...], [2, 1], [2, 1]),
        (set[str], ["b", "a"], ["a", "b"]),
        (dict[str, float], {"a": 1.0}, {"a": 1}),
        (Annotated[str, PlainSerializer(str.upper)], "a", "A"),
    ],
)
def test_the_canonical_form_is_plain_json(kind: Any, given: object, expected: object) -> None:
    """Whatever Python makes of it for the body, and whatever the body does with that."""

    def put(x: Any) -> None:
        """Put it."""

    put.__annotations__["x"] = kind
    values, args = tool(side_effects=())(put).arguments.check({"x": given})
    if isinstance(values["x"], list | dict | set):
        values["x"].clear()
    assert args == {"x": expected}
    assert type(args["x"]) is type(expected)


PRINT_A_SET = """
from pydantic import BaseModel
from holdfast import tool
from holdfast.tools.canonical import fingerprint

class Inner(BaseModel):
    tags: set[str]

@tool(side_effects={"mutate"})
def tag(names: set[str], deep: dict[str, list[Inner]]) -> None: ...

args = {"names": ["x", "y", "zz", "q", "w"], "deep": {"k": [{"tags": ["c", "b", "a", "d"]}]}}
print(fingerprint("tag", tag.arguments.check(args)[1]))
"""


def test_a_set_is_the_same_in_every_process() -> None:
    """Python shuffles sets anew each time it starts; an operation must not forget itself over that."""
    source = str(Path(__file__).parents[2] / "src")
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINT_A_SET],
            env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in range(1, 5)
    }
    assert len(found) == 1
