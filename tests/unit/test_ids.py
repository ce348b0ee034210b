"""Ids: one safe alphabet, and foreign ones made to fit."""

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from holdfast.errors import BadId, BadInput
from holdfast.ids import (
    check_labels,
    check_name,
    fresh_run_id,
    fresh_uid,
    label_of_original,
    run_id,
    session_id,
)
from holdfast.records import fit_session_id, unfit_session_id

GOOD = ["a", "A-b_c.9", "x" * 200, "-", "_", "...", "..a", "a..b", ".hidden", "0"]
BAD: list[tuple[object, str]] = [
    ("", "must not be empty"),
    (".", "would name a directory"),
    ("..", "would name a directory"),
    ("x" * 201, "has 201 characters; 200 are allowed"),
    ("a/b", r"holds '/' \(U\+002F\)"),
    ("/abs", "holds '/'"),
    ("../up", "holds '/'"),
    ("a\\b", r"U\+005C"),
    ("a\0b", r"U\+0000"),
    ("a\n", r"U\+000A"),
    (" a", r"U\+0020"),
    ("a:b", "holds ':'"),
    ("~uid", "holds '~'"),
    ("a%2fb", "holds '%'"),
    ("\u0430dmin", r"U\+0430"),  # a Cyrillic letter
    ("admin\u0131", r"U\+0131"),
    ("ﬁle", r"U\+FB01"),
    ("\uff41", r"U\+FF41"),  # a full-width letter
    ("a\u2024b", r"U\+2024"),  # a one dot leader
    ("a\uff0eb", r"U\+FF0E"),  # a full-width full stop
    ("a\u2215b", r"U\+2215"),  # a division slash
    ("a\u2010b", r"U\+2010"),  # a hyphen that is not ours
    ("é", r"U\+00E9"),
    ("e\u0301", r"U\+0301"),
    ("a\u200b", r"U\+200B"),  # a zero-width space
    ("\u202ea", r"U\+202E"),  # a right-to-left override
    ("\uff11", r"U\+FF11"),  # a full-width digit
    ("٣", r"U\+0663"),  # an Arabic-Indic digit
    ("\ud800", r"U\+D800"),
    (None, "not NoneType"),
    (7, "not int"),
    (b"a", "not bytes"),
]


@pytest.mark.parametrize("value", GOOD)
def test_an_id_of_the_alphabet_is_taken_as_it_is(value: str) -> None:
    """Letters, digits, and `_`, `.`, `-`; up to 200 of them."""
    assert session_id(value) == value
    assert run_id(value) == value


@pytest.mark.parametrize(("value", "why"), BAD, ids=lambda value: ascii(value)[:20])
def test_any_other_id_is_refused_with_the_reason(value: object, why: str) -> None:
    """Nothing that could leave its directory, clash with another or look like another gets in."""
    with pytest.raises(BadId, match=f"session id .*{why}") as caught:
        session_id(value)
    assert caught.value.what == "session id"
    with pytest.raises(BadId, match=f"run id .*{why}"):
        run_id(value)


@given(st.text())
def test_an_id_is_one_component_of_a_path(value: str) -> None:
    """Whatever passes the check cannot be told to go elsewhere."""
    try:
        session_id(value)
    except BadId:
        return
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", value, re.ASCII)
    assert value not in (".", "..")


foreign_ids = st.text(st.characters(exclude_categories=[]), max_size=24) | st.text(
    "ab.:/-_~0123456789abcdef", max_size=30
)


@given(foreign_ids)
@example("user:42")
@example("someone@example.org")
@example(".3a.")
@example("a.3a.b:c")
@example("..")
@example(".")
@example("\U0010ffff.10ffff.")
@example("x.ffffff.y")
def test_any_foreign_id_fits_and_is_found_again(foreign: str) -> None:
    """Adapters accept any id of their framework, and give it back."""
    fitted = fit_session_id(foreign)
    assert session_id(fitted) == fitted
    if foreign and len(fitted) < 200 and not fitted.startswith("sha256-"):
        assert unfit_session_id(fitted) == foreign


