"""What waits for a person, and the answers that people gave: who, what, when, and who was first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ..core import entries as kinds
from ..core.entries import InboxApproval, InboxVerdict
from ..core.head import Head
from ..errors import BadInput, HoldfastError, NotFound
from ..ids import SessionId
from ..limits import VIEWER_NEEDS
from ..messages import Json
from ..session.inbox import find_answer
from ..store.approvals import Waiting, read_waiting
from ..store.store import Store
from ..tools.foreign_schema import ForeignArguments
from ..tools.schema import BadArguments
from .listing import Listed

log = logging.getLogger("holdfast")
AnswerState: TypeAlias = Literal["posted", "taken", "late"]
_ENTRIES_AFTER: Final = 2000
"""Entries after the answer that decided, among which late ones are looked for."""
_INBOX: Final = 100
_KNOWN_MAX: Final = 1000


class PersonsAnswer(Struct, frozen=True, kw_only=True):
    """An answer for a call. `state`: in the inbox, taken in, or too late to change anything."""

    by: str
    said: str
    state: AnswerState
    at: datetime | None = None
    note: str = ""


class Need(Struct, frozen=True, kw_only=True):
    """A call that waits, its session (None: deleted), and the answers that are on their way."""

    waiting: Waiting
    head: Head | None
    held: bool
    answers: Sequence[PersonsAnswer]


class Needs(Struct, frozen=True, kw_only=True):
    """A page of what waits in a store."""

    shown: Sequence[Need]
    sessions: int
    """How many sessions have something that waits."""
    damaged: Sequence[tuple[SessionId, str]]


def list_sessions_that_wait(listed: Listed) -> list[Head]:
    """Sessions with something that waits for a person, or may wait: the longest unchanged first."""
    return [head for head in reversed(listed.heads) if head.waiting or head.in_doubt]


class NeedsReader:
    """Reads what waits. A journal that has not changed since is not read again."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._known: dict[SessionId, tuple[str, bool, Sequence[Waiting]]] = {}
        """By session: what waited when the journal ended with this sum, and whether the session was held."""

    async def read(self, listed: Listed, page: int) -> Needs:
        """What waits, the oldest sessions first; as many sessions as fit a page are read, no others."""
        waiting = list_sessions_that_wait(listed)
        # A session that a process holds may only be running a tool: that is seen when it is read.
        sure = [head for head in waiting if head.waiting or not listed.is_held(head)]
        held = [head for head in waiting if not head.waiting and listed.is_held(head)][:VIEWER_NEEDS]
        begin = page * VIEWER_NEEDS
        shown: list[Need] = []
        damaged: list[tuple[SessionId, str]] = []
        for head in [*(held if page == 0 else ()), *sure[begin : begin + VIEWER_NEEDS]]:
            try:
                shown += await self.read_session(head, held=listed.is_held(head))
            except NotFound:
                continue  # Deleted since.
            except HoldfastError as error:  # One damaged session must not hide what the others wait for.
                damaged.append((head.session, str(error)))
        if page == 0:
            shown += [Need(waiting=one, head=None, held=False, answers=()) for one in listed.deleted]
        shown.sort(key=lambda need: (need.waiting.since, need.waiting.entry))
        return Needs(shown=shown, sessions=len(sure), damaged=damaged)

    async def read_session(self, head: Head, *, held: bool) -> list[Need]:
        """What waits in one session."""
        if not (head.waiting or head.in_doubt):
            return []
        store = self._store()
        sum, was_held, found = self._known.get(head.session, ("", held, ()))
        if (sum, was_held) != (head.sum, held):
            found = await read_waiting(store, head.session)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[head.session] = head.sum, held, found
        posted = await _read_posted(store, head) if found else []
        return [
            Need(
                waiting=one,
                head=head,
                held=held,
                answers=[answer for entry, answer in posted if entry == one.entry],
            )
            for one in found
        ]


async def find_need(store: Store, session: str, entry: int) -> Waiting | None:
    """A call that waits, by the entry that asked for it or issued it; None if it does not wait any more."""
    found = await read_waiting(store, (await store.head(session)).session)
    return next((one for one in found if one.entry == entry), None)


async def _read_posted(store: Store, head: Head) -> list[tuple[int, PersonsAnswer]]:
    """The answers in the inbox of a session, each with the entry that it is about."""
    engine = store._engine
    rows = await engine.call(engine.driver.read_inbox, head.session, head.taken, _INBOX)
    found = [find_answer(row) for row in rows]
    return [(_about(item), _as_answer(item, "posted", None)) for item in found if item is not None]


async def find_answers(store: Store, session: str, entry: int) -> list[PersonsAnswer]:
    """All answers for a call, in the order in which they count: the first one that was taken in decides."""
    head = await store.head(session)
    found: list[PersonsAnswer] = []
    decided_at: int | None = None
    async for one in store.tail(session, after=entry, follow=False):
        if decided_at is not None and one.seq > decided_at + _ENTRIES_AFTER:
            break
        match one.body:
            case kinds.InboxTaken(item=InboxApproval() | InboxVerdict() as item, late=late) if (
                _about(item) == entry
            ):
                found.append(_as_answer(item, "late" if late else "taken", one.at))
                decided_at = decided_at if late else one.seq
            case kinds.ToolSettled(issued=issued, by=by, verdict=verdict, note=note) if issued == entry and (
                decided_at is None or one.seq > decided_at + 1
            ):
                # By its verify hook, or by the session that has the outcome.
                found.append(PersonsAnswer(by=by, said=_words(verdict), state="taken", at=one.at, note=note))
                decided_at = one.seq
    posted = await _read_posted(store, head)
    return [*found, *(answer for about, answer in posted if about == entry)]


def _about(item: InboxApproval | InboxVerdict) -> int:
    return item.asked if isinstance(item, InboxApproval) else item.issued


def _as_answer(item: InboxApproval | InboxVerdict, state: AnswerState, at: datetime | None) -> PersonsAnswer:
    if isinstance(item, InboxVerdict):
        said = _words(item.verdict)
    else:
        said = "approved" if item.approved else "refused"
    return PersonsAnswer(by=item.by, said=said, state=state, at=at, note=item.note)


def _words(verdict: str) -> str:
    return {"landed": "it landed", "not_landed": "it did not land", "gave_up": "given up"}.get(
        verdict, verdict
    )


def check_corrected(waiting: Waiting, args: Json) -> None:
    """Refuse corrected arguments that the tool would refuse; `BadInput` says what is wrong with them."""
    if not isinstance(args, dict):
        raise BadInput("the arguments must be a JSON object: {…}")
    if not isinstance(waiting.schema, dict):
        return
    try:
        arguments = ForeignArguments(waiting.tool, waiting.schema, bytes_max=_SCHEMA_BYTES_MAX)
    except BadInput:
        return  # The tool has made something of it; here, it cannot be used.
    try:
        arguments.check(args)
    except BadArguments as bad:
        raise BadInput(str(bad)) from None


_SCHEMA_BYTES_MAX: Final = 1_000_000
