"""`HoldfastSession`: the history of a conversation in a holdfast store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from agents import RunContextWrapper, TResponseInputItem
from agents.memory import (
    OpenAIResponsesCompactionArgs,
    OpenAIResponsesCompactionSession,
    Session,
    SessionSettings,
)

from ...blocking.loop import start_loop
from ...content.lazy import BlobReader
from ...errors import BadInput
from ...ids import fit_session_id
from ...store.opening import AnyStore, KeptStore
from ...store.store import Store
from ..leaseless_journal import EntryToWrite
from ..message_overlap import overlap
from .items import (
    InputItem,
    StoredMessage,
    as_message,
    drop_orphan_outputs,
    group,
    pack,
    pack_light,
    unanswered_input,
)
from .journal import ItemsJournal, ItemsJournals, MessageToWrite, labels_of

Wrapper: TypeAlias = RunContextWrapper[Any] | None
_ALL: Final = (1 << 31) - 1
"""A limit that no history reaches: None stands for the limit in the settings of a session."""


class HoldfastSession:
    """A session for `Runner.run(…, session=…)`: `HoldfastSession("user-17", store)`.

    `store` is an open store of `holdfast` or of `holdfast.blocking`, or the URL or `Path` of one that is
    opened when it is first needed, and closed by `close`. Items are kept as they are given, and durable when
    a method returns. Several processes may write to a session at once: it takes no lease.

    `session_settings` are the SDK's. With `compaction`, the options of
    `agents.OpenAIResponsesCompactionSession`, the history is compacted as that does it, in one commit.
    """

    session_id: str
    session_settings: SessionSettings | None
    run_compaction: Callable[..., Awaitable[None]]
    """Compact the history. Only with `compaction`: by this name, the SDK knows a session that it can ask."""

    def __init__(
        self,
        session_id: str,
        store: AnyStore,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        compaction: Mapping[str, Any] | None = None,
    ) -> None:
        self._begin(session_id, KeptStore(store), session_settings, compaction)

    def _begin(
        self,
        session_id: str,
        store: KeptStore,
        settings: SessionSettings | dict[str, Any] | None,
        compaction: Mapping[str, Any] | None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = SessionSettings().resolve(settings)
        self._key = fit_session_id(session_id), session_id
        self._store = store
        self.compaction = compaction
        """The options of the SDK's compaction, if it compacts its history."""
        if compaction is not None:
            Compacting(self, compaction)  # Options that make no sense are refused here.
            self.run_compaction = self._run_compaction

    @classmethod
    def from_url(
        cls,
        session_id: str,
        *,
        url: str | Path | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        compaction: Mapping[str, Any] | None = None,
    ) -> HoldfastSession:
        """A session with a store of its own. Without `url`, it is the one that `HOLDFAST_STORE` names."""
        session = cls.__new__(cls)
        session._begin(session_id, KeptStore(url), session_settings, compaction)
        return session

    # -- the protocol of the SDK ---------------------------------------------------------------------

    async def get_items(
        self, limit: int | None = None, *, wrapper: Wrapper = None
    ) -> list[TResponseInputItem]:
        """The items, or the latest `limit` of them, in order.

        A run (which passes `wrapper`) gets no output whose call is not among them: no provider takes it.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit < 0:
            limit = None
        items = await self._read(limit)
        if limit is not None:
            items = items[max(len(items) - limit, 0) :]
        return _theirs(items if wrapper is None else drop_orphan_outputs(items))

    async def add_items(self, items: list[TResponseInputItem], *, wrapper: Wrapper = None) -> None:
        """Append items: all of them or none.

        A run (which passes `wrapper`) may add once more what it was given before a crash: what already ends
        the history without an answer is not added again.
        """
        added = _ours(items)
        (await self._journals()).engine.check_open()
        if wrapper is not None and added:
            added = added[overlap(await self._read_unanswered(), added) :]
        messages = await self._pack(added)
        if messages:
            await self._write(lambda journal: journal.add(messages), ItemsJournal.load_shapes)

    async def pop_item(self, *, wrapper: Wrapper = None) -> TResponseInputItem | None:
        """Take the last item away, and return it; None if there is none."""
        journals = await self._journals()
        while True:
            found = await journals.look(self._key, lambda journal: journal.list_messages(1))
            if not found:
                return None
            items = await self._unpack(found)
            rest = await self._pack(items[:-1])
            changed: list[bool] = []
            await self._write(partial(_shorten, found[0].seq, rest, changed), ItemsJournal.load)
            if not changed[-1]:
                return _theirs(items[-1:])[0]

    async def clear_session(self, *, wrapper: Wrapper = None) -> None:
        """Begin the history anew. The journal keeps what was said; `holdfast clean` removes it."""
        await self._write(lambda journal: journal.replace(()), ItemsJournal.load_shapes)

    # -- more than the protocol ----------------------------------------------------------------------

    async def replace_items(self, items: list[TResponseInputItem]) -> None:
        """Replace the whole history in one commit. The session's journal keeps what was said before."""
        messages = await self._pack(_ours(items))
        await self._write(lambda journal: journal.replace(messages), ItemsJournal.load_shapes)

    def merge(
        self, history: list[TResponseInputItem], new: list[TResponseInputItem]
    ) -> list[TResponseInputItem]:
        """The input of a run, for `RunConfig(session_input_callback=session.merge)`: what was said before a
        crash, and is now said again, is shown to the model once."""
        said = overlap(unanswered_input(_ours(history)), _ours(new))
        return [*history[: len(history) - said], *new]

    async def copy_from(self, other: Session) -> int:
        """Copy the history of another session into this one, which has none; the number of items.

        In one commit, so it can be repeated after a crash: what was copied before is not copied again.
        """
        items = _ours(await other.get_items(limit=_ALL))
        messages = await self._pack(items)
        refused: list[bool] = []

        def decide(journal: ItemsJournal) -> Sequence[EntryToWrite]:
            refused.append(bool(journal.state.transcript_fold.items))
            return [] if refused[-1] else journal.add(messages)

        await self._write(decide, ItemsJournal.load_shapes)
        if refused and refused[-1]:
            there = await self._read(None)
            if there[: len(items)] != items:
                raise BadInput(
                    f"session {self.session_id!r} has a history of its own: copy into a session without items"
                )
        return len(items)

    async def fork(self, session_id: str, *, version: int | None = None) -> HoldfastSession:
        """A new session that begins with the history of this one, as it is or as it was at a version.

        Nothing is copied. Each call that adds items ends with a version.
        """
        store = await self._store.get()
        target = fit_session_id(session_id)
        await store.fork(self._key[0], version=version, into=target, labels=labels_of(session_id))
        forked = type(self).__new__(type(self))
        forked._begin(session_id, self._store, self.session_settings, self.compaction)
        return forked

    async def rewind(self, version: int) -> None:
        """Go back to a version. The session's journal keeps what is left behind."""
        store = await self._store.get()
        async with store.session(self._key[0], create=False) as session:
            await session.rewind(version=version)

    async def get_store(self) -> Store:
        """The store, open."""
        return await self._store.get()

    def close(self) -> Awaitable[None]:
        """Close the store if it was opened here. A given one stays open. It may be awaited, too."""
        if self._store.end():
            with start_loop() as loop:
                loop.wait(self._store.aclose())
        return _Ended()

    async def aclose(self) -> None:
        """`close`, with an event loop."""
        await self._store.aclose()

    # -- compaction ----------------------------------------------------------------------------------

    async def _run_compaction(
        self, args: OpenAIResponsesCompactionArgs | None = None, *, wrapper: Wrapper = None
    ) -> None:
        """Compact the history if the options say so now."""
        assert self.compaction is not None
        compacting = Compacting(self, self.compaction)
        await compacting.run(args, wrapper)

    # -- reading and writing -------------------------------------------------------------------------

    async def _journals(self) -> ItemsJournals:
        return ItemsJournals.of((await self._store.get())._engine)

    async def _read(self, limit: int | None) -> list[InputItem]:
        if limit == 0:
            return []
        journals = await self._journals()
        # Each message has an item at least.
        found = await journals.look(self._key, lambda journal: journal.list_messages(limit))
        return await self._unpack(found)

    async def _read_unanswered(self) -> list[InputItem]:
        """What was said after the last reply."""
        journals = await self._journals()
        found = await journals.look(self._key, ItemsJournal.list_unanswered)
        return unanswered_input(await self._unpack(found))

    async def _unpack(self, messages: Sequence[StoredMessage]) -> list[InputItem]:
        engine = (await self._store.get())._engine
        blobs = BlobReader(self._key[0], engine.blobs)
        if any(message.has_blobs for message in messages):
            return await engine.call_home(_unpack, messages, blobs)
        return _unpack(messages, blobs)

    async def _pack(self, items: Sequence[InputItem]) -> list[MessageToWrite]:
        """The messages for these items, ready to be written."""
        engine = (await self._store.get())._engine
        messages = [as_message(one) for one in group(items)]
        made: list[MessageToWrite] = []
        for message in messages:
            packed = pack_light(message, engine.blobs.sizes)
            if packed is None:
                packed = await engine.call_home(pack, message, engine.blobs.sizes)
            made.append(MessageToWrite.of(message, packed))
        return made

    async def _write(
        self, decide: Callable[[ItemsJournal], Sequence[EntryToWrite]], load: Callable[[ItemsJournal], object]
    ) -> None:
        # Nothing is changed before the entries are handed over, so there is nothing to undo.
        await (await self._journals()).write(self._key, decide, lambda _: None, load)


