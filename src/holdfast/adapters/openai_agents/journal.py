"""The journals of `HoldfastSession`: ordinary sessions whose messages are items, written without a lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from ...content.encode import Packed
from ...core.entries import CheckpointTaken, MessageAdded, SessionOpened, SessionRewound, Span
from ...core.transcript_items import Item as TranscriptItem
from ...engine.engine import Engine
from ...ids import SessionId, fit_session_id, fresh_uid, label_of_original
from ...limits import ADAPTER_CACHE_BYTES, ITEMS_PER_VERSION
from ...messages import ForeignMessage
from ..leaseless_journal import EntryToWrite, LeaselessJournal, LeaselessJournals, Outdated
from .items import StoredMessage

T = TypeVar("T")
LABELS = {"agent_framework": "openai-agents"}
_OPEN_BYTES = 1024
"""What an open journal takes in memory beside its messages."""


def labels_of(session_id: str) -> dict[str, str]:
    """The labels of the session that has the items of theirs with this id."""
    if fit_session_id(session_id) == session_id:
        return dict(LABELS)
    return {**LABELS, "session": label_of_original(session_id)}


class MessageToWrite(EntryToWrite, frozen=True, kw_only=True):
    """The entry of one message."""

    items: int
    """How many items it has."""

    @classmethod
    def of(cls, message: ForeignMessage, packed: Packed) -> MessageToWrite:
        """The entry that adds a message."""
        return cls(
            body=MessageAdded(role=message.role, parts=message.parts, format=message.format),
            content=packed.content,
            pieces=packed.pieces,
            items=len(message.data["items"]),
        )


class ItemsJournal(LeaselessJournal[tuple[SessionId, str]]):
    """The journal of one session. Its key has their id of the session, too."""

    FOLD: ClassVar = None

    def __init__(self, engine: Engine, key: tuple[SessionId, str]) -> None:
        super().__init__(engine, key, key[0])
        self.memory_bytes = _OPEN_BYTES

    def begin(self, entries: Sequence[EntryToWrite]) -> list[EntryToWrite]:
        opened = SessionOpened(id=self.session, uid=fresh_uid(), labels=labels_of(self.key[1]))
        return [EntryToWrite(body=opened)]

    def complete(self, one: EntryToWrite) -> EntryToWrite:
        if not isinstance(one.body, CheckpointTaken):
            return one
        state = self.state
        why = tuple(str(problem) for problem in state.problems)
        return replace(one, body=CheckpointTaken(version=state.facts.head.version + 1, why=why))

    # -- reading -------------------------------------------------------------------------------------

    def list_messages(self, count: int | None = None) -> list[StoredMessage]:
        """The messages, or the last ones. `NotLoaded` if they must be read and the caller must not block."""
        self.load()
        items = self.state.transcript_fold.items
        if count is not None:
            items = items[max(len(items) - count, 0) :]
        messages = [message for message in map(StoredMessage.of, items) if message is not None]
        if count is None:
            self.memory_bytes = _OPEN_BYTES + sum(len(message.content) for message in messages)
        return messages

    def list_unanswered(self) -> list[StoredMessage]:
        """The messages after the last reply, and a reply at the end whose calls have no results."""
        self.load_shapes()
        items = self.state.transcript_fold.items
        count = 1 if items and items[-1].role == "assistant" and items[-1].parts else 0
        while count < len(items) and items[-1 - count].role in ("user", "system"):
            count += 1
        return self.list_messages(count)

    def load(self) -> None:
        """Read the messages that are not in memory. `NotLoaded` if the caller must not block."""
        if not self.state.is_in_memory:
            self.get_reader()
            self.state.read_transcript()

    def load_shapes(self) -> None:
        """Read which messages there are, without what they say. `NotLoaded` likewise."""
        if not self.state.is_folded:
            self.get_reader()
            self.state.transcript_fold  # noqa: B018

    # -- entries -------------------------------------------------------------------------------------

    def add(self, messages: Iterable[MessageToWrite]) -> list[EntryToWrite]:
        """The entries that add messages. They end with a version, and a long list has some in between."""
        entries: list[EntryToWrite] = []
        since = 0
        for message in messages:
            if since and since + message.items > ITEMS_PER_VERSION:
                entries.append(_CHECKPOINT)
                since = 0
            entries.append(message)
            since += message.items
        return [*entries, _CHECKPOINT] if entries else []

    def replace(self, messages: Iterable[MessageToWrite]) -> list[EntryToWrite]:
        """The entries that replace all messages. The journal keeps the old ones."""
        gone = [self._go_back_to(0, 0)] if self.state.transcript_fold.items else []
        return [*gone, *self.add(messages)]

    def shorten(self, rest: Iterable[MessageToWrite]) -> list[EntryToWrite]:
        """The entries that put other messages, or none, in the place of the last one.

        The session goes back to the version before it; messages in between are added again.
        """
        items = self.state.transcript_fold.items
        version, seq = 0, 0
        for one in reversed(self.state.path()):
            if one.seq < items[-1].seq:
                version, seq = one.version, one.seq
                break
        between = [_again(item) for item in items[:-1] if item.seq > seq]
        added = [*between, *rest]
        return [self._go_back_to(version, seq), *added, *([_CHECKPOINT] if added else [])]

    def _go_back_to(self, version: int, seq: int) -> EntryToWrite:
        spans = self.state.transcript_fold.spans
        kept = tuple(Span(one.first, min(one.last, seq)) for one in spans if one.first <= seq)
        values = self.state.facts.values
        return EntryToWrite(body=SessionRewound(version=version, seq=seq, transcript=kept, state=values))


def _again(item: TranscriptItem) -> EntryToWrite:
    body = MessageAdded(role=item.role, parts=item.parts, format=item.format)
    return EntryToWrite(body=body, content=item.encode())


_CHECKPOINT = EntryToWrite(body=CheckpointTaken(version=0))
"""Its version and its problems are known when the entries before it were folded."""


class ItemsJournals(LeaselessJournals[tuple[SessionId, str], ItemsJournal]):
    """The journals of all sessions of a store that are open."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(
            engine,
            lambda key: ItemsJournal(engine, key),
            size=lambda journal: journal.memory_bytes,
            size_max=ADAPTER_CACHE_BYTES,
        )

    @classmethod
    def of(cls, engine: Engine) -> ItemsJournals:
        """Those of a store: every `HoldfastSession` of it uses the same."""
        found = engine.extensions.get(cls)
        if found is None:
            found = engine.extensions.setdefault(cls, cls(engine))
        assert isinstance(found, ItemsJournals)
        return found

    async def look(self, key: tuple[SessionId, str], look: Callable[[ItemsJournal], T]) -> T:
        """What `look` finds in a journal as it is now. It must not change anything."""
        while True:
            async with self.reading(key) as journal:
                try:
                    return await self.compute(journal, partial(look, journal))
                except Outdated:
                    pass
