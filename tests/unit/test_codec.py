"""Entries as lines, and the chain over them."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Budget
from holdfast.core.codec import GENESIS, Chain, Sealed, encode_body, erase, open_line, parse, seal, sum_of
from holdfast.core.entries import (
    AdapterBody,
    Body,
    BudgetChanged,
    MessageAdded,
    ModelReplied,
    PlanChanged,
    SessionOpened,
    StateSet,
    SummaryChanged,
    UnknownBody,
)
from holdfast.errors import BadInput, Corrupt, NewerFormat
from holdfast.records import Plan, PlanStep, Usage
from tests.unit import lines_by_hand

AT = datetime(2026, 11, 15, 19, 29, 38, 123456, tzinfo=UTC)


def write_journal(*entries: tuple[Body, bytes | None]) -> list[Sealed]:
    """Entries as a chain, from the first on."""
    sealed: list[Sealed] = []
    for seq, (body, content) in enumerate(entries, start=1):
        after = sealed[-1].sum if sealed else GENESIS
        sealed.append(seal(body, seq, AT + timedelta(seconds=seq), "run-1", 1, after, content))
    return sealed


def five_lines() -> list[bytes]:
    """A journal in which each line says something else."""
    return [
        one.line
        for one in write_journal(
            (SessionOpened(uid="u"), None),
            (MessageAdded(role="user"), b'{"role":"user","blocks":[{"kind":"text","text":"one"}]}'),
            (StateSet(key="colour"), b'"red"'),
            (MessageAdded(role="user"), b'{"role":"user","blocks":[{"kind":"text","text":"two"}]}'),
            (SummaryChanged(summary="so far"), None),
        )
    ]


def check_all(lines: Sequence[bytes]) -> None:
    """Read the whole chain."""
    chain = Chain("the test")
    for line in lines:
        chain.check(line)


texts = st.text(st.characters(exclude_categories=["Cs"]))
contents = st.none() | st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
).map(msgspec.json.encode)
moments = st.datetimes(timezones=st.just(UTC))
bodies = st.one_of(
    st.builds(SummaryChanged, summary=texts),
    st.builds(StateSet, key=texts),
    st.builds(PlanChanged, plan=st.builds(Plan, goal=texts)),
    st.builds(
        ModelReplied, usage=st.builds(Usage, input_tokens=st.integers(0, 10**9)), cost_usd=st.just(0.1)
    ),
)


@given(bodies, contents, moments, st.none() | st.just("agent-1b2c3d4e"), st.integers(0, 10**6))
def test_an_entry_comes_back_from_its_line_as_it_was(
    body: Body, content: bytes | None, at: datetime, run: str | None, step: int
) -> None:
    """Envelope, body and content survive, and the line's own sum is the one that follows."""
    sealed = seal(body, 7, at, run, step, "before", content)
    line = parse(sealed.line, "here")
    entry = open_line(line, "here")
    assert entry == sealed.entry
    assert (entry.body, entry.run, entry.step, entry.seq, entry.at) == (body, run, step, 7, at)
    assert (None if entry.content is None else bytes(entry.content)) == content
    assert sum_of(line, "before", "here") == line.sum == sealed.sum
    assert sealed.line.count(b"\n") == 0


def test_the_sum_is_the_one_that_the_format_describes() -> None:
    """With the description of the format, a journal can be checked without this code."""
    first, sum = lines_by_hand.line(1, "session.opened", {"uid": "u"}, after="")
    second, _ = lines_by_hand.line(
        2, "message.added", {"role": "user"}, after=sum, content={"role": "user", "blocks": []}, run="a-1"
    )
    check_all([first, second])


def test_a_line_is_json_that_says_what_it_is() -> None:
    """People with `less` and `jq` find the words of the documentation in it."""
    line = json.loads(five_lines()[1])
    assert line["v"] == 1
    assert line["seq"] == 2
    assert line["at"] == "2026-11-15T19:29:40.123456Z"
    assert line["run"] == "run-1"
    assert line["kind"] == "message.added"
    assert line["body"] == {"role": "user"}
    assert line["content"]["blocks"][0]["text"] == "one"


def test_times_sort_as_text() -> None:
    """A full second has six digits, too: listings compare the text."""
    whole = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    stamps = [
        json.loads(seal(SummaryChanged(summary=""), 1, at, None, 0, GENESIS).line)["at"]
        for at in (whole, whole + timedelta(microseconds=1), whole + timedelta(seconds=1))
    ]
    assert stamps == sorted(stamps)
    assert len({len(stamp) for stamp in stamps}) == 1


