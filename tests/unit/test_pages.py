"""Many chunks opened at once say what they say one by one, and damage is named the same way."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from holdfast.core.codec import EMPTY_PAGE, GENESIS, Chunk, Page, encode_entry, erase, seal
from holdfast.core.entries import (
    KINDS,
    AdapterBody,
    Body,
    CheckpointTaken,
    Entry,
    MessageAdded,
    ModelReplied,
    Span,
    StateSet,
    UnknownBody,
)
from holdfast.core.pages import (
    ALL_KINDS,
    Chain,
    FactsDecoder,
    cut_page,
    last_span,
    open_page,
    read_contents,
    span_of,
)
from holdfast.core.transcript import Transcript
from holdfast.core.transcript_items import Content, Contents
from holdfast.errors import Corrupt, NewerFormat
from holdfast.messages import Message
from tests.unit import chunks_by_hand
from tests.unit.journals import Plot, Script, chunks_of, contents_of, page_of_span, perform, plots

AT = datetime(2026, 11, 15, 19, 29, 38, 123456, tzinfo=UTC)
WANTED = ("message.added", "model.replied", "checkpoint.taken")
SOME_KINDS = FactsDecoder({kind: KINDS[kind] for kind in WANTED})
NewEntries = Sequence[tuple[Body, bytes | None, str | None]]


def said(text: str) -> bytes:
    return b'{"role":"user","blocks":[{"kind":"text","text":"%b"}]}' % text.encode()


def write(*commits: NewEntries) -> list[Chunk]:
    """Chunks of a journal, one a commit; a kind of None is the body's own."""
    chunks: list[Chunk] = []
    for commit in commits:
        first = chunks[-1].seq + 1 if chunks else 1
        new = [
            encode_entry(body, seq, AT + timedelta(seconds=seq), None, 1, content, kind=kind)
            for seq, (body, content, kind) in enumerate(commit, start=first)
        ]
        chunks += seal(new, chunks[-1].sum if chunks else GENESIS)
    return chunks


def plain_chunks() -> list[Chunk]:
    """What most journals are made of."""
    return write(
        [(MessageAdded(role="user", title="one"), said("one"), None)],
        [(ModelReplied(), said("two"), None), (StateSet(key="colour", value=Raw(b'"red"')), None, None)],
        [(CheckpointTaken(version=1), None, None)],
    )


def page_of(chunks: Sequence[Chunk], with_said: bool = True) -> Page:
    return Page.of(chunks, said=with_said)


def one_by_one(chunks: Iterable[Chunk], with_said: bool = True) -> list[Entry]:
    """Each chunk as a page of its own."""
    return [entry for chunk in chunks for entry in open_page(page_of([chunk], with_said), "the test")]


