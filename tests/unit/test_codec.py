"""Entries as chunks, and the chain over them."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from holdfast import Budget
from holdfast.core.codec import (
    GENESIS,
    Chunk,
    NewEntry,
    Page,
    check,
    encode_body,
    encode_entry,
    erase,
    seal,
    sum_of,
    timestamp,
)
from holdfast.core.entries import (
    AdapterBody,
    Body,
    BudgetChanged,
    CheckpointTaken,
    Entry,
    InboxMessage,
    InboxTaken,
    MessageAdded,
    ModelReplied,
    PlanChanged,
    SessionOpened,
    StateSet,
    SummaryChanged,
    UnknownBody,
)
from holdfast.core.pages import Chain, open_page
from holdfast.errors import BadInput, Corrupt, NewerFormat
from holdfast.limits import CHUNK_BYTES
from holdfast.records import Plan, PlanStep, Usage
from tests.unit import chunks_by_hand
from tests.unit.chunks_by_hand import entry as by_hand

AT = datetime(2026, 11, 15, 19, 29, 38, 123456, tzinfo=UTC)


def message(text: str) -> bytes:
    return b'{"role":"user","blocks":[{"kind":"text","text":"%b"}]}' % text.encode()


def write_chunks(*commits: Sequence[tuple[Body, bytes | None]]) -> list[Chunk]:
    """A journal from its first entry on, a chunk for each commit at least."""
    chunks: list[Chunk] = []
    for commit in commits:
        seq = chunks[-1].seq if chunks else 0
        new = [
            encode_entry(body, number, AT + timedelta(seconds=number), "run-1", 1, content)
            for number, (body, content) in enumerate(commit, start=seq + 1)
        ]
        chunks += seal(new, chunks[-1].sum if chunks else GENESIS)
    return chunks


def five_chunks() -> list[Chunk]:
    """A journal in which each chunk says something else."""
    red = StateSet(key="colour", value=Raw(b'"red"'))
    return write_chunks(
        [(SessionOpened(id="s", uid="u"), None)],
        [(MessageAdded(role="user", title="one"), message("one")), (red, None)],
        [(MessageAdded(role="user"), message("zwo")), (CheckpointTaken(version=1), None)],
        [(MessageAdded(role="user", title="two"), message("two")), (red, None)],
        [(SummaryChanged(summary="so far"), None)],
    )


def page_of(chunks: Sequence[Chunk], *, said: bool = True) -> Page:
    return Page.of(chunks, said=said)


def check_all(chunks: Sequence[Chunk], *, said: bool = True) -> list[Entry]:
    """Read the whole chain."""
    return [one for chunk in Chain("the test").open(page_of(chunks, said=said)) for one in chunk.entries]


def read_one(chunk: Chunk) -> Entry:
    """The only entry of a chunk."""
    (entry,) = open_page(page_of([chunk]), "here")
    return entry


def changed(chunks: list[Chunk], place: int, **parts: object) -> list[Chunk]:
    return [*chunks[:place], msgspec.structs.replace(chunks[place], **parts), *chunks[place + 1 :]]


def edited(chunks: list[Chunk], place: int, part: str, old: bytes, new: bytes) -> list[Chunk]:
    data = getattr(chunks[place], part)
    assert data.count(old) == 1
    return changed(chunks, place, **{part: data.replace(old, new)})


texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
).map(msgspec.json.encode)
contents = st.none() | json_values
moments = st.datetimes(timezones=st.just(UTC))
bodies = st.one_of(
    st.builds(SummaryChanged, summary=texts),
    st.builds(StateSet, key=texts, value=json_values.map(Raw)),
    st.builds(PlanChanged, plan=st.builds(Plan, goal=texts)),
    st.builds(MessageAdded, role=st.just("user"), title=texts),
    st.builds(InboxTaken, number=st.just(3), item=st.builds(InboxMessage, role=st.just("user"), key=texts)),
    st.builds(CheckpointTaken, version=st.integers(1, 9), name=st.none() | texts),
    st.builds(
        ModelReplied, usage=st.builds(Usage, input_tokens=st.integers(0, 10**9)), cost_usd=st.just(0.1)
    ),
)
runs = st.none() | st.sampled_from(["agent-1b2c3d4e", "b-2"])


@given(
    st.lists(st.tuples(bodies, contents, moments, runs), min_size=1, max_size=6),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_entries_come_back_from_their_chunks_as_they_were(
    written: list[tuple[Body, bytes | None, datetime, str | None]], step: int, with_said: bool
) -> None:
    """Time, run, step, body and content survive, and each sum follows from the chunk before."""
    new = [
        encode_entry(body, seq, at, run, step, content)
        for seq, (body, content, at, run) in enumerate(written, start=7)
    ]
    chunks = seal(new, "before")
    chain = Chain("here", seq=6, sum="before")
    found = [one for chunk in chain.open(page_of(chunks, said=with_said)) for one in chunk.entries]
    assert (chain.seq, chain.sum) == (6 + len(written), chunks[-1].sum)
    assert [(one.body, one.at, one.run) for one in found] == [(body, at, run) for body, _, at, run in written]
    assert {one.step for one in found} == {step}
    if with_said:
        assert found == [one.entry for one in new]
        assert [None if one.content is None else bytes(one.content) for one in found] == [
            content for _, content, _, _ in written
        ]
    else:
        assert all(one.content is None for one in found)
        assert all(one.unread for one, (_, content, _, _) in zip(found, written, strict=True) if content)
    for chunk in chunks:
        assert not any(b"\n" in part for part in (chunk.facts, chunk.details or b"", chunk.said or b""))
    assert sum_of(chunks[0].facts, "before") == chunks[0].sum


def test_the_sum_is_the_one_that_the_format_describes() -> None:
    """With the description of the format, a journal can be checked without this code."""
    first = chunks_by_hand.chunk(1, by_hand("session.opened", {"id": "s", "uid": "u"}), after="")
    second = chunks_by_hand.chunk(
        2,
        by_hand(
            "message.added", {"role": "user"}, details={"title": "t"}, content={"role": "user", "blocks": []}
        ),
        by_hand("run.started", {"agent": "a"}, run="b-2"),
        by_hand("summary.changed", {}, details={"summary": "short"}, run=""),
        after=first.sum,
        run="a-1",
        offsets_us=[0, 5, 1_000_000],
    )
    found = check_all([first, second])
    assert [(one.seq, one.run, one.step) for one in found[1:]] == [(2, "a-1", 1), (3, "b-2", 1), (4, None, 1)]
    assert [one.at - AT for one in found[1:]] == [
        timedelta(0),
        timedelta(microseconds=5),
        timedelta(seconds=1),
    ]
    assert found[1].body == MessageAdded(role="user", title="t")
    assert bytes(found[1].content or b"") == b'{"role":"user","blocks":[]}'
    assert found[3].body == SummaryChanged(summary="short")
    check_all([first, second], said=False)


def test_a_chunk_is_json_that_says_what_it_is() -> None:
    """People with `less` and `jq` find the words of the documentation in it."""
    chunk = five_chunks()[1]
    facts = json.loads(chunk.facts)
    assert list(facts) == ["v", "seq", "at", "run", "step", "us", "entries", "details", "said", "salt"]
    assert (facts["v"], facts["seq"], facts["step"], facts["us"]) == (2, 2, 1, [0, 1_000_000])
    assert facts["at"] == "2026-11-15T19:29:40.123456Z"
    assert facts["run"] == "run-1"
    assert facts["entries"] == [
        {"kind": "message.added", "body": {"role": "user"}},
        {"kind": "state.set", "body": {"key": "colour"}},
    ]
    details, said = json.loads(chunk.details or b""), json.loads(chunk.said or b"")
    assert [words for _, words in details] == [{"title": "one"}, {"value": "red"}]
    assert said[0][1]["blocks"][0]["text"] == "one"
    assert said[1] is None


def test_what_can_be_erased_is_not_among_the_facts() -> None:
    """They stay when a session is cleaned."""
    for chunk in five_chunks():
        for word in (b"one", b"two", b"zwo", b"red", b"so far"):
            assert word not in chunk.facts


def test_times_sort_as_text() -> None:
    """A full second has six digits, too: listings compare the text."""
    whole = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    times = (whole, whole + timedelta(microseconds=1), whole + timedelta(seconds=1))
    stamps = [timestamp(at) for at in times]
    assert stamps == sorted(stamps)
    assert len({len(stamp) for stamp in stamps}) == 1
    chunks = [seal([encode_entry(SummaryChanged(summary=""), 1, at, None, 0)], GENESIS)[0] for at in times]
    assert [json.loads(chunk.facts)["at"] for chunk in chunks] == stamps


def new_entries(*bodies: Body, content: bytes | None = None) -> list[NewEntry]:
    return [encode_entry(body, seq, AT, None, 0, content) for seq, body in enumerate(bodies, start=1)]


def test_a_checkpoint_and_a_keyframe_end_a_chunk() -> None:
    """A fork and a rewind begin there, and a keyframe names the sum of what it stands for."""
    words, checkpoint = SummaryChanged(summary="x"), CheckpointTaken(version=1)
    entries = new_entries(words, checkpoint, checkpoint, words, words, words)
    assert [chunk.seq for chunk in seal(entries, GENESIS)] == [2, 3, 6]
    assert [chunk.seq for chunk in seal(entries, GENESIS, ends=5)] == [2, 3, 5, 6]
    assert [chunk.seq for chunk in seal(entries, GENESIS, ends=6)] == [2, 3, 6]
    assert [chunk.seq for chunk in seal(entries[:2], GENESIS, ends=2)] == [2]
    check_all(seal(entries, GENESIS, ends=5))


def test_a_chunk_that_has_become_large_ends() -> None:
    """A reader of one entry reads little more than it."""
    large = b'"%b"' % (b"x" * (CHUNK_BYTES // 2))
    chunks = seal(new_entries(*[MessageAdded(role="user")] * 5, content=large), GENESIS)
    assert [chunk.seq for chunk in chunks] == [2, 4, 5]
    check_all(chunks)


def edit_fact(chunks: list[Chunk]) -> list[Chunk]:
    return edited(chunks, 1, "facts", b'"role":"user"', b'"role":"tool"')


def edit_time(chunks: list[Chunk]) -> list[Chunk]:
    return edited(chunks, 2, "facts", b"T19:29:42", b"T19:29:43")


def edit_offsets(chunks: list[Chunk]) -> list[Chunk]:
    return edited(chunks, 1, "facts", b'"us":[0,1000000]', b'"us":[0,1000001]')


def edit_run(chunks: list[Chunk]) -> list[Chunk]:
    return edited(chunks, 2, "facts", b"run-1", b"run-2")


def edit_kind(chunks: list[Chunk]) -> list[Chunk]:
    return edited(chunks, 1, "facts", b"state.set", b"state.unset")


def edit_sum(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 2, sum=chunks[3].sum)


def spoil_sum(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 2, sum="é" + chunks[2].sum)


def remove_digest_of_details(chunks: list[Chunk]) -> list[Chunk]:
    facts = json.loads(chunks[4].facts)
    del facts["details"]
    return changed(chunks, 4, facts=chunks_by_hand.compact(facts), details=None)


def edit_details(chunks: list[Chunk]) -> list[Chunk]:
    return edited(chunks, 4, "details", b"so far", b"so fat")


def remove_details(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 4, details=None)


def add_details(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 0, details=chunks[4].details)


def swap_details(chunks: list[Chunk]) -> list[Chunk]:
    one, two = chunks[1].details, chunks[3].details
    return changed(changed(chunks, 1, details=two), 3, details=one)


def remove_chunk(chunks: list[Chunk]) -> list[Chunk]:
    return [*chunks[:2], *chunks[3:]]


def remove_first(chunks: list[Chunk]) -> list[Chunk]:
    return chunks[1:]


def swap_chunks(chunks: list[Chunk]) -> list[Chunk]:
    return [chunks[0], chunks[3], chunks[2], chunks[1], chunks[4]]


def remove_and_renumber(chunks: list[Chunk]) -> list[Chunk]:
    later = edited(chunks, 3, "facts", b'"seq":6', b'"seq":4')
    return [*chunks[:2], later[3], edited(chunks, 4, "facts", b'"seq":8', b'"seq":6')[4]]


def repeat_chunk(chunks: list[Chunk]) -> list[Chunk]:
    return [*chunks[:3], chunks[2], *chunks[3:]]


def join_chunks(chunks: list[Chunk]) -> list[Chunk]:
    """Two chunks of one entry in place of one of two."""
    facts = json.loads(chunks[2].facts)
    first = {**facts, "entries": facts["entries"][:1], "us": [0]}
    return changed(chunks, 2, facts=chunks_by_hand.compact(first))


def tear_facts(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 4, facts=chunks[4].facts[:-20])


def tear_details(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 4, details=(chunks[4].details or b"")[:-5])


DAMAGES_WITHOUT_SAID = [
    edit_fact,
    edit_time,
    edit_offsets,
    edit_run,
    edit_kind,
    edit_sum,
    spoil_sum,
    edit_details,
    remove_details,
    remove_digest_of_details,
    add_details,
    swap_details,
    remove_chunk,
    remove_first,
    swap_chunks,
    remove_and_renumber,
    repeat_chunk,
    join_chunks,
    tear_facts,
    tear_details,
]


def edit_content(chunks: list[Chunk]) -> list[Chunk]:
    return edited(chunks, 1, "said", b"one", b"uno")


def swap_contents(chunks: list[Chunk]) -> list[Chunk]:
    """Each chunk keeps its number, but says what the other said."""
    one, two = chunks[1].said, chunks[3].said
    return changed(changed(chunks, 1, said=two), 3, said=one)


def swap_places(chunks: list[Chunk]) -> list[Chunk]:
    """The second entry says what the first one said."""
    said = json.loads(chunks[1].said or b"")
    return changed(chunks, 1, said=chunks_by_hand.compact(said[::-1]))


def remove_said(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 1, said=None)


def add_said(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 4, said=b'[["salt","more"]]')


def add_content(chunks: list[Chunk]) -> list[Chunk]:
    said = json.loads(chunks[1].said or b"")
    return changed(chunks, 1, said=chunks_by_hand.compact([*said, ["salt", "more"]]))


def tear_said(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 1, said=(chunks[1].said or b"")[:-5])


def erase_with_another_digest(chunks: list[Chunk]) -> list[Chunk]:
    return changed(chunks, 1, said=erase(chunks[3].said, [0], "here"))


def erase_and_move_what_is_left(chunks: list[Chunk]) -> list[Chunk]:
    """The digests in a row are the same; which entry they belong to is not."""
    said = json.loads(erase(chunks[1].said, [0], "here") or b"")
    digest = chunks_by_hand.unpack(said[0]["erased"])
    halves = [{"erased": chunks_by_hand.text(part)} for part in (digest[:16], digest[16:])]
    null = {"erased": chunks_by_hand.text(chunks_by_hand.digest(b"null"))}
    return changed(chunks, 1, said=chunks_by_hand.compact([*halves, null]))


def spoil_salt(chunks: list[Chunk]) -> list[Chunk]:
    said = json.loads(chunks[1].said or b"")
    said[0][0] = "é"
    return changed(chunks, 1, said=chunks_by_hand.compact(said))


DAMAGES_TO_SAID = [
    edit_content,
    swap_contents,
    swap_places,
    remove_said,
    add_said,
    add_content,
    tear_said,
    erase_with_another_digest,
    erase_and_move_what_is_left,
    spoil_salt,
]


@pytest.mark.parametrize("damage", [*DAMAGES_WITHOUT_SAID, *DAMAGES_TO_SAID])
def test_the_chain_finds_what_was_done_to_a_journal(damage: Callable[[list[Chunk]], list[Chunk]]) -> None:
    """Chunks that were edited, removed, repeated, torn or put in another order are not read as if nothing
    had happened."""
    chunks = five_chunks()
    check_all(chunks)
    damaged = damage(list(chunks))
    assert damaged != chunks
    with pytest.raises(Corrupt, match="the test"):
        check_all(damaged)


@pytest.mark.parametrize("damage", DAMAGES_WITHOUT_SAID)
def test_the_chain_is_checked_without_what_was_said(damage: Callable[[list[Chunk]], list[Chunk]]) -> None:
    """A session is opened without reading it."""
    chunks = five_chunks()
    check_all(chunks, said=False)
    with pytest.raises(Corrupt, match="the test"):
        check_all(damage(list(chunks)), said=False)


def test_the_chain_accepts_nothing_of_a_damaged_chunk() -> None:
    """After the error it stands where it stood, so the entry it names is the first bad one."""
    chunks = five_chunks()
    chain = Chain("here")
    with pytest.raises(Corrupt) as caught:
        list(chain.open(page_of(edit_content(chunks))))
    assert caught.value.seq == 2
    assert (chain.seq, chain.sum) == (1, chunks[0].sum)
    assert [chunk.last for chunk in chain.open(page_of(chunks[1:]))] == [3, 5, 7, 8]


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("part", ["facts", "details", "said"])
def test_the_error_names_the_damaged_chunk(place: int, part: str) -> None:
    """By its first entry, wherever in a page it is."""
    chunks = changed(five_chunks(), place, **{part: b'[["torn'})
    with pytest.raises(Corrupt) as caught:
        check_all(chunks)
    assert caught.value.seq == [1, 2, 4, 6, 8][place]


def erased(chunk: Chunk, places: Sequence[int]) -> Chunk:
    details, said = erase(chunk.details, places, "here"), erase(chunk.said, places, "here")
    return msgspec.structs.replace(chunk, details=details, said=said)


@pytest.mark.parametrize("places", [[0], [1], [0, 1]])
def test_an_erased_chunk_keeps_the_chain(places: list[int]) -> None:
    """What was said is gone, its digest stays, and no chunk after it is doubted."""
    chunks = five_chunks()
    chunk = erased(chunks[1], places)
    salts = [one[0] for one in json.loads(chunks[1].details or b"")]
    for place, word in enumerate((b'"one"', b'"red"')):
        gone = place in places
        assert (word not in (chunk.details or b"") + (chunk.said or b"")) == gone
        assert (salts[place].encode() not in (chunk.details or b"")) == gone
    found = check_all([chunks[0], chunk, *chunks[2:]])
    check_all([chunks[0], chunk, *chunks[2:]], said=False)
    spoken, state = found[1:3]
    if 0 in places:
        assert (spoken.erased, spoken.content) == (True, None)
        assert spoken.body == MessageAdded(role="user")
    if 1 in places:
        assert state.body == StateSet(key="colour")
    else:
        assert state.body == StateSet(key="colour", value=Raw(b'"red"'))
    assert not state.erased


def test_erasing_twice_or_where_nothing_was_said_changes_nothing() -> None:
    """So that cleaning a session again is harmless."""
    for chunk in five_chunks():
        once = erased(chunk, [0, 1])
        assert erased(once, [0, 1]) == once
        assert erased(once, [1]) == once
        assert erased(chunk, []) == chunk
    opened = five_chunks()[0]
    assert erased(opened, [0]) == opened
    assert erase(b"null", [0], "here") == b"null"


def test_equal_words_have_different_digests() -> None:
    """The salt, which is erased with it, keeps what was said from being guessed by trying likely words."""
    pin = StateSet(key="pin", value=Raw(b'"1234"'))
    chunks = write_chunks([(pin, b'"1234"')], [(pin, b'"1234"'), (pin, b'"1234"')])
    left = [one for chunk in chunks for part in (chunk.details, chunk.said) for one in erased_elements(part)]
    assert len(left) == 6
    assert len(set(left)) == 6
    digests = [json.loads(chunk.facts)[name] for chunk in chunks for name in ("details", "said")]
    assert len(set(digests)) == 4


def erased_elements(part: bytes | None) -> list[str]:
    return [one["erased"] for one in json.loads(erase(part, range(9), "here") or b"")]


def test_erasing_what_is_no_list_is_called_corrupt() -> None:
    """Whatever the disk holds, the error is ours."""
    for part in (b"", b"{}", b'[["torn', b"\xff", b"7"):
        with pytest.raises(Corrupt, match="here"):
            erase(part, [0], "here")


def test_an_unknown_kind_survives_byte_for_byte() -> None:
    """An entry that a newer version wrote can be copied without understanding it."""
    body = {"z": 1.0, "a": [1, 12345678901234567890123], "ü": "☃", "nested": {"b": None, "a": False}}
    chunk = chunks_by_hand.chunk(1, by_hand("future.idea", body), after="")
    (entry,) = check_all([chunk])
    assert isinstance(entry.body, UnknownBody)
    assert not entry.must
    assert encode_body(entry.body) == chunks_by_hand.compact(body)
    (again,) = seal([encode_entry(entry.body, 1, entry.at, entry.run, entry.step, kind=entry.kind)], GENESIS)
    assert again.facts.partition(b',"salt"')[0] == chunk.facts.partition(b',"salt"')[0]


def test_an_unknown_kind_says_whether_it_must_be_understood() -> None:
    """A reader that does not know it learns that from the chunk alone."""
    chunk = chunks_by_hand.chunk(
        1, by_hand("future.rule", {}, must=True), by_hand("future.idea", {}), after=""
    )
    rule, idea = check_all([chunk])
    assert isinstance(rule.body, UnknownBody)
    assert (rule.must, idea.must) == (True, False)


def test_the_mark_of_an_entry_that_must_be_understood_cannot_be_removed() -> None:
    """It is part of the chain: taking it away would make a reader decide wrongly."""
    chunk = chunks_by_hand.chunk(1, by_hand("future.rule", {}, must=True), after="")
    with pytest.raises(Corrupt):
        check_all(edited([chunk], 0, "facts", b'"must":true,', b""))


def test_what_was_said_with_an_unknown_kind_is_read() -> None:
    """Its details are left alone; content and chain are as with any other."""
    future = by_hand("future.idea", {"x": 1}, details={"y": 2}, content={"z": 3})
    chunk = chunks_by_hand.chunk(1, by_hand("session.opened", {"id": "s", "uid": "u"}), future, after="")
    _, entry = check_all([chunk])
    assert isinstance(entry.body, UnknownBody)
    assert bytes(entry.body.data) == b'{"x":1}'
    assert bytes(entry.content or b"") == b'{"z":3}'
    assert check_all([erased(chunk, [1])])[1].erased


def test_an_adapters_own_kind_keeps_its_data() -> None:
    """Adapters record what they like under their prefix."""
    data = {"thread": "t", "channel": [1, None, "x"]}
    new = encode_entry(AdapterBody(data=data), 1, AT, None, 0, kind="adapter.langgraph.write")
    (entry,) = check_all(seal([new], GENESIS))
    assert entry.body == AdapterBody(data=data)
    assert entry.kind == "adapter.langgraph.write"


def test_a_chunk_of_a_newer_format_is_refused() -> None:
    """Guessing at it could only damage; the error says what to do."""
    first = chunks_by_hand.chunk(1, by_hand("session.opened", {"id": "s", "uid": "u"}), after="")
    newer = chunks_by_hand.chunk(2, by_hand("session.opened", {"id": "s", "uid": "u"}), after=first.sum, v=3)
    with pytest.raises(NewerFormat, match="entry 2 has format 3"):
        check_all([first, newer])
    other = msgspec.structs.replace(newer, facts=b'{"v":3,"seq":2,"rows":[]}')
    with pytest.raises(NewerFormat, match="entry 2 has format 3"):
        check_all([first, other])


@pytest.mark.parametrize(
    "facts",
    [
        b"{}",
        b"not json",
        b"[1,2]",
        b'{"v":2}',
        b"\xff\xfe",
        b'{"v":"2","seq":1}',
        b"null",
        b'{"v":2,"seq":1,"at":"2026-11-15T19:29:38.123456Z","entries":7}',
        b'{"v":1,"seq":1,"at":"2026-11-15T19:29:38.123456Z","kind":"session.opened","body":{},"sum":"x"}',
    ],
)
def test_what_is_no_chunk_is_called_corrupt(facts: bytes) -> None:
    """Whatever the disk holds, the error is ours."""
    with pytest.raises(Corrupt, match="not a chunk"):
        list(open_page(page_of([Chunk(1, "sum", facts)]), "here"))


def test_a_chunk_without_entries_is_called_corrupt() -> None:
    """A reader would never get past it."""
    chunk = chunks_by_hand.chunk(1, after="")
    with pytest.raises(Corrupt, match="without entries"):
        check_all([chunk])
    with pytest.raises(Corrupt, match="without entries"):
        list(open_page(page_of([chunk]), "here"))


@pytest.mark.parametrize(
    ("body", "details"),
    [({"role": "nobody"}, None), ({"role": "user"}, {"title": 7})],
    ids=["among the facts", "among the details"],
)
def test_a_new_value_in_a_known_kind_is_taken_for_a_newer_version(body: object, details: object) -> None:
    """A journal that a newer version wrote can be read; the entry is kept, and passed over."""
    known = by_hand("summary.changed", {}, details={"summary": "short"})
    newer = by_hand("message.added", body, must=True, details=details)
    found = check_all([chunks_by_hand.chunk(1, known, newer, known, after="")])
    assert isinstance(found[1].body, UnknownBody)
    assert found[1].must
    assert [found[0].body, found[2].body] == [SummaryChanged(summary="short")] * 2


def test_new_fields_are_passed_over() -> None:
    """A newer version may add them to a chunk, an entry, a body and its details."""
    entry = by_hand("summary.changed", {"mood": 1}, details={"summary": "short", "tone": 2})
    chunk = chunks_by_hand.chunk(1, entry, after="")
    facts = json.loads(chunk.facts)
    facts["hint"] = [1]
    facts["entries"][0]["hint"] = 2
    data = chunks_by_hand.compact(facts)
    newer = msgspec.structs.replace(chunk, facts=data, sum=sum_of(data, GENESIS))
    (found,) = check_all([newer])
    assert found.body == SummaryChanged(summary="short")


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
        encode_entry(body, 1, AT, None, 0)
    with pytest.raises(BadInput):
        check(body, None)


def test_a_content_in_two_lines_is_refused() -> None:
    """A part of a chunk is one line."""
    with pytest.raises(BadInput, match="one line"):
        encode_entry(MessageAdded(role="user"), 1, AT, None, 0, b'{"role":\n"user"}')


def test_the_live_entry_is_the_one_that_will_be_read() -> None:
    """What the caller changes afterwards in a value it handed over does not change the entry."""
    notes = {"a": 1}
    new = encode_entry(AdapterBody(data=notes), 1, AT, None, 0, kind="adapter.x")
    notes["a"] = 2
    assert new.entry.body == AdapterBody(data={"a": 1})
    assert read_one(seal([new], GENESIS)[0]) == new.entry


def test_an_entry_that_no_reader_could_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is checked before anything is written."""
    monkeypatch.setattr("holdfast.core.codec.LINE_BYTES_MAX", 100)
    with pytest.raises(BadInput, match="over the limit"):
        encode_entry(MessageAdded(role="user"), 1, AT, None, 0, b'"' + b"x" * 100 + b'"')