def edit_body(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[4].replace(b"so far", b"so fat")]


def edit_content(lines: list[bytes]) -> list[bytes]:
    return [*lines[:1], lines[1].replace(b"one", b"uno"), *lines[2:]]


def edit_time(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b"T19:29:41", b"T19:29:42"), *lines[3:]]


def edit_run(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b"run-1", b"run-2"), *lines[3:]]


def edit_kind(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b"state.set", b"state.unset"), *lines[3:]]


def remove_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], *lines[3:]]


def remove_first(lines: list[bytes]) -> list[bytes]:
    return lines[1:]


def swap_lines(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[3], lines[2], lines[1], lines[4]]


def swap_contents(lines: list[bytes]) -> list[bytes]:
    """Each line keeps its number, but says what the other said."""
    one, two = lines[1], lines[3]
    return [lines[0], one.replace(b"one", b"two"), lines[2], two.replace(b"two", b"one"), lines[4]]


def remove_and_renumber(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[3].replace(b'"seq":4', b'"seq":3'), lines[4].replace(b'"seq":5', b'"seq":4')]


def repeat_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], lines[2], *lines[3:]]


def tear_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[4][:-20]]


def erase_with_another_digest(lines: list[bytes]) -> list[bytes]:
    erased = json.loads(erase(lines[1], "here"))
    erased["erased"] = json.loads(erase(lines[3], "here"))["erased"]
    return [lines[0], lines_by_hand.compact(erased), *lines[2:]]


def spoil_salt(lines: list[bytes]) -> list[bytes]:
    line = json.loads(lines[1])
    line["salt"] = "é"
    return [lines[0], lines_by_hand.compact(line), *lines[2:]]


@pytest.mark.parametrize(
    "damage",
    [
        edit_body,
        edit_content,
        edit_time,
        edit_run,
        edit_kind,
        remove_line,
        remove_first,
        swap_lines,
        swap_contents,
        remove_and_renumber,
        repeat_line,
        tear_line,
        erase_with_another_digest,
        spoil_salt,
    ],
)
def test_the_chain_finds_what_was_done_to_a_journal(damage: Callable[[list[bytes]], list[bytes]]) -> None:
    """Lines that were edited, removed, repeated, torn or put in another order are not read as if nothing
    had happened."""
    lines = five_lines()
    check_all(lines)
    damaged = damage(list(lines))
    assert damaged != lines
    with pytest.raises(Corrupt, match="the test"):
        check_all(damaged)


def test_the_chain_accepts_nothing_of_a_damaged_line() -> None:
    """After the error it stands where it stood, so the line number it names is the first bad one."""
    lines = five_lines()
    chain = Chain("here")
    chain.check(lines[0])
    before = chain.seq, chain.sum
    with pytest.raises(Corrupt) as caught:
        chain.check(edit_content(lines)[1])
    assert caught.value.seq == 2
    assert (chain.seq, chain.sum) == before
    chain.check(lines[1])


def test_an_erased_line_keeps_the_chain() -> None:
    """What was said is gone, its digest stays, and no line after it is doubted."""
    lines = five_lines()
    erased = erase(lines[1], "here")
    assert b"one" not in erased
    assert b'"salt"' not in erased
    check_all([lines[0], erased, *lines[2:]])
    entry = open_line(parse(erased, "here"), "here")
    assert entry.erased
    assert entry.content is None
    assert entry.body == MessageAdded(role="user")


def test_erasing_twice_or_where_nothing_was_said_changes_nothing() -> None:
    """So that cleaning a session again is harmless."""
    lines = five_lines()
    once = erase(lines[1], "here")
    assert erase(once, "here") == once
    assert erase(lines[0], "here") == lines[0]


def test_equal_contents_have_different_digests() -> None:
    """The salt, which is erased with it, keeps what was said from being guessed by trying likely words."""
    one, two = write_journal((StateSet(key="pin"), b'"1234"'), (StateSet(key="pin"), b'"1234"'))
    digests = {json.loads(erase(each.line, "here"))["erased"] for each in (one, two)}
    assert len(digests) == 2