def wanted_of(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that a reader of some kinds must get, and those that it may not leave out."""
    return [one for one in entries if one.kind in WANTED or isinstance(one.body, UnknownBody)]


def opened(decoder: FactsDecoder, page: Page) -> list[Entry]:
    return [entry for chunk in decoder.decode(page, "the test") for entry in chunk.entries]


@given(plots, st.integers(1, 20), st.booleans())
def test_chunks_opened_at_once_say_what_they_say_one_by_one(plot: Plot, commit: int, with_said: bool) -> None:
    """Every entry, in order; also for a reader that needs only some kinds."""
    chunks = chunks_of(perform(Script(), plot).new, commit=commit)
    page = page_of(chunks, with_said)
    apart = one_by_one(chunks, with_said)
    assert list(open_page(page, "the test")) == apart
    assert opened(SOME_KINDS, page) == wanted_of(apart)
    found = list(ALL_KINDS.decode(page, "the test"))
    assert [(one.first, one.last, one.sum) for one in found] == [
        (*span_of(chunk.facts, "the test"), chunk.sum) for chunk in chunks
    ]
    assert found == list(Chain("the test").open(page))


def test_an_empty_page_says_nothing() -> None:
    """There is nothing wrong with it either."""
    for page in (EMPTY_PAGE, page_of([]), page_of([], False)):
        assert list(open_page(page, "the test")) == []
        assert list(Chain("the test").open(page)) == []
        assert cut_page(page, 7, "the test") == page
    assert list(read_contents(EMPTY_PAGE, "the test", checked_after=0, may_be_messages=True)) == []


def test_a_page_is_cut_between_chunks() -> None:
    """Each part of it is the page of those chunks."""
    chunks = write(*[[(MessageAdded(role="user"), said(f"{n}"), None)] * 3 for n in range(4)])
    for with_said in (True, False):
        page = page_of(chunks, with_said)
        assert len(page) == 4
        assert last_span(page, "the test") == Span(10, 12)
        for until in range(13):
            count = (until + 2) // 3
            assert cut_page(page, until, "the test").facts == page_of(chunks[:count]).facts
            assert len(cut_page(page, until, "the test")) == count
        assert page.part(0, 1) == page_of(chunks[:1], with_said)
        assert page.part(1) == page_of(chunks[1:], with_said)
        assert page.part(1, 3) == page_of(chunks[1:3], with_said)


@pytest.mark.parametrize("decoder", [ALL_KINDS, SOME_KINDS])
def test_an_erased_entry_has_no_content_and_no_details(decoder: FactsDecoder) -> None:
    """Its body and its place are as they were."""
    chunks = plain_chunks()
    details, words = erase(chunks[0].details, [0], "the test"), erase(chunks[0].said, [0], "the test")
    chunks[0] = msgspec.structs.replace(chunks[0], details=details, said=words)
    first, second, *_ = opened(decoder, page_of(chunks))
    assert (first.content, first.erased) == (None, True)
    assert first.body == MessageAdded(role="user")
    assert (second.content is not None, second.erased) == (True, False)


def test_what_was_not_read_is_marked() -> None:
    """An entry without a content and one whose content was left out are not the same."""
    unread = [one.unread for one in opened(ALL_KINDS, page_of(plain_chunks(), False))]
    assert unread == [True, True, True, False]
    assert not any(one.unread for one in opened(ALL_KINDS, page_of(plain_chunks())))


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param((MessageAdded(role="user"), said("hm"), "message.sung"), id="a newer kind"),
        pytest.param((AdapterBody(data={"a": 1}), None, "adapter.other.made"), id="an adapter's kind"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_entries_of_other_kinds_do_not_keep_the_rest_from_being_read(
    newer: tuple[Body, bytes | None, str | None], together: bool
) -> None:
    """In the same chunk or in another one; the others are what they are without it."""
    entries: list[tuple[Body, bytes | None, str | None]] = [
        (MessageAdded(role="user", title="one"), said("one"), None),
        newer,
        (StateSet(key="colour", value=Raw(b'"red"')), None, None),
        (CheckpointTaken(version=1), None, None),
    ]
    chunks = write(entries) if together else write(*([one] for one in entries))
    apart = one_by_one(chunks)
    assert opened(ALL_KINDS, page_of(chunks)) == apart
    assert [one.kind for one in apart] == ["message.added", newer[2], "state.set", "checkpoint.taken"]
    found = opened(SOME_KINDS, page_of(chunks))
    assert [one for one in found if one.kind in WANTED] == [apart[0], apart[3]]
    assert len(list(Chain("the test").open(page_of(chunks)))) == len(chunks)


@pytest.mark.parametrize("decoder", [ALL_KINDS, SOME_KINDS])
def test_a_newer_value_in_a_known_kind_is_kept_as_it_is(decoder: FactsDecoder) -> None:
    """The entry is one that this version does not understand; the others are understood."""
    chunks = plain_chunks()
    newer = chunks[0].facts.replace(b'"body":{"role":"user"}', b'"body":{"role":"chorus"}')
    chunks[0] = msgspec.structs.replace(chunks[0], facts=newer)
    first, *rest = opened(decoder, page_of(chunks))
    assert isinstance(first.body, UnknownBody)
    assert bytes(first.body.data) == b'{"role":"chorus"}'
    assert first.content is not None
    assert wanted_of(rest) == wanted_of(one_by_one(chunks[1:]))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda line: line[:-20],
    "two in one": lambda line: line + b" " + line,
    "no entries": lambda line: line.replace(b'"entries":', b'"entities":'),
    "not text": lambda line: line.replace(b'"kind":"', b'"kind":"\xff'),
    "a time that is none": lambda line: line.replace(b'"at":"2026', b'"at":"year'),
    "offsets that are none": lambda line: line.replace(b'"us":[', b'"us":["'),
    "a digest that is no text": lambda line: line.replace(b'"said":"', b'"said":1,"_":"'),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("decoder", [ALL_KINDS, SOME_KINDS])
def test_a_damaged_chunk_is_named_as_if_it_were_read_alone(decoder: FactsDecoder, damage: str) -> None:
    """`Corrupt`, with the same words."""
    chunks = plain_chunks()
    chunks[1] = msgspec.structs.replace(chunks[1], facts=DAMAGES[damage](chunks[1].facts))
    with pytest.raises(Corrupt) as alone:
        list(Chain("the test", 1, chunks[0].sum).open(page_of(chunks[1:2])))
    with pytest.raises(Corrupt) as together:
        list(Chain("the test").open(page_of(chunks)))
    assert str(together.value) == str(alone.value)
    assert together.value.seq == alone.value.seq
    with pytest.raises(Corrupt):
        opened(decoder, page_of(chunks))


def test_too_few_offsets_or_elements_are_called_corrupt() -> None:
    """They do not belong to this chunk."""
    chunks = plain_chunks()
    for damaged in (
        msgspec.structs.replace(chunks[1], facts=chunks[1].facts.replace(b'"us":[0,1000000]', b'"us":[0]')),
        msgspec.structs.replace(chunks[1], facts=chunks[1].facts.replace(b",1000000]", b",%d]" % (10**30))),
        msgspec.structs.replace(chunks[1], said=b"[]"),
        msgspec.structs.replace(chunks[1], details=b"[null]"),
    ):
        assert damaged != chunks[1]
        with pytest.raises(Corrupt, match="the test"):
            opened(ALL_KINDS, page_of([chunks[0], damaged, chunks[2]]))


def test_chunks_that_do_not_follow_each_other_are_called_corrupt() -> None:
    """Also by a reader that does not check the chain."""
    chunks = plain_chunks()
    for wrong in ([chunks[0], chunks[2]], [chunks[1], chunks[0]], [chunks[0], chunks[0]]):
        with pytest.raises(Corrupt, match="expected entry"):
            opened(ALL_KINDS, page_of(wrong))


@pytest.mark.parametrize("decoder", [ALL_KINDS, SOME_KINDS])
def test_a_chunk_of_a_newer_format_is_refused(decoder: FactsDecoder) -> None:
    """Wherever in the page it is."""
    chunks = plain_chunks()
    newer = chunks[1].facts.replace(b'{"v":2,', b'{"v":3,')
    chunks[1] = msgspec.structs.replace(chunks[1], facts=newer)
    with pytest.raises(NewerFormat, match="entry 2 has format 3"):
        opened(decoder, page_of(chunks))


# -- hostile bytes -------------------------------------------------------------------------------------


def hostile_chunks() -> list[Chunk]:
    """Every shape of a part: full, partly empty, empty, erased, with another run."""
    chunks = write(
        [(MessageAdded(role="user", title="é"), said("é"), None), (CheckpointTaken(version=1), None, None)],
        [(StateSet(key="k", value=Raw(b"[1]")), None, None), (AdapterBody(data=1), None, "adapter.x")],
        [(MessageAdded(role="user", title="t"), said("x"), None)],
        [(CheckpointTaken(version=2), None, None)],
    )
    details, words = erase(chunks[2].details, [0], "here"), erase(chunks[2].said, [0], "here")
    chunks[2] = msgspec.structs.replace(chunks[2], details=details, said=words)
    future = chunks_by_hand.entry("future.rule", {"a": [1, "é"]}, must=True, details={"b": 2}, content=[3])
    known = chunks_by_hand.entry("run.started", {"agent": "a"}, run="b-2")
    last = chunks[-1]
    return [*chunks, chunks_by_hand.chunk(last.seq + 1, future, known, after=last.sum, run="a-1")]


def mutations_of(data: bytes) -> Iterator[bytes]:
    """One byte changed, removed or added, at every place."""
    for place, byte in enumerate(data):
        before, after = data[:place], data[place + 1 :]
        for other in {byte ^ 1, byte ^ 32, ord('"'), ord(" "), ord("\n"), ord("0"), 0xFF} - {byte}:
            yield before + bytes([other]) + after
        yield before + after
        yield before + bytes([byte, byte]) + after


@pytest.mark.parametrize("part", ["sums", "facts", "details", "said"])
def test_no_byte_can_be_changed_unnoticed(part: str) -> None:
    """Any change of any byte is noticed, or what is read is the same."""
    page = page_of(hostile_chunks())
    whole = list(Chain("here").open(page))
    noticed = 0
    for data in mutations_of(getattr(page, part)):
        changed = msgspec.structs.replace(page, **{part: data})
        try:
            assert list(Chain("here").open(changed)) == whole
        except (Corrupt, NewerFormat):
            noticed += 1
    assert noticed > 5 * len(getattr(page, part))


@pytest.mark.parametrize("part", ["sums", "facts", "details", "said"])
def test_whatever_is_read_the_error_is_ours(part: str) -> None:
    """Also where the chain is not checked."""
    page = page_of(hostile_chunks())
    for data in mutations_of(getattr(page, part)):
        changed = msgspec.structs.replace(page, **{part: data})
        for read in (
            lambda page: list(open_page(page, "here")),
            lambda page: opened(SOME_KINDS, page),
            lambda page: list(read_contents(page, "here", checked_after=0, may_be_messages=True)),
            lambda page: list(read_contents(page, "here", checked_after=99, may_be_messages=True)),
            lambda page: last_span(cut_page(page, 5, "here"), "here"),
        ):
            with suppress(Corrupt, NewerFormat):
                read(changed)


@given(st.binary(max_size=60), st.sampled_from(["sums", "facts", "details", "said"]), st.integers(1, 3))
def test_bytes_that_are_no_page_are_called_corrupt(data: bytes, part: str, count: int) -> None:
    """Whatever a disk gives."""
    page = page_of(plain_chunks()[:count])
    changed = msgspec.structs.replace(page, **{part: data})
    with pytest.raises((Corrupt, NewerFormat)):
        list(Chain("here").open(changed))


def test_what_is_nested_too_deep_is_called_corrupt() -> None:
    """It does not end the process."""
    page = page_of(plain_chunks())
    deep = b"[" * 100_000
    for part in ("facts", "details", "said"):
        with pytest.raises(Corrupt):
            list(open_page(msgspec.structs.replace(page, **{part: deep}), "here"))


# -- contents and transcripts --------------------------------------------------------------------------


def contents_in(page: Page, checked_after: int, may_be_messages: bool) -> dict[int, Raw | Message | None]:
    return dict(read_contents(page, "the test", checked_after=checked_after, may_be_messages=may_be_messages))


@given(plots, st.integers(1, 20))
def test_contents_are_read_without_the_facts(plot: Plot, commit: int) -> None:
    """Each with the entry that it belongs to, as it was written."""
    new = perform(Script(), plot).new
    page = page_of(chunks_of(new, commit=commit))
    for checked_after in (0, len(new)):
        found = contents_in(page, checked_after, False)
        expected = {one.entry.seq: one.content for one in new if one.content is not None}
        assert {seq: bytes(one) for seq, one in found.items() if isinstance(one, Raw)} == expected
        assert found.keys() == expected.keys()


def test_contents_are_compared_with_the_facts_where_the_reader_wants_it() -> None:
    """Before a keyframe that is not done; after it, it is."""
    chunks = plain_chunks()
    chunks[1] = msgspec.structs.replace(chunks[1], said=(chunks[1].said or b"").replace(b"two", b"owt"))
    page = page_of(chunks)
    for eager in (True, False):
        assert len(contents_in(page, 3, eager)) == 2
        for checked_after in (0, 1):
            with pytest.raises(Corrupt, match="entry 2"):
                contents_in(page, checked_after, eager)


def test_an_erased_content_is_none() -> None:
    """An entry that never had one is not among them."""
    chunks = plain_chunks()
    chunks[0] = msgspec.structs.replace(chunks[0], said=erase(chunks[0].said, [0], "the test"))
    for eager in (True, False):
        found = contents_in(page_of(chunks), 9, eager)
        assert list(found) == [1, 2]
        assert found[1] is None
        assert isinstance(found[2], Message if eager else Raw)


def test_contents_of_damaged_chunks_are_called_corrupt() -> None:
    """With the entry, where it is known."""
    chunks = plain_chunks()
    torn = msgspec.structs.replace(chunks[1], said=b'[["torn')
    with pytest.raises(Corrupt, match="entry 2"):
        contents_in(page_of([chunks[0], torn, chunks[2]]), 9, True)
    torn = msgspec.structs.replace(chunks[1], facts=b'{"seq":')
    with pytest.raises(Corrupt, match="not a chunk"):
        contents_in(page_of([chunks[0], torn, chunks[2]]), 9, True)


def test_a_transcript_is_loaded_around_an_adapters_entries() -> None:
    """They are of no kind that it knows, and say nothing."""
    chunks = write(
        [
            (MessageAdded(role="user"), said("one"), None),
            (AdapterBody(data=1), None, "adapter.other.made"),
            (MessageAdded(role="user"), said("two"), None),
        ]
    )
    assert [message.text for message in loaded(chunks, True).messages] == ["one", "two"]


def loaded(chunks: Sequence[Chunk], with_said: bool, span: Span | None = None) -> Transcript:
    """A transcript of the messages in a span; without what was said, it is read when it is looked at."""
    transcript = Transcript(contents=contents_of(chunks))
    span = span or Span(1, chunks[-1].seq)
    transcript.load([span], [page_of_span(chunks, span, said=with_said)], "the test")
    return transcript


def folded(chunks: Sequence[Chunk]) -> Transcript:
    transcript = Transcript()
    for entry in one_by_one(chunks):
        transcript.apply(entry)
    return transcript


@pytest.mark.parametrize("with_said", [True, False])
def test_only_the_entries_of_a_span_are_loaded(with_said: bool) -> None:
    """The chunks at its ends hold others, too."""
    entries: NewEntries = [(MessageAdded(role="user"), said(str(n)), None) for n in range(1, 8)]
    chunks = write(entries[:3], entries[3:5], entries[5:])
    for first in range(1, 8):
        for last in range(first, 8):
            found = loaded(chunks, with_said, Span(first, last))
            assert [message.text for message in found.messages] == [str(n) for n in range(first, last + 1)]


BLOCKS = {
    "plain": b'{"kind":"text","text":"two"}',
    "a newer kind of block": b'{"kind":"smell","of":"rain"}',
    "a text that looks like a reference": b'{"kind":"text","text":"media+sha256:verbatim:oh"}',
    "a call": b'{"kind":"tool_call","id":"1","name":"look","args":{"at":[1,2]}}',
}


@pytest.mark.parametrize("with_said", [True, False])
@pytest.mark.parametrize("format", ["holdfast", "other"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_message_says_the_same_whether_it_is_decoded_with_its_page_or_later(
    with_said: bool, block: str, format: str
) -> None:
    """Also one in another format that looks like ours, and with whatever stands in the chunks beside it."""
    second = b'{"role":"user","blocks":[%b]}' % BLOCKS[block]
    chunks = write(
        [
            (MessageAdded(role="user"), said("one"), None),
            (MessageAdded(role="user", format=format), second, None),
        ],
        [
            (ModelReplied(), said("three"), None),
            (ModelReplied(), said("four")[:-1] + b',"id":"its own"}', None),
        ],
    )
    at_once, later = loaded(chunks, with_said), folded(chunks)
    assert [item.encode() for item in at_once.items] == [item.encode() for item in later.items]
    assert list(at_once.messages) == list(later.messages)
    assert [message.id for message in at_once.messages] == ["m1", "m2", "m3", "its own"]
    assert [message.at for message in at_once.messages] == [AT + timedelta(seconds=n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("with_said", [True, False])
def test_a_message_that_cannot_be_read_hinders_no_other(with_said: bool) -> None:
    """A reader of that message gets an error; readers of others do not."""
    chunks = write(
        [
            (MessageAdded(role="user"), said("one"), None),
            (MessageAdded(role="user"), b'{"role":"user","blocks":7}', None),
        ]
    )
    transcript = loaded(chunks, with_said)
    assert transcript.messages[0].text == "one"
    for _ in range(2):
        with pytest.raises(Corrupt, match="entry 2"):
            transcript.messages[1]


@pytest.mark.parametrize("with_said", [True, False])
@pytest.mark.parametrize("format", ["holdfast", "other"])
def test_nothing_holds_on_to_the_page(format: str, with_said: bool) -> None:
    """Neither a message that was not read, nor one with a blob, which keeps its stored form."""
    media = b'{"role":"user","blocks":[{"kind":"media","media_type":"a/b","data":"media+sha256://%b"}]}'
    chunks = write(
        [
            (MessageAdded(role="user", title="one"), said("one"), None),
            (MessageAdded(role="user", format=format), media % (64 * b"0"), None),
            (StateSet(key="colour", value=Raw(b'"red"')), None, None),
        ]
    )
    page = page_of(chunks)
    parts = [page.sums, page.facts, page.details, page.said]

    def read(spans: Sequence[Span], own: bool) -> dict[int, Content]:
        found = read_contents(page, "the test", checked_after=9, may_be_messages=False)
        return {seq: one.copy() if isinstance(one, Raw) else one for seq, one in found}

    before = [sys.getrefcount(part) for part in parts]
    transcript = Transcript(contents=Contents(read))
    transcript.load([Span(1, 3)], [page if with_said else page_of(chunks, False)], "the test")
    assert [sys.getrefcount(part) for part in parts] == before
    assert len(list(transcript.messages)) == 2
    assert [sys.getrefcount(part) for part in parts] == before
    assert transcript.items[1].encode() == media % (64 * b"0")
