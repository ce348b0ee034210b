"""Claims on effects: who does one, or settles it, and what is known of it.

`effect:<operation>` is the claim on a global operation, which happens once ever. `settle:<key>` is the one on
settling an effect in doubt: forks inherit it, so several sessions may want to. The session that issued the
effect needs none for its first attempt, and speaks for it while there is no record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..content.encode import Given, read_given
from ..content.lazy import Place, as_plain
from ..core.effects import Effect, Effects
from ..core.fold import Facts
from ..core.head import Head
from ..drivers.contract import ClaimChange, Claimed
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, Corrupt, NotFound
from ..ids import SessionId
from ..messages import Json, Media, Text

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger("holdfast")
_T = TypeVar("_T")
OperationVerdict: TypeAlias = Literal["landed", "not_landed"]


class Said(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person said about an operation whose session is gone."""

    verdict: OperationVerdict
    by: str
    at: datetime
    session: SessionId
    call: str
    note: str = ""


class Behind(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A body that may still run after its caller has gone."""

    holder: str
    timeout_s: float | None = None
    left_behind: bool = False

    @classmethod
    def list_of(cls, row: Effect) -> tuple[Behind, ...]:
        """The body of a row, unless its own process has said how it ended."""
        if row.holder is None or not (row.crashed or row.left_behind):
            return ()
        return (cls(holder=row.holder, timeout_s=row.timeout_s, left_behind=row.left_behind),)


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who does the operation, or did it. Free if `session` is None; `generation` grows with every failure."""

    generation: int = 0
    session: SessionId | None = None
    uid: str = ""
    fence: int = 0
    """The owner's, when it last wrote this: a holder that is out changes nothing any more."""
    call: str = ""
    done: bool = False
    text: str = ""
    value: Json = None
    parts: tuple[Text | Media, ...] = ()
    doubt: str = ""
    """Of an owner that is deleted: what is known of an effect that nobody knows the end of. Without it, a
    deleted owner has done nothing."""
    effect: Effect | None = None
    """What the doubt is about, without its arguments."""
    said: tuple[Said, ...] = ()
    idle: bool = False
    """Of `settle:`: the session is not at it. Its journal says what it found, and any session may take it."""
    behind: tuple[Behind, ...] = ()
    """Of `settle:`: bodies of earlier owners."""

    def is_of(self, head: Head) -> bool:
        """Whether the owner is this very session, not another one that was made under its id."""
        return self.session == head.session and self.uid == head.uid

    def freed(self, generation: int) -> Claim:
        """The same for anybody to take, with the key of this generation."""
        return Claim(generation=generation, said=self.said)

    def finished(self, row: Effect, given: Given) -> Claim:
        """The same with what that effect gave, for all times."""
        return replace(
            self,
            done=True,
            call=row.call.id,
            text=given.text,
            value=given.value,
            parts=tuple(map(as_plain, given.parts)),
            doubt="",
            effect=None,
            idle=False,
            behind=(),
        )

    @property
    def given(self) -> Given:
        """What it gave."""
        return Given(text=self.text, value=self.value, parts=self.parts)

    def unfinished(self) -> Claim:
        """The same without a result: the owner's journal speaks for it."""
        return replace(self, done=False, text="", value=None, parts=())


_decoder = msgspec.json.Decoder(Claim)


def effect_key(operation: str) -> str:
    """Where the claim on a global operation is."""
    return f"effect:{operation}"


def settle_key(key: str) -> str:
    """Where the claim on settling the effect with this key is."""
    return f"settle:{key}"


def find_claim(engine: Engine, key: str) -> tuple[Claim, str | None]:
    """The claim, and its record for `change_claim`. Blocks."""
    record = engine.driver.find_claim(key)
    return (Claim() if record is None else _read(_decoder, key, record)), record


def _read(decoder: msgspec.json.Decoder[_T], key: str, record: str) -> _T:
    try:
        return decoder.decode(record)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Corrupt(f"claim {key!r}", f"its record cannot be read ({error})") from error


def change_claim(engine: Engine, key: str, expect: str | None, claim: Claim | None) -> bool:
    """Put this claim, or none, in the place of the record; False if another one is there. Blocks."""
    record = None if claim is None else msgspec.json.encode(claim).decode()
    change = ClaimChange(key=key, expect=expect, record=record)
    return not isinstance(engine.driver.claim(change), Claimed)


def amend_own(engine: Engine, session: Session, operation: str, amend: Callable[[Claim], Claim]) -> None:
    """Change the claim, if it is this session's and no later holder has touched it. Blocks."""
    key = effect_key(operation)
    while True:
        claim, record = find_claim(engine, key)
        if not claim.is_of(session.state.facts.head) or claim.fence > session.fence:
            return
        amended = amend(claim)
        if amended is claim:
            return
        if amended.session is not None:
            amended = replace(amended, fence=session.fence)
        if change_claim(engine, key, record, amended):
            return


def read_result(engine: Engine, session: SessionId, row: Effect) -> Given:
    """What a completed effect gave, all of it. Blocks."""
    if row.outcome is None:
        raise Corrupt(f"session {session!r}", "it is completed without an outcome", seq=row.issued)
    for entry in Journal(engine.driver, session).entries(row.outcome - 1, row.outcome):
        if entry.content is not None:
            return read_given(entry.content, Place(session, engine.blobs, entry=entry.seq), whole=True)
    return Given(text="[erased]")


# -- what a ledger says of an operation -----------------------------------------------------------------


def find_row(effects: Effects, claim: Claim, operation: str) -> Effect | None:
    """The owner's row for the operation. An older one, perhaps inherited, is no longer what is claimed."""
    row = effects.find_last(operation)
    return row if row is not None and row.generation >= claim.generation else None


def is_free(row: Effect | None) -> bool:
    """Whether surely nothing stands in the world: it was not begun, did not happen, or was undone."""
    return row is None or row.status in ("failed", "not_landed", "discarded", "undone")


def free_generation(claim: Claim, row: Effect | None) -> int:
    """What the next one to do a free operation begins with: a key that was spent is not used again."""
    if row is None:
        return claim.generation
    return row.generation + (row.status in ("failed", "undone"))


def describe_time(row: Effect) -> str:
    """When it was issued, for a person."""
    return f"{row.at:%Y-%m-%d %H:%M:%S} UTC"


# -- settling what forks share ----------------------------------------------------------------------------


def find_issuer(engine: Engine, facts: Facts, row: Effect) -> tuple[SessionId, str] | None:
    """The session that issued an effect first, as (id, uid); None if it is this one. Blocks, for a fork."""
    first = facts.effects.attempts(row)[0].issued
    if first >= facts.forked_at:
        return None
    owner = Journal(engine.driver, facts.head.session).find_owner(first)
    return owner.id, owner.uid


def close_settlement(engine: Engine, facts: Facts, fence: int, row: Effect, given: Given) -> None:
    """It happened. The journal of the session that issued it says so from now on, or the claim. Blocks."""
    key = settle_key(row.key)
    while True:
        claim, record = find_claim(engine, key)
        head = facts.head
        mine = claim.is_of(head) and claim.fence <= fence
        if claim.done or not (mine or claim.session is None or claim.idle):
            return
        new: Claim | None = None
        if find_issuer(engine, facts, row) is not None:
            new = Claim(session=head.session, uid=head.uid, fence=fence, said=claim.said).finished(row, given)
        elif record is None:
            return
        if change_claim(engine, key, record, new):
            return


def release_settlement(engine: Engine, facts: Facts, fence: int, row: Effect) -> None:
    """This session is not at it any more; what was found is in this session's journal. Blocks."""
    key = settle_key(row.key)
    while True:
        claim, record = find_claim(engine, key)
        if not claim.is_of(facts.head) or claim.fence > fence or claim.done or claim.idle:
            return
        gone = not claim.behind and not claim.said and find_issuer(engine, facts, row) is None
        if change_claim(engine, key, record, None if gone else replace(claim, idle=True)):
            return


def share_verdict(
    engine: Engine, facts: Facts, fence: int, row: Effect, landed: Given | None
) -> Claim | None:
    """A person says what became of an effect in doubt; the claim, if another session knew that it happened.
    Blocks."""
    claim, _ = find_claim(engine, settle_key(row.key))
    if claim.done and not claim.is_of(facts.head):
        return claim
    if landed is not None:
        close_settlement(engine, facts, fence, row, landed)
    return None


# -- when the owner goes --------------------------------------------------------------------------------


def settle_claims(engine: Engine, session: Session) -> None:
    """Before a session is deleted, as its holder: its claims get to know what its journal knows. Blocks.

    So a claim of a deleted session that says nothing was never followed by an intent.
    """
    facts = session.state.facts
    rows = facts.effects.rows.values()
    for operation in {row.operation for row in rows if row.scope == "global"}:
        last = facts.effects.find_last(operation)
        done = last is not None and last.status == "completed" and not facts.effects.find_open_undo(last)
        if not is_free(last) and not done:
            # Before the claim: it must not be in doubt without being listed.
            _list_doubt(engine, effect_key(operation))
        amend_own(engine, session, operation, partial(_settled, engine, facts, operation))
    doubted = {row.key for row in rows if row.doubted and row.changes_the_world}
    for row in {row.key: row for row in rows if row.key in doubted}.values():
        if _is_shared(facts, row):
            _leave_settlement(engine, facts, session.fence, row)


def _is_shared(facts: Facts, row: Effect) -> bool:
    """Whether others may have the effect, too: this session's origin, or forks of a version that has it."""
    first = facts.effects.attempts(row)[0].issued
    return first < facts.forked_at or any(one.seq >= first for one in facts.checkpoints.values())


def _leave_settlement(engine: Engine, facts: Facts, fence: int, row: Effect) -> None:
    """Write down what is known of an effect that was in doubt, for those who share it."""
    key = settle_key(row.key)
    open = row.status in ("running", "in_doubt", "gave_up")
    if open:
        _list_doubt(engine, key)
    head = facts.head
    while True:
        claim, record = find_claim(engine, key)
        theirs = claim.session is not None and not claim.is_of(head)
        if claim.done or (theirs and not (claim.idle and row.status == "completed")):
            return
        new = Claim(
            session=head.session,
            uid=head.uid,
            fence=fence,
            said=claim.said,
            idle=True,
            behind=(*claim.behind, *Behind.list_of(row)),
        )
        if row.status == "completed":
            new = new.finished(row, read_result(engine, head.session, row))
        elif open:
            doubt = f"issued it at {describe_time(row)} with key {row.key}"
            new = replace(new, call=row.call.id, doubt=doubt, effect=_bare(facts, row))
        if change_claim(engine, key, record, new):
            return


def _bare(facts: Facts, row: Effect) -> Effect:
    """What may be told of an effect when its session is gone."""
    gone = f"its session was deleted while nobody knew whether it had happened; its key is {row.key}"
    return replace(row, status="in_doubt", args=None, notes={}, why=gone)


def _settled(engine: Engine, facts: Facts, operation: str, claim: Claim) -> Claim:
    row = find_row(facts.effects, claim, operation)
    if row is None or is_free(row):
        return claim.freed(free_generation(claim, row))
    undo = facts.effects.find_open_undo(row)
    if undo is not None:
        # Whoever does it anew needs another key, once somebody has found out that it was taken back.
        doubt = f"did it, issued its undo at {describe_time(undo)} with key {undo.key}"
        known = replace(claim.unfinished(), effect=_bare(facts, undo))
        return replace(known, call=row.call.id, doubt=doubt, generation=row.generation + 1)
    if row.status != "completed":
        doubt = f"issued it at {describe_time(row)} with key {row.key}"
        return replace(
            claim, call=row.call.id, doubt=doubt, effect=_bare(facts, row), generation=row.generation
        )
    if claim.done:
        return claim
    return claim.finished(row, read_result(engine, facts.head.session, row))


def describe_gone(claim: Claim, operation: str) -> str:
    """Why an operation is blocked whose session is gone, and how a person can unblock it."""
    return (
        f"session {claim.session!r} {claim.doubt} and was deleted; nobody can tell whether it happened. Who "
        f"finds out says so with store.resolve_operation({operation!r}, 'landed' or 'not_landed', by=…) or "
        f"`holdfast resolve-operation {operation} landed` or `not-landed`"
    )


# -- the doubts that deleted sessions left ----------------------------------------------------------------

_DOUBTS = "doubts"


class Doubts(Struct, frozen=True):
    """The claims that may be in doubt, of sessions that are deleted; each is listed before it is."""

    keys: tuple[str, ...] = ()


_doubts_decoder = msgspec.json.Decoder(Doubts)


def _change_doubts(engine: Engine, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
    while True:
        record = engine.driver.find_claim(_DOUBTS)
        keys = () if record is None else _read(_doubts_decoder, _DOUBTS, record).keys
        changed = change(keys)
        if changed == keys:
            return
        new = msgspec.json.encode(Doubts(changed)).decode() if changed else None
        if not isinstance(engine.driver.claim(ClaimChange(key=_DOUBTS, expect=record, record=new)), Claimed):
            return


def _list_doubt(engine: Engine, key: str) -> None:
    _change_doubts(engine, lambda keys: keys if key in keys else (*keys, key))


def _drop_doubt(engine: Engine, key: str) -> None:
    _change_doubts(engine, lambda keys: tuple(one for one in keys if one != key))


def list_doubts(engine: Engine) -> list[tuple[str, Claim]]:
    """What deleted sessions left in doubt: the operation (or the effect's key), and the claim. Blocks."""
    record = engine.driver.find_claim(_DOUBTS)
    keys = () if record is None else _read(_doubts_decoder, _DOUBTS, record).keys
    found: list[tuple[str, Claim]] = []
    for key in keys:
        try:
            claim, _ = find_claim(engine, key)
        except Corrupt as error:
            log.warning("left out of the list: %s", error)
            continue
        if claim.doubt:
            found.append((key.partition(":")[2], claim))
    return found


# -- what a person says ---------------------------------------------------------------------------------


def settle_operation(
    engine: Engine, operation: str, verdict: OperationVerdict, by: str, note: str, result: Json
) -> bool:
    """Say what became of an operation, or of an effect by its key, whose session is gone; whether that was
    still open. Blocks."""
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    while True:
        key = effect_key(operation)
        claim, record = find_claim(engine, key)
        if record is None:
            key = settle_key(operation)
            claim, record = find_claim(engine, key)
        if record is None:
            raise NotFound(f"nobody ever claimed an operation {operation!r}")
        _refuse_living(engine, claim)
        if not claim.doubt:
            return False
        assert claim.session is not None
        said = Said(
            verdict=verdict, by=by, at=engine.now(), session=claim.session, call=claim.call, note=note
        )
        known = replace(claim, doubt="", effect=None, said=(*claim.said, said))
        landed = verdict == "landed"
        new = replace(known, done=True, text=text, value=result) if landed else known.freed(claim.generation)
        if change_claim(engine, key, record, new):
            _drop_doubt(engine, key)
            return True


def _refuse_living(engine: Engine, claim: Claim) -> None:
    """What the owner's journal can take in belongs there."""
    if claim.session is None:
        return
    try:
        head = Journal(engine.driver, claim.session).fold().facts.head
    except NotFound:
        return
    if claim.is_of(head):
        raise BadInput(
            f"session {claim.session!r} is still there and keeps the record of it: "
            f"use store.resolve({claim.session!r}, {claim.call!r}, …)"
        )