@given(foreign_ids, foreign_ids)
@example("a:b", "a.3a.b")
@example("", ".")
def test_two_foreign_ids_never_become_one(one: str, two: str) -> None:
    """Otherwise two users of a framework would share a session."""
    assume(one != two)
    assert fit_session_id(one) != fit_session_id(two)


def test_an_id_that_fits_stays_readable() -> None:
    """Only what does not fit is escaped."""
    assert fit_session_id("order-42.v1") == "order-42.v1"
    assert fit_session_id("user:42") == "user.3a.42"


@pytest.mark.parametrize("foreign", ["", "x" * 201, "/" * 60, "\ud800" * 100])
def test_a_foreign_id_that_is_too_long_becomes_a_digest(foreign: str) -> None:
    """It still fits, and is always the same one."""
    fitted = fit_session_id(foreign)
    assert re.fullmatch(r"sha256-[0-9a-f]{64}", fitted)
    assert fit_session_id(foreign) == fitted
    assert fit_session_id(foreign + "x") != fitted


def test_a_foreign_id_that_looks_like_a_digest_is_none() -> None:
    """Otherwise a caller could name the session of another one's long id."""
    digest = fit_session_id("x" * 300)
    fitted = fit_session_id(digest)
    assert fitted != digest
    assert unfit_session_id(fitted) == digest


@pytest.mark.parametrize(
    ("foreign", "label"),
    [
        ("user:42", "user:42"),
        ("x" * 1500, "x" * 1500),
        ("a\nb\x1b\u202e\ud800", "a\\nb\\x1b\\u202e\\ud800"),
        ("Müller" * 100, "Müller" * 100),
    ],
)
def test_a_label_keeps_the_original_of_a_foreign_id(foreign: str, label: str) -> None:
    """As it is, but for what cannot be printed."""
    assert label_of_original(foreign) == label
    assert check_labels({"session": label}) == {"session": label}


@pytest.mark.parametrize("foreign", ["x" * 100_000, "\U0001f600" * 2000, '"' * 1500, "\x00" * 1500])
def test_a_label_has_room_for_two_thousand_bytes(foreign: str) -> None:
    """As much as every driver's index takes; the rest is cut, visibly."""
    label = label_of_original(foreign)
    assert "…" in label
    assert label != label_of_original(foreign + "y")
    assert len(label) > 300
    assert check_labels({"session": label}) == {"session": label}


@pytest.mark.parametrize("id", ["v.123456.x", ".ffffff.", "plain", "a.b.c"])
def test_an_id_that_was_never_escaped_is_left_alone(id: str) -> None:
    """A listing of all sessions may contain any id."""
    assert unfit_session_id(id) == id


def test_a_fresh_run_id_names_its_agent() -> None:
    """`{agent}-{8 hex}`; without a name that fits, a UUID."""
    assert re.fullmatch(r"planner-[0-9a-f]{8}", fresh_run_id("planner"))
    for agent in (None, "", "a b", "x" * 181, "é"):
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", fresh_run_id(agent))
    assert fresh_run_id("planner") != fresh_run_id("planner")
    assert run_id(fresh_run_id("x" * 180))


def test_uids_do_not_repeat() -> None:
    """They tell a session from one that was made anew under its id."""
    assert len({fresh_uid() for _ in range(1000)}) == 1000


@pytest.mark.parametrize("name", ["", "x" * 201, 3, None])
def test_a_name_is_text_of_some_length(name: object) -> None:
    """State keys and shared resources: any text, but not endless."""
    assert check_name("state key", "repo/main.py ☃") == "repo/main.py ☃"
    with pytest.raises(BadInput, match="a state key is text of 1 to 200"):
        check_name("state key", name)


@pytest.mark.parametrize(
    "labels",
    [{"": "x"}, {"a": ""}, {"a": 3}, {"a": "x\n"}, {"a\0": "x"}, {"a": "x" * 2000}, {"a" * 201: "x"}],
)
def test_labels_are_short_printable_text(labels: dict[str, object]) -> None:
    """They are shown in one line."""
    assert check_labels({"tenant": "Müller & Söhne"}) == {"tenant": "Müller & Söhne"}
    with pytest.raises(BadInput, match=r"printable text|up to 200 characters, and a value up to 2000 bytes"):
        check_labels(labels)
