"""The items of a transcript, and the messages in them, which are read and decoded on first access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeAlias, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import force_setattr, replace

from ..content.lazy import (
    NO_BLOBS,
    BlobReader,
    has_marks,
    lazy_result,
    read_content,
    read_foreign,
    read_own,
    read_parts,
)
from ..content.model_input import read_all, with_urls
from ..errors import Corrupt
from ..limits import READ_AHEAD
from ..messages import (
    OWN,
    AnyMessage,
    ForeignMessage,
    Json,
    Message,
    Part,
    Role,
    Text,
    ToolResult,
    decode_message,
    encode_message,
)
from ..system import threads
from .entries import CallRef, Span

Content: TypeAlias = Raw | Message | None
"""A content as it is stored, or a message of our format that was decoded with its page; None if erased."""


class Contents:
    """The contents of a journal that was read without them. The first look at one of them reads all that the
    transcript needs, in one go. Blocks then.

    Items refer to this, and this refers to no item: they are not tracked by the garbage collector.
    """

    def __init__(self, read: Callable[[Sequence[Span], bool], dict[int, Content]] | None) -> None:
        """`read` gets the spans to read, and whether all messages in them are of our format."""
        self._read = read
        self._lock = threads.Lock()
        self._found: dict[int, Content] = {}
        self._there: list[Span] = []
        self.live: Iterable[Span] = ()
        """The spans of the journal that the transcript consists of."""
        self.unread_to = 0
        """The last entry whose content may not be in memory."""
        self.has_foreign = False
        """Whether one of the messages is in the format of another library."""

    def fill(self, item: Item | ResultItem, seq: int) -> None:
        """Give the content of an entry to its item, which keeps it."""
        with self._lock:
            if item.content is not UNSET:
                return  # Another thread was faster.
            if not _contain(self._there, seq):
                self._fetch(seq)
            item.content = self._found.pop(seq, None)

    def note_read(self, span: Span) -> None:
        """Contents of these entries need not be read: their items have them."""
        self._there.append(span)

    @property
    def are_missing(self) -> bool:
        """Whether the transcript needs contents that were not read."""
        return bool(self._find_missing())

    def fetch(self) -> None:
        """Read everything that the transcript needs and that is not in memory. Blocks."""
        with self._lock:
            if self.are_missing:
                self._fetch()

    def _find_missing(self) -> list[Span]:
        """The parts of the live spans that were not read."""
        missing: list[Span] = []
        for span in self.live:
            first, last = span.first, min(span.last, self.unread_to)
            for there in sorted(self._there):
                if first < there.first <= last:
                    missing.append(Span(first, there.first - 1))
                if there.first <= last:
                    first = max(first, there.last + 1)
            if first <= last:
                missing.append(Span(first, last))
        return missing

    def _fetch(self, seq: int | None = None) -> None:
        assert self._read is not None, "a journal that was read without its contents, and without a store"
        spans = self._find_missing()
        if seq is not None and not _contain(spans, seq):
            spans = [Span(seq, seq)]  # Of a message that a rewind has left behind.
        self._found.update(self._read(spans, not self.has_foreign))
        self._there += spans


def _contain(spans: Iterable[Span], seq: int) -> bool:
    return any(span.first <= seq <= span.last for span in spans)


NO_CONTENTS: Final = Contents(None)
"""For items whose contents are in memory."""


class ResultItem(Struct, gc=False):
    """The result of one call of a reply, decoded when it is read."""

    seq: int
    at: datetime
    call: CallRef
    content: Content | UnsetType
    is_error: bool
    replay_of: str | None
    blobs: BlobReader = NO_BLOBS
    contents: Contents = NO_CONTENTS
    result: ToolResult | None = None

    def read(self) -> ToolResult:
        """The result; `Corrupt` if the content is none."""
        if self.content is UNSET:
            self.contents.fill(self, self.seq)
        # Before the result is looked for: a thread that has decoded it lets go of the content after that.
        content = self.content
        if self.result is None:
            assert not isinstance(content, Message | UnsetType)
            try:
                self.result = self._decode(content)
            except (msgspec.MsgspecError, LookupError, RecursionError, TypeError, ValueError) as error:
                where = f"session {self.blobs.session!r}"
                raise Corrupt(where, f"its content is no result ({error})", seq=self.seq) from error
            self.content = None
        return self.result

    def _decode(self, content: Raw | None) -> ToolResult:
        said = read_content(content)
        here = self.blobs.at(self.seq)
        result = ToolResult(
            call_id=self.call.id,
            content=read_parts(said.parts, here) if said.parts else said.text,
            is_error=self.is_error or said.unkept,
            value=said.value,
            replay_of=self.replay_of,
            metadata={"full": said.full, "chars": said.chars} if said.full else {},
        )
        return lazy_result(result, said.value, here) if content is not None and has_marks(content) else result


class Item(Struct, gc=False):
    """One message of the transcript: the entry that recorded it, and its content, decoded when it is read.

    The results of a reply share one item: `results`, by the position of their call.
    """

    seq: int
    at: datetime
    role: Role
    parts: tuple[Part, ...]
    content: Raw | AnyMessage | UnsetType | None
    """As it is stored, as it was decoded with its page, or as it was read: then with an id and a time.
    `UNSET`: it is not in memory."""
    format: str = OWN
    results: dict[int, ResultItem] | None = None
    inbox: int | None = None
    blobs: BlobReader = NO_BLOBS
    contents: Contents = NO_CONTENTS
    stored: Raw | None = None
    """The bytes in the journal, if reading them replaced `content`."""
    entry: int | None = None
    """The entry that holds the content, if it is another one."""

    def fetch(self) -> Raw | AnyMessage | None:
        """The content, in memory."""
        if self.content is UNSET:
            self.contents.fill(self, self.entry or self.seq)
        assert not isinstance(self.content, UnsetType)
        return self.content

    def encode(self) -> bytes | None:
        """The message as it is stored; None if it was erased."""
        content = self.fetch()
        if self.stored is not None:
            return bytes(self.stored)
        if isinstance(content, Message | ForeignMessage):
            return encode_message(content)
        return None if content is None else bytes(content)

    def read(self) -> AnyMessage:
        """The message, with the id and time of its entry if it has none of its own."""
        content = self.content
        if content is UNSET:
            content = self.fetch()
        if isinstance(content, Message):
            return content if content.id and content.at else self._named(content)
        if isinstance(content, ForeignMessage):
            return content
        id = f"m{self.seq}"
        if self.results is not None:
            blocks = tuple(self.results[index].read() for index in sorted(self.results))
            # Not kept: another result may still join.
            return Message(role="tool", blocks=blocks, id=f"{id}-results", at=self.at)
        try:
            message = self._decode(content, id)
        except (msgspec.MsgspecError, LookupError, RecursionError, TypeError, ValueError) as error:
            where = f"session {self.blobs.session!r}"
            raise Corrupt(where, f"its content is no message ({error})", seq=self.seq) from error
        self.content = message
        return message

    def _decode(self, content: Raw | None, id: str) -> AnyMessage:
        if content is None:
            return Message(role=self.role, blocks=(Text("[erased]"),), id=id, at=self.at, metadata=_ERASED)
        if self.format == OWN:
            return self._named(self._read_own(content))
        return self._read_foreign(content, id)

    def _named(self, message: Message) -> Message:
        # It was made for this item and is not shared, so it can be changed in place.
        if message.id is None:
            force_setattr(message, "id", f"m{self.seq}")
        if message.at is None:
            force_setattr(message, "at", self.at)
        return message

    def _read_own(self, content: Raw) -> Message:
        if not has_marks(content):
            return decode_message(content)
        self.stored = content
        return read_own(content, self.blobs.at(self.seq))

    def _read_foreign(self, content: Raw, id: str) -> ForeignMessage:
        message = ForeignMessage(
            format=self.format, data=None, role=self.role, parts=self.parts, id=id, at=self.at
        )
        if not has_marks(content):
            return replace(message, data=msgspec.json.decode(content))
        self.stored = content
        return read_foreign(content, message, self.blobs.at(self.seq))


_ERASED: dict[str, Json] = {"erased": True}
_decode_all = msgspec.json.Decoder(list[Message]).decode


def _read_ahead(items: Sequence[Item]) -> None:
    """Decode the messages of all these items at once, if they are of our format and have no blobs.

    Others are left to `Item.read`.
    """
    # Each content is read once: another thread may replace it meanwhile.
    waiting = [
        (item, content) for item in items if isinstance(content := item.fetch(), Raw) and item.format == OWN
    ]
    data = b"[%b]" % b",".join([content for _, content in waiting])
    if has_marks(data):
        return
    try:
        messages = _decode_all(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for (item, _), message in zip(waiting, messages, strict=True):
        item.content = message


_UNDECODED: Final = frozenset({Raw, UnsetType})


class Messages(Sequence[AnyMessage]):
    """The messages, oldest first; a view that follows the session."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[AnyMessage]:
        ahead = 0
        for place, item in enumerate(self._items):
            if item.content.__class__ in _UNDECODED and place >= ahead:
                ahead = place + READ_AHEAD
                _read_ahead(self._items[place:ahead])
            yield item.read()

    @overload
    def __getitem__(self, index: int) -> AnyMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnyMessage]: ...
    def __getitem__(self, index: int | slice) -> AnyMessage | Sequence[AnyMessage]:
        if isinstance(index, slice):
            return list(Messages(self._items[index]))
        return self._items[index].read()

    def __repr__(self) -> str:
        return f"<{len(self)} messages>"

    async def read(self) -> Messages:
        """Read all media into memory, so that later access does not block; returns itself."""
        await read_all(self)
        return self

    async def with_urls(self) -> list[AnyMessage]:
        """The messages with links in place of bytes, for models that accept them.

        Only bytes in blobs have links, and only if the home of the blobs offers them; the rest is unchanged.
        """
        return await with_urls(self)
