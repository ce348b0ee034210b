"""Many lines opened at once say what they say one by one, and what is wrong with one is said the same way."""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given

from holdfast.core.batch_decode import Lines, Opened, Opener, line_type
from holdfast.core.codec import GENESIS, Sealed, erase, open_line, parse, seal
from holdfast.core.entries import (
    KINDS,
    AdapterBody,
    Body,
    CheckpointTaken,
    MessageAdded,
    ModelReplied,
    Span,
    StateSet,
    UnknownBody,
)
from holdfast.core.transcript import Transcript
from holdfast.errors import Corrupt, NewerFormat
from holdfast.limits import OPEN_LINES
from tests.unit.journals import Plot, Script, perform, plots

AT = datetime(2026, 11, 15, 19, 29, 38, 123456, tzinfo=UTC)
WANTED = ("message.added", "model.replied", "checkpoint.taken")
OPENER = Opener(WANTED, msgspec.json.Decoder(line_type({kind: KINDS[kind] for kind in WANTED})))

# In one piece, as SQLite gives them, and each by itself.
FORMS: list[Callable[[Sequence[bytes]], Sequence[bytes]]] = [
    list,
    lambda lines: Lines(b"\n".join(lines), len(lines)),
]
every_form = pytest.mark.parametrize("form", FORMS, ids=["apart", "in one piece"])


def said(text: str) -> bytes:
    return b'{"role":"user","blocks":[{"kind":"text","text":"%b"}]}' % text.encode()


def write(*entries: tuple[Body, bytes | None, str | None]) -> list[bytes]:
    """Lines of a journal; a kind of None is the body's own."""
    sealed: list[Sealed] = []
    for seq, (body, content, kind) in enumerate(entries, start=1):
        after = sealed[-1].sum if sealed else GENESIS
        sealed.append(seal(body, seq, AT + timedelta(seconds=seq), None, 1, after, content, kind=kind))
    return [one.line for one in sealed]


def plain_lines() -> list[bytes]:
    """What most journals are made of."""
    return write(
        (MessageAdded(role="user"), said("one"), None),
        (ModelReplied(), said("two"), None),
        (StateSet(key="colour"), b'"red"', None),
        (CheckpointTaken(version=1), None, None),
    )


def one_by_one(lines: Sequence[bytes]) -> list[Opened]:
    parsed = [parse(line, "the test") for line in lines]
    return [open_line(line, "the test") for line in parsed if line.kind in WANTED]


def facts(opened: Sequence[Opened]) -> list[tuple[object, ...]]:
    """What can be seen of lines of the wanted kinds, and of those that nobody can read."""
    return [
        (one.seq, one.at, one.body, bytes(one.content) if isinstance(one.content, msgspec.Raw) else None)
        for one in opened
        if isinstance(one.body, UnknownBody) or one.body.__class__ in {KINDS[kind] for kind in WANTED}
    ]


@every_form
@given(plot=plots)
def test_lines_opened_at_once_say_what_they_say_one_by_one(
    form: Callable[[Sequence[bytes]], Sequence[bytes]], plot: Plot
) -> None:
    """Number, time, body and content of every line of a wanted kind, in order."""
    lines = [one.line for one in perform(Script(), plot).sealed]
    found = facts(list(OPENER.open(form(lines), "the test"))) if lines else []
    assert found == facts(one_by_one(lines))


@every_form
def test_an_erased_line_has_no_content(form: Callable[[Sequence[bytes]], Sequence[bytes]]) -> None:
    """Its body and its place are as they were."""
    lines = plain_lines()
    lines[0] = erase(lines[0], "the test")
    opened = list(OPENER.open(form(lines), "the test"))
    assert opened[0].content is None
    assert opened[0].body == MessageAdded(role="user")
    assert opened[1].content is not None


