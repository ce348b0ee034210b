"""Large content is taken out when it is saved and put back when it is read, in every format."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.content.encode import (
    Given,
    Packed,
    PackedResult,
    Sizes,
    pack_message,
    pack_result,
    pack_value,
    read_given,
)
from holdfast.content.extract import put_back
from holdfast.content.lazy import (
    BlobForeign,
    BlobMedia,
    BlobResult,
    Place,
    Shared,
    iter_lazy,
    late,
    read_foreign,
    read_own,
)
from holdfast.content.references import Reference, find_digests, get_digest, parse_reference, read_base64
from holdfast.core.values import Values
from holdfast.errors import BadInput, LostBlob, NewerFormat, NotFound
from holdfast.messages import ForeignMessage, Media, Message, Text, ToolResult
from tests.unit import shapes

SIZES = Sizes(inline_bytes=shapes.INLINE_BYTES, result_chars=200)
INLINE = Sizes(inline_bytes=None, result_chars=None)


class Pieces:
    """The blobs of what was packed."""

    def __init__(self, packed: Packed | PackedResult) -> None:
        self.data = {piece.digest: b"".join(piece.parts()) for piece in packed.pieces}
        assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in self.data.items())
        self.reads = 0

    def read(self, digest: str) -> Shared:
        self.reads += 1
        if digest not in self.data:
            raise NotFound("it is gone")
        return Shared(self.data[digest])

    def stream(self, digest: str) -> Iterator[bytes]:
        yield self.data[digest]

    async def link(self, digest: str) -> str | None:
        return None


def place(source: Pieces) -> Place:
    return Place("s", source, entry=7)


def foreign_again(data: Any, sizes: Sizes = SIZES) -> tuple[Packed, Pieces, ForeignMessage]:
    packed = pack_message(ForeignMessage(format="x", data=data, role="user"), sizes)
    pieces = Pieces(packed)
    bare = ForeignMessage(format="x", data=None, role="user")
    return packed, pieces, read_foreign(msgspec.Raw(packed.content), bare, place(pieces))


@pytest.mark.parametrize(
    "messages",
    [
        shapes.openai_chat,
        shapes.openai_responses,
        shapes.anthropic,
        shapes.langchain,
        shapes.pydantic_ai,
    ],
    ids=["openai-chat", "openai-responses", "anthropic", "langchain", "pydantic-ai"],
)
@pytest.mark.parametrize("sizes", [SIZES, INLINE], ids=["blobs", "inline"])
@settings(max_examples=30)
@given(data=st.data())
def test_a_foreign_message_is_given_back_byte_for_byte(
    messages: st.SearchStrategy[Any], sizes: Sizes, data: st.DataObject
) -> None:
    """Whatever it holds, also where nobody looks, and whatever looks like a reference."""
    message = data.draw(messages)
    packed, pieces, again = foreign_again(message, sizes)
    assert msgspec.json.encode(again.data) == msgspec.json.encode(message)
    assert set(pieces.data) <= find_digests(packed.content)
    assert sizes is SIZES or not pieces.data


@pytest.mark.parametrize(
    "shape",
    [
        lambda text: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}},
        lambda text: {"type": "input_image", "image_url": f"data:image/png;base64,{text}"},
        lambda text: {"type": "input_audio", "input_audio": {"data": text, "format": "wav"}},
        lambda text: {"type": "file", "file": {"file_data": text}},
        lambda text: {"type": "image_generation_call", "result": text},
        lambda text: {"type": "image", "source": {"type": "base64", "data": text}},
        lambda text: {"type": "image", "base64": text},
        lambda text: {"type": "media", "data": text},
        lambda text: {"kind": "binary", "media_type": "image/png", "data": text},
        lambda text: {"inline_data": {"mime_type": "image/png", "data": text}},
    ],
)
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_known_shapes_leave_no_bytes_behind(shape: Any, encode: Any) -> None:
    """In either alphabet, however deep."""
    image = bytes(range(256)) * 2
    text = encode(image).decode()
    packed, pieces, again = foreign_again({"content": [{"deep": [shape(text)]}]})
    assert list(pieces.data.values()) == [image]
    assert len(packed.content) < 400
    assert again.data == {"content": [{"deep": [shape(text)]}]}


def test_a_field_that_nobody_knows_stays_as_it_is() -> None:
    """However much it looks like base64; and so does base64 that would not be written so."""
    text = base64.b64encode(b"x" * 999).decode()
    odd = text[:76] + "\n" + text[76:]
    data = {"hash": text, "text": text, "result": text, "data": odd}
    packed, pieces, again = foreign_again(data)
    assert not pieces.data
    assert msgspec.json.decode(packed.content) == data
    assert type(again) is ForeignMessage


@given(message=shapes.own, sizes=st.sampled_from([SIZES, INLINE]))
def test_a_message_of_ours_is_given_back_as_it_was(message: Message, sizes: Sizes) -> None:
    """Equal without a look at its blobs, and equal after one."""
    packed = pack_message(message, sizes)
    pieces = Pieces(packed)
    again = read_own(msgspec.Raw(packed.content), place(pieces))
    if not any(isinstance(block, ToolResult) for block in message.blocks):
        assert again == message
        assert pieces.reads == 0
    for one in iter_lazy([again]):
        late(one).read()
    assert again == message
    assert [getattr(one, "data", None) for one in again.blocks] == [
        getattr(one, "data", None) for one in message.blocks
    ]
    for block in message.blocks:
        if isinstance(block, Media) and block.data is not None and len(block.data) >= shapes.INLINE_BYTES:
            assert (hashlib.sha256(block.data).hexdigest() in pieces.data) is (sizes is SIZES)
    # Once more, from what was read: it is stored the same.
    assert pack_message(again, sizes).content == packed.content


@given(value=shapes.unknown | shapes.media | st.lists(shapes.media | shapes.unknown, max_size=3))
def test_user_state_is_given_back_as_it_was(value: object) -> None:
    """Bytes anywhere in it, and what looks like a reference."""
    values = Values()
    packed = pack_value(values.encode(value), SIZES)
    pieces = Pieces(packed)
    data = put_back(msgspec.json.decode(packed.content), place(pieces).read)
    assert values.decode(msgspec.json.encode(data)) == value
    if isinstance(value, bytes) and len(value) >= shapes.INLINE_BYTES:
        assert list(pieces.data.values()) == [value]


@given(
    value=shapes.unknown | shapes.media.map(shapes.plain) | st.text(min_size=150, max_size=400),
    parts=st.lists(shapes.own_text | shapes.own_media, max_size=2).map(tuple),
    homeless=st.booleans(),
)
def test_a_result_is_given_back_as_it_was(
    value: Any, parts: tuple[Text | Media, ...], homeless: bool
) -> None:
    """Its value, its parts, and all of its text if that was too long to be shown."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    packed = pack_result(Given(text=text, value=value, parts=parts), SIZES, homeless=homeless)
    pieces = Pieces(packed)
    again = read_given(msgspec.Raw(packed.content), place(pieces), whole=True)
    assert msgspec.json.encode(again.value) == msgspec.json.encode(value)
    assert again.parts == parts
    assert (again.text == text) or (homeless and len(text) > 200)
    assert not (homeless and pieces.data)


