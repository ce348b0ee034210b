"""Walking a transcript decodes messages many at a time, and gives what looking at each gives."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Raw

from holdfast.content.lazy import BlobMedia
from holdfast.core.transcript_items import Item, Messages
from holdfast.limits import READ_AHEAD
from holdfast.messages import ForeignMessage, Message, Text, UnknownBlock

AT = datetime(2026, 1, 1, tzinfo=UTC)
BLOB = "media+sha256://" + 64 * "0"


def own(*blocks: object, **more: object) -> Raw:
    return Raw(msgspec.json.encode({"role": "user", "blocks": blocks, **more}))


def text(said: str) -> dict[str, str]:
    return {"kind": "text", "text": said}


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
    """Whoever comes second finds messages decoded that it was about to decode."""
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
    """There is none here, and nobody misses it before somebody looks."""
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