def _ours(items: Sequence[TResponseInputItem]) -> list[InputItem]:
    found: Any = items
    return list(found)


def _theirs(items: Sequence[InputItem]) -> list[TResponseInputItem]:
    found: Any = items
    return list(found)


def _unpack(messages: Sequence[StoredMessage], blobs: BlobReader) -> list[InputItem]:
    return [item for message in messages for item in message.read(blobs)]


def _shorten(
    last: int, rest: Sequence[MessageToWrite], changed: list[bool], journal: ItemsJournal
) -> Sequence[EntryToWrite]:
    """The entries that leave `rest` of the last message, unless that is another one than entry `last`."""
    items = journal.state.transcript_fold.items
    changed.append(not items or items[-1].seq != last)
    return [] if changed[-1] else journal.shorten(rest)


class _Ended:
    """Stands for a close that has ended, and may be awaited."""

    def __await__(self) -> Generator[None]:
        return
        yield


class Compacted(Session, Protocol):
    """A session that can replace its history."""

    async def replace_items(self, items: list[TResponseInputItem]) -> None:
        """Replace the whole history in one commit."""


class Compacting:
    """The SDK's own compaction, over a session whose history is replaced in one commit.

    It clears the session and adds what is left: cleared here, the history goes when that is added.
    """

    def __init__(self, session: Compacted, options: Mapping[str, Any]) -> None:
        self.session_id, self.session_settings = session.session_id, session.session_settings
        self._session, self._is_cleared = session, False
        self._inner = OpenAIResponsesCompactionSession(session.session_id, self, **options)

    async def run(self, args: OpenAIResponsesCompactionArgs | None, wrapper: Wrapper) -> None:
        """Compact the history if the options say so now."""
        await self._inner.run_compaction(args, wrapper=wrapper)
        if self._is_cleared:
            await self._session.clear_session()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        return [] if self._is_cleared else await self._session.get_items(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        if self._is_cleared:
            await self._session.replace_items(items)
            self._is_cleared = False
        else:
            await self._session.add_items(items)

    async def pop_item(self) -> TResponseInputItem | None:
        return None if self._is_cleared else await self._session.pop_item()

    async def clear_session(self) -> None:
        self._is_cleared = True