def test_an_unknown_kind_survives_byte_for_byte() -> None:
    """A line that a newer version wrote can be copied without understanding it."""
    body = {"z": 1.0, "a": [1, 12345678901234567890123], "ü": "☃", "nested": {"b": None, "a": False}}
    line, _ = lines_by_hand.line(1, "future.idea", body, after="")
    entry = open_line(Chain("here").check(line), "here")
    assert isinstance(entry.body, UnknownBody)
    assert not entry.must
    assert encode_body(entry.body) == lines_by_hand.compact(body)
    again = seal(entry.body, 1, entry.at, entry.run, entry.step, GENESIS, kind=entry.kind)
    assert again.line.partition(b',"salt"')[0] == line.partition(b',"salt"')[0]


def test_an_unknown_kind_says_whether_it_must_be_understood() -> None:
    """A reader who does not know it learns that from the line alone."""
    line, _ = lines_by_hand.line(1, "future.rule", {}, after="", must=True)
    entry = open_line(Chain("here").check(line), "here")
    assert isinstance(entry.body, UnknownBody)
    assert entry.must


def test_the_mark_of_a_line_that_must_be_understood_cannot_be_removed() -> None:
    """It is part of the chain: taking it away would make a reader decide wrongly."""
    line, _ = lines_by_hand.line(1, "future.rule", {}, after="", must=True)
    with pytest.raises(Corrupt):
        Chain("here").check(line.replace(b'"must":true,', b""))


def test_an_adapters_own_kind_keeps_its_data() -> None:
    """Adapters record what they like under their prefix."""
    data = {"thread": "t", "channel": [1, None, "x"]}
    sealed = seal(AdapterBody(data=data), 1, AT, None, 0, GENESIS, kind="adapter.langgraph.write")
    entry = open_line(Chain("here").check(sealed.line), "here")
    assert entry.body == AdapterBody(data=data)
    assert entry.kind == "adapter.langgraph.write"


def test_a_line_of_a_newer_format_is_refused() -> None:
    """Guessing at it could only damage; the error says what to do."""
    line, _ = lines_by_hand.line(1, "session.opened", {"uid": "u"}, after="", v=2)
    with pytest.raises(NewerFormat, match="format 2"):
        Chain("here").check(line)


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"not json", b"[1,2]", b'{"v":1}', b"\xff\xfe", b'{"v":"1","seq":1}', b"null"]
)
def test_what_is_no_line_is_called_corrupt(line: bytes) -> None:
    """Whatever the disk holds, the error is ours."""
    with pytest.raises(Corrupt, match="not a line"):
        parse(line, "here")


def test_a_new_value_in_a_known_kind_is_taken_for_a_newer_version() -> None:
    """A journal that a newer version wrote can be read; the line is kept, and passed over."""
    line, _ = lines_by_hand.line(1, "message.added", {"role": "nobody"}, after="", must=True)
    entry = open_line(Chain("here").check(line), "here")
    assert isinstance(entry.body, UnknownBody)
    assert entry.must


@pytest.mark.parametrize(
    "body",
    [
        PlanChanged(plan=Plan(steps=(PlanStep(id=1, what="count"),))),  # type: ignore[arg-type]
        BudgetChanged(budget=Budget(tokens=1.5)),  # type: ignore[arg-type]
        ModelReplied(cost_usd="0.02"),  # type: ignore[arg-type]
        ModelReplied(usage=Usage(input_tokens=float("nan"))),  # type: ignore[arg-type]
        MessageAdded(role="moderator"),  # type: ignore[arg-type]
        SummaryChanged(summary=None),  # type: ignore[arg-type]
        SummaryChanged(summary="\ud800"),
    ],
    ids=lambda body: type(body).__name__,
)
def test_what_could_not_be_read_again_is_never_written(body: Body) -> None:
    """A slip in the caller's types must not make a whole session unreadable."""
    with pytest.raises(BadInput):
        seal(body, 1, AT, None, 0, GENESIS)


def test_the_live_entry_is_the_one_that_will_be_read() -> None:
    """What the caller changes afterwards in a value it handed over does not change the entry."""
    notes = {"a": 1}
    sealed = seal(AdapterBody(data=notes), 1, AT, None, 0, GENESIS, kind="adapter.x")
    notes["a"] = 2
    assert sealed.entry.body == AdapterBody(data={"a": 1})


def test_an_entry_that_no_reader_could_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is checked before anything is written."""
    monkeypatch.setattr("holdfast.core.codec.LINE_BYTES_MAX", 100)
    with pytest.raises(BadInput, match="over the limit"):
        seal(StateSet(key="big"), 1, AT, None, 0, GENESIS, b'"' + b"x" * 100 + b'"')