def test_a_long_text_is_stored_once_although_it_is_text_and_value() -> None:
    """And a long value is stored as the text that it was shown as."""
    value = {"rows": ["x" * 50] * 100}
    text = msgspec.json.encode(value).decode()
    packed = pack_result(Given(text=text, value=value), SIZES)
    assert list(Pieces(packed).data.values()) == [text.encode()]
    assert len(packed.content) < 1000
    assert "5,160 of 5,310 characters are left out here" in packed.shown
    assert packed.shown.startswith(text[:100])
    assert packed.shown.endswith(text[-50:])


def test_a_lost_blob_names_session_entry_and_digest() -> None:
    """The rest of the message is there, and the part says that it is lost."""
    image = b"i" * 500
    packed = pack_message(
        Message(role="user", blocks=(Text("see"), Media(media_type="image/png", data=image))), SIZES
    )
    pieces = Pieces(packed)
    pieces.data.clear()
    again = read_own(msgspec.Raw(packed.content), place(pieces))
    assert again.text == "see"
    media = again.blocks[1]
    assert isinstance(media, BlobMedia)
    assert media.lost is None
    digest = hashlib.sha256(image).hexdigest()
    with pytest.raises(
        LostBlob, match=f"session 's', entry 7: blob {digest} cannot be read: it is gone"
    ) as lost:
        _ = media.data
    assert (lost.value.session, lost.value.entry, lost.value.digest) == ("s", 7, digest)
    assert media.lost is lost.value


def test_a_blob_is_read_once() -> None:
    """However often somebody looks; not at all if nobody does."""
    _, pieces, again = foreign_again({"content": "hi", "data": shapes.plain(b"i" * 500)})
    assert isinstance(again, BlobForeign)
    assert (again.text, pieces.reads) == ("hi", 0)
    assert again.data is again.data
    assert pieces.reads == 1


def test_what_is_read_late_equals_what_was_said_and_has_no_hash() -> None:
    """Whoever is equal must hash alike, and a hash of the bytes would have to read them."""
    said = Message(role="user", blocks=(Media(media_type="image/png", data=b"i" * 500),))
    packed = pack_message(said, SIZES)
    (media,) = read_own(msgspec.Raw(packed.content), place(Pieces(packed))).blocks
    assert isinstance(media, BlobMedia)
    assert media == said.blocks[0]
    assert all(vars(one)["__hash__"] is None for one in (BlobMedia, BlobResult, BlobForeign))
    with pytest.raises(TypeError, match="unhashable"):
        hash(media)


def test_a_reference_of_a_newer_version_is_refused() -> None:
    """It is not shown as if somebody had said it."""
    with pytest.raises(NewerFormat, match="upgrade"):
        parse_reference(f"media+sha256://{shapes.DIGEST}?as=zstd")
    with pytest.raises(BadInput, match="names no blob"):
        get_digest("media+sha256://beef")


@given(data=st.binary(max_size=40), bare=st.booleans(), url=st.booleans())
def test_base64_is_read_only_if_it_would_be_written_so(data: bytes, bare: bool, url: bool) -> None:
    """In both alphabets, with and without padding."""
    text = (base64.urlsafe_b64encode if url else base64.b64encode)(data).decode()
    text = text.rstrip("=") if bare else text
    found = read_base64(text)
    assert found is not None
    assert found[0] == data
    assert Reference("0" * 64, found[1], "data:,").put_back(data) == f"data:,{text}"
    assert read_base64(text + "\n") is None


def test_references_are_found_wherever_they_may_stand() -> None:
    """With slashes escaped, and when they only look like one: rather keep a blob too long."""
    line = rb'{"a":"media+sha256://%s","b":"x media+sha256:\/\/%s","c":"media+sha256:verbatim://%s"}'
    digests = ["1" * 64, "2" * 64, "3" * 64]
    assert find_digests(line % tuple(map(str.encode, digests))) == set(digests)