@every_form
@pytest.mark.parametrize(
    "newer",
    [
        pytest.param((MessageAdded(role="user"), said("hm"), "message.sung"), id="a newer kind"),
        pytest.param((AdapterBody(data={"a": 1}), None, "adapter.other.made"), id="an adapter's kind"),
    ],
)
def test_lines_of_other_kinds_do_not_keep_the_rest_from_being_read(
    form: Callable[[Sequence[bytes]], Sequence[bytes]], newer: tuple[Body, bytes | None, str | None]
) -> None:
    """An unknown kind among known ones is left out, and the others are what they are without it."""
    lines = write(
        (MessageAdded(role="user"), said("one"), None), newer, (CheckpointTaken(version=1), None, None)
    )
    opened = list(OPENER.open(form(lines), "the test"))
    assert facts(opened) == facts(one_by_one(lines))
    assert [one.seq for one in opened] == [1, 3]


@every_form
def test_a_newer_value_in_a_known_kind_is_kept_as_it_is(
    form: Callable[[Sequence[bytes]], Sequence[bytes]],
) -> None:
    """The line is one that this version does not understand; the others are understood."""
    lines = plain_lines()
    lines[0] = lines[0].replace(b'"body":{"role":"user"}', b'"body":{"role":"chorus"}')
    opened = list(OPENER.open(form(lines), "the test"))
    assert isinstance(opened[0].body, UnknownBody)
    assert bytes(opened[0].body.data) == b'{"role":"chorus"}'
    assert facts(opened) == facts(one_by_one(lines))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda line: line[:-20],
    "nothing": lambda line: b"",
    "two in one": lambda line: line + b" " + line,
    "no sum": lambda line: line[: line.index(b',"sum"')] + b"}",
    "not text": lambda line: line.replace(b'"kind":"', b'"kind":"\xff'),
    "a time that is none": lambda line: line.replace(b'"at":"2026', b'"at":"year'),
    "a salt that is no text": lambda line: line.replace(b'"salt":"', b'"salt":1,"_":"'),
}


@every_form
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_named_as_if_it_were_read_alone(
    form: Callable[[Sequence[bytes]], Sequence[bytes]], damage: str
) -> None:
    """`Corrupt`, with the same words."""
    lines = plain_lines()
    lines[1] = DAMAGES[damage](lines[1])
    with pytest.raises(Corrupt) as alone:
        one_by_one(lines)
    with pytest.raises(Corrupt) as together:
        list(OPENER.open(form(lines), "the test"))
    assert str(together.value) == str(alone.value)
    assert together.value.seq == alone.value.seq


@every_form
def test_a_line_of_a_newer_format_is_refused(form: Callable[[Sequence[bytes]], Sequence[bytes]]) -> None:
    """As `parse` refuses it, wherever in the batch it is."""
    lines = plain_lines()
    lines[2] = lines[2].replace(b'{"v":1,', b'{"v":2,')
    with pytest.raises(NewerFormat, match="entry 3 has format 2"):
        list(OPENER.open(form(lines), "the test"))


def test_more_lines_than_fit_a_batch_are_all_there_in_order() -> None:
    """Also when one of the batches has to be read one by one."""
    count = 2 * OPEN_LINES + 3
    lines = write(*[(MessageAdded(role="user"), said(str(number)), None) for number in range(count)])
    lines[OPEN_LINES + 5] = lines[OPEN_LINES + 5].replace(b'"message.added"', b'"message.sung"')
    opened = list(OPENER.open(lines, "the test"))
    assert [one.seq for one in opened] == [seq for seq in range(1, count + 1) if seq != OPEN_LINES + 6]
    assert facts(opened) == facts(one_by_one(lines))


def test_a_transcript_is_loaded_around_an_adapters_lines() -> None:
    """They are of no kind that a batch knows, and say nothing."""
    lines = write(
        (MessageAdded(role="user"), said("one"), None),
        (AdapterBody(data=1), None, "adapter.other.made"),
        (MessageAdded(role="user"), said("two"), None),
    )
    transcript = Transcript()
    transcript.load([Span(1, 3)], [lines], "the test")
    assert [message.text for message in transcript.messages] == ["one", "two"]


