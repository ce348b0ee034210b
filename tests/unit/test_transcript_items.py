"""Walking a transcript decodes messages many at a time, and gives what looking at each gives."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import UNSET, Raw

from holdfast.content.lazy import BlobMedia
from holdfast.core.entries import CallRef, Span
from holdfast.core.transcript_items import Content, Contents, Item, Messages, ResultItem
from holdfast.errors import Corrupt
from holdfast.limits import READ_AHEAD
from holdfast.messages import ForeignMessage, Message, Text, UnknownBlock

AT = datetime(2026, 1, 1, tzinfo=UTC)
BLOB = "media+sha256://" + 64 * "0"


def own(*blocks: object, **more: object) -> Raw:
    return Raw(msgspec.json.encode({"role": "user", "blocks": blocks, **more}))


def text(said: str) -> dict[str, str]:
    return {"kind": "text", "text": said}


def own_text(said: str) -> Raw:
    return own(text(said))


def items_of(contents: Sequence[Raw | None], format: str = "holdfast") -> list[Item]:
    return [Item(seq, AT, "user", (), one, format) for seq, one in enumerate(contents, start=1)]


ODD: dict[str, Raw | None] = {
    "with an id and a time of its own": own(text("x"), id="mine", at="2025-01-01T00:00:00Z"),
    "erased": None,
    "with a blob": own({"kind": "media", "media_type": "image/png", "data": BLOB}),
    "that speaks of a blob": own(text("media+sha256:verbatim:media+sha256://")),
    "with a block of a newer version": own({"kind": "hologram", "depth": 3}),
}


@pytest.mark.parametrize("odd", ODD)
def test_walking_gives_what_looking_at_each_message_gives(odd: str) -> None:
    """Also beside a message that cannot be decoded with the others."""
    contents = [own(text(str(number))) for number in range(2 * READ_AHEAD)]
    both = [*contents[:5], ODD[odd], *contents[5:]]
    walked, alone = items_of(both), items_of(both)
    assert list(Messages(walked)) == [item.read() for item in alone]
    assert [item.encode() for item in walked] == [item.encode() for item in alone]
    assert Messages(items_of(both))[3:9] == [item.read() for item in alone[3:9]]


def test_several_threads_can_walk_one_transcript() -> None:
    """The second thread finds messages decoded that it was about to decode."""
    contents = [own(text(str(number))) for number in range(4 * READ_AHEAD)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            for _ in range(50):
                messages = Messages(items_of(contents))
                walks = [threads.submit(list, messages) for _ in range(2)]
                assert walks[0].result() == walks[1].result()
    finally:
        sys.setswitchinterval(before)


def unread(stored: dict[int, Content]) -> Contents:
    """Contents that are read when one of them is looked at."""

    def read(spans: Sequence[Span], own: bool) -> dict[int, Content]:
        assert list(spans) == [Span(1, max(stored))]
        return dict(stored)

    contents = Contents(read)
    contents.live, contents.unread_to = [Span(1, max(stored))], max(stored)
    return contents


def test_contents_are_read_once_when_the_first_is_looked_at() -> None:
    """Each item keeps its own; an entry without one was erased."""
    reads = []

    def read(spans: Sequence[Span], own: bool) -> dict[int, Content]:
        reads.append((list(spans), own))
        return {1: own_text("a"), 2: None, 3: own_text("c")}

    contents = Contents(read)
    contents.live, contents.unread_to = [Span(1, 3), Span(7, 9)], 8
    items = [Item(seq, AT, "user", (), UNSET, contents=contents) for seq in (1, 2, 3, 8)]
    assert reads == []
    assert contents.are_missing
    assert [message.text for message in Messages(items)] == ["a", "[erased]", "c", "[erased]"]
    assert reads == [([Span(1, 3), Span(7, 8)], True)]
    assert not contents.are_missing


def test_several_threads_can_look_at_what_is_not_in_memory() -> None:
    """Each gets the message and the result, and none of them takes what the other is about to read."""
    count = 8
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(100):
                stored: dict[int, Content] = {seq: own_text(str(seq)) for seq in range(1, count)}
                stored[count] = Raw(b'{"text":"found"}')
                contents = unread(stored)
                items = [Item(seq, AT, "user", (), UNSET, contents=contents) for seq in range(1, count)]
                result = ResultItem(count, AT, CallRef(id="c"), UNSET, False, None, contents=contents)
                looks = [threads.submit(list, Messages(items)) for _ in range(2)]
                others = [threads.submit(result.read) for _ in range(2)]
                texts = [str(seq) for seq in range(1, count)]
                assert [[message.text for message in look.result()] for look in looks] == [texts, texts]
                assert [look.result().content for look in others] == ["found", "found"]
    finally:
        sys.setswitchinterval(before)


def test_what_cannot_be_read_is_an_error_each_time() -> None:
    """Not an erased message or an empty result at the second look."""
    contents = unread({1: Raw(b'{"role":"user","blocks":7}'), 2: Raw(b'{"text":7}')})
    message = Item(1, AT, "user", (), UNSET, contents=contents)
    result = ResultItem(2, AT, CallRef(id="c"), UNSET, False, None, contents=contents)
    for _ in range(2):
        with pytest.raises(Corrupt, match="entry 1"):
            message.read()
        with pytest.raises(Corrupt, match="entry 2"):
            result.read()


def test_every_message_has_the_journals_id_and_time() -> None:
    """Where it has none of its own."""
    walked = list(Messages(items_of([own(text("a")), own(text("b"), id="mine")])))
    assert [(message.id, message.at) for message in walked] == [("m1", AT), ("mine", AT)]


def test_a_foreign_message_that_looks_like_ours_stays_foreign() -> None:
    """Its format says whose it is, not what it looks like."""
    ours, theirs = items_of([own(text("a"))]), items_of([own(text("a"))], "other")
    first, second = Messages([*ours, *theirs])
    assert isinstance(first, Message)
    assert isinstance(second, ForeignMessage)
    assert second.data == {"role": "user", "blocks": [text("a")]}


def test_walking_reads_no_blob() -> None:
    """There is none here, which is no error before the first access."""
    message = list(Messages(items_of([own(text("a")), ODD["with a blob"]])))[1]
    assert isinstance(message, Message)
    assert isinstance(message.blocks[0], BlobMedia)


def test_a_block_of_a_newer_version_is_kept_as_it_is() -> None:
    """The others beside it are messages like any other."""
    odd = ODD["with a block of a newer version"]
    found = list(Messages(items_of([own(text("a")), odd])))
    assert [message.text for message in found] == ["a", ""]
    assert isinstance(found[1], Message)
    assert found[1].blocks == (UnknownBlock({"kind": "hologram", "depth": 3}),)


def test_whoever_walks_sees_what_is_added_meanwhile() -> None:
    """The view follows the session."""
    items = items_of([own(text("a"))])
    seen = []
    for message in Messages(items):
        seen.append(message.text)
        if len(items) == 1:
            items.append(Item(2, AT, "user", (), own(text("b"))))
    assert seen == ["a", "b"]


def test_whoever_looks_at_the_first_message_does_not_decode_them_all() -> None:
    """Only as many as are decoded at once."""
    items = items_of([own(text("a"))] * 3 * READ_AHEAD)
    assert next(iter(Messages(items))) == Message(role="user", blocks=(Text("a"),), id="m1", at=AT)
    assert isinstance(items[-1].content, Raw)


def test_a_message_is_decoded_once() -> None:
    """Who walks again gets the same objects."""
    messages = Messages(items_of([own(text("a")), own(text("b"))]))
    assert [id(message) for message in messages] == [id(message) for message in messages]
    assert messages[0] is next(iter(messages))