def loaded(lines: Sequence[bytes]) -> Transcript:
    transcript = Transcript()
    transcript.load([Span(1, len(lines))], [lines], "the test")
    return transcript


def folded(lines: Sequence[bytes]) -> Transcript:
    transcript = Transcript()
    for line in lines:
        transcript.apply(open_line(parse(line, "the test"), "the test"))
    return transcript


BLOCKS = {
    "plain": b'{"kind":"text","text":"two"}',
    "a newer kind of block": b'{"kind":"smell","of":"rain"}',
    "a text that looks like a reference": b'{"kind":"text","text":"media+sha256:verbatim:oh"}',
    "a call": b'{"kind":"tool_call","id":"1","name":"look","args":{"at":[1,2]}}',
}


@every_form
@pytest.mark.parametrize("format", ["holdfast", "other"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_message_says_the_same_whether_it_is_decoded_with_its_line_or_later(
    form: Callable[[Sequence[bytes]], Sequence[bytes]], block: str, format: str
) -> None:
    """Also one in another format that looks like ours, and with whatever stands in the lines beside it."""
    second = b'{"role":"user","blocks":[%b]}' % BLOCKS[block]
    lines = write(
        (MessageAdded(role="user"), said("one"), None),
        (MessageAdded(role="user", format=format), second, None),
        (ModelReplied(), None, None),
        (ModelReplied(), said("three")[:-1] + b',"id":"its own"}', None),
    )
    at_once, later = loaded(form(lines)), folded(lines)
    assert [item.encode() for item in at_once.items] == [item.encode() for item in later.items]
    assert list(at_once.messages) == list(later.messages)
    assert [message.id for message in at_once.messages] == ["m1", "m2", "m3", "its own"]
    assert [message.at for message in at_once.messages] == [AT + timedelta(seconds=n) for n in (1, 2, 3, 4)]


@every_form
def test_a_message_that_cannot_be_read_hinders_no_other(
    form: Callable[[Sequence[bytes]], Sequence[bytes]],
) -> None:
    """Whoever looks at it is told, and nobody else."""
    lines = write(
        (MessageAdded(role="user"), said("one"), None),
        (MessageAdded(role="user"), b'{"role":"user","blocks":7}', None),
    )
    transcript = loaded(form(lines))
    assert transcript.messages[0].text == "one"
    with pytest.raises(Corrupt, match="entry 2"):
        transcript.messages[1]


@pytest.mark.parametrize("format", ["holdfast", "other"])
def test_nothing_holds_on_to_the_lines(format: str) -> None:
    """Neither a message that nobody has looked at, nor one with a blob, which remembers how it is stored."""
    media = b'{"role":"user","blocks":[{"kind":"media","media_type":"a/b","data":"media+sha256://%b"}]}'
    lines = write(
        (MessageAdded(role="user"), said("one"), None),
        (MessageAdded(role="user", format=format), media % (64 * b"0"), None),
    )
    joined = b"\n".join(lines)
    before = sys.getrefcount(joined)
    transcript = Transcript()
    transcript.load([Span(1, 2)], [Lines(joined, 2)], "the test")
    assert sys.getrefcount(joined) == before
    assert len(list(transcript.messages)) == 2
    assert sys.getrefcount(joined) == before
    assert transcript.items[1].encode() == media % (64 * b"0")


def test_lines_in_one_piece_are_a_sequence_like_any_other() -> None:
    """They have a length, places, slices and an order, and are equal to the same lines apart."""
    lines = plain_lines()
    joined = Lines(b"\n".join(lines), len(lines))
    assert len(joined) == 4
    assert list(joined) == lines
    assert joined[0] == lines[0]
    assert joined[-1] == lines[-1]
    assert joined[1:3] == lines[1:3]
    assert joined == lines
    assert joined == Lines(joined.joined, 4)
    assert joined != lines[:-1]
    assert joined != b"\n".join(lines).decode()
