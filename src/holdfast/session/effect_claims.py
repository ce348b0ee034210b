"""Claims on effects: which session runs or settles one, and what is known of it.

`effect:<operation>` is the claim on a global operation, which happens once ever. `settle:<key>` is the one on
settling an effect in doubt: forks inherit it, so several sessions may want to. The session that issued the
effect needs no claim for its first attempt; without a record, its journal is the authority.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..content.encode import Given, read_given
from ..content.lazy import BlobReader, as_plain
from ..core.effects import Effect, Effects
from ..core.fold import Facts
from ..core.head import Head
from ..drivers.contract import ClaimChange, Claimed
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, Corrupt, NotFound
from ..ids import SessionId
from ..messages import Json, Media, Text

log = logging.getLogger("holdfast")
_T = TypeVar("_T")
OperationVerdict: TypeAlias = Literal["landed", "not_landed"]


class Said(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's verdict on an operation of a deleted session."""

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
        """The body of a row, unless its process recorded how it ended."""
        if row.holder is None or not (row.crashed or row.left_behind):
            return ()
        return (cls(holder=row.holder, timeout_s=row.timeout_s, left_behind=row.left_behind),)


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session that runs an operation, or ran it. Free if `session` is None.

    `generation` grows with every failure.
    """

    generation: int = 0
    session: SessionId | None = None
    uid: str = ""
    fence: int = 0
    """The owner's fence when it last wrote this: a holder without the lease cannot change it."""
    call: str = ""
    done: bool = False
    text: str = ""
    value: Json = None
    parts: tuple[Text | Media, ...] = ()
    unkept: bool = False
    """The tool ran, and what it returned has no JSON form; `text` says so."""
    doubt: str = ""
    """Of a deleted owner: what is known of its effect in doubt. Empty: a deleted owner did nothing."""
    effect: Effect | None = None
    """What the doubt is about, without its arguments."""
    said: tuple[Said, ...] = ()
    idle: bool = False
    """Of `settle:`: the owner has stopped. Its journal has the findings; any session may continue."""
    behind: tuple[Behind, ...] = ()
    """Of `settle:`: bodies of earlier owners."""

    def is_of(self, head: Head) -> bool:
        """True if the owner is this session, not one that was created later under its id."""
        return self.session == head.session and self.uid == head.uid

    def freed(self, generation: int) -> Claim:
        """The same, free for any session, with the key of this generation."""
        return Claim(generation=generation, said=self.said)

    def finished(self, row: Effect, given: Given) -> Claim:
        """The same, with the result of that effect for good."""
        return replace(
            self,
            done=True,
            call=row.call.id,
            text=given.text,
            value=given.value,
            parts=tuple(map(as_plain, given.parts)),
            unkept=given.unkept,
            doubt="",
            effect=None,
            idle=False,
            behind=(),
        )

    @property
    def given(self) -> Given:
        """The result."""
        return Given(text=self.text, value=self.value, parts=self.parts, unkept=self.unkept)

    def unfinished(self) -> Claim:
        """The same without a result: the owner's journal is the authority."""
        return replace(self, done=False, text="", value=None, parts=(), unkept=False)


_decoder = msgspec.json.Decoder(Claim)


def effect_key(operation: str) -> str:
    """The key of the claim on a global operation."""
    return f"effect:{operation}"


def settle_key(key: str) -> str:
    """The key of the claim on settling the effect with this key."""
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
    """Replace the expected record by this claim, or by none; False if the record is another. Blocks."""
    record = None if claim is None else msgspec.json.encode(claim).decode()
    change = ClaimChange(key=key, expect=expect, record=record)
    return not isinstance(engine.driver.claim(change), Claimed)


def amend_own(
    engine: Engine, head: Head, fence: int, operation: str, amend: Callable[[Claim], Claim]
) -> None:
    """Change the claim, if this session owns it and no later holder than that with the fence has changed it.
    Blocks."""
    key = effect_key(operation)
    while True:
        claim, record = find_claim(engine, key)
        if not claim.is_of(head) or claim.fence > fence:
            return
        amended = amend(claim)
        if amended is claim:
            return
        if amended.session is not None:
            amended = replace(amended, fence=fence)
        if change_claim(engine, key, record, amended):
            return


def read_result(engine: Engine, session: SessionId, row: Effect) -> Given:
    """Read the whole result of a completed effect. Blocks."""
    if row.outcome is None:
        raise Corrupt(f"session {session!r}", "it is completed without an outcome", seq=row.issued)
    for entry in Journal(engine.driver, session).entries(row.outcome - 1, row.outcome):
        if entry.content is not None:
            return read_given(entry.content, BlobReader(session, engine.blobs, entry=entry.seq), whole=True)
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
    """Record in the claim that the effect happened, unless this session issued it. Blocks."""
    if facts.is_foreign(row):
        return  # What this store is told of it is known here only.
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
    """Mark that this session has stopped settling the effect; its journal has the findings. Blocks."""
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
    """Share a person's verdict on an effect in doubt. Blocks.

    Returns the claim, if another session knew that the effect happened.
    """
    claim, _ = find_claim(engine, settle_key(row.key))
    if claim.done and not claim.is_of(facts.head):
        return claim
    if landed is not None:
        close_settlement(engine, facts, fence, row, landed)
    return None


# -- when the owner is deleted ---------------------------------------------------------------------------


def settle_claims(engine: Engine, facts: Facts, fence: int) -> None:
    """Copy what the journal knows into the claims, before the session is deleted. Blocks.

    So a claim of a deleted session without a result and without a doubt had no intent.
    """
    rows = facts.effects.rows.values()
    for operation in {row.operation for row in rows if row.scope == "global"}:
        last = facts.effects.find_last(operation)
        done = last is not None and last.status == "completed" and not facts.effects.find_open_undo(last)
        if not is_free(last) and not done:
            # Before the claim: it must not be in doubt without being listed.
            _list_doubt(engine, effect_key(operation))
        amend_own(engine, facts.head, fence, operation, partial(_settled, engine, facts, operation))
    doubted = {row.key for row in rows if row.doubted and row.changes_the_world}
    for row in {row.key: row for row in rows if row.key in doubted}.values():
        if _is_shared(facts, row):
            _leave_settlement(engine, facts, fence, row)


def _is_shared(facts: Facts, row: Effect) -> bool:
    """True if other sessions may have the effect: the origin, or forks of a version that has it."""
    if facts.is_foreign(row):
        return False
    first = facts.effects.attempts(row)[0].issued
    return first < facts.forked_at or any(one.seq >= first for one in facts.checkpoints.values())


def _leave_settlement(engine: Engine, facts: Facts, fence: int, row: Effect) -> None:
    """Write what is known of an effect in doubt into its claim, for the sessions that share it."""
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
    """The effect as it may be shown after its session was deleted: without arguments."""
    gone = f"its session was deleted while it was not known whether it had happened; its key is {row.key}"
    return replace(row, status="in_doubt", args=None, notes={}, why=gone, unsure="")


def _settled(engine: Engine, facts: Facts, operation: str, claim: Claim) -> Claim:
    row = find_row(facts.effects, claim, operation)
    if row is None or is_free(row):
        return claim.freed(free_generation(claim, row))
    undo = facts.effects.find_open_undo(row)
    if undo is not None:
        # Once the undo is known to have happened, the next attempt needs another key.
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
    """Why an operation of a deleted session is blocked, and how a person can unblock it."""
    return (
        f"session {claim.session!r} {claim.doubt} and was deleted; it is not known whether it happened. A "
        f"person who finds out says so with store.resolve_operation({operation!r}, 'landed' or 'not_landed', "
        f"by=…) or `holdfast resolve-operation {operation} landed` or `not-landed`"
    )


# -- effects in doubt of deleted sessions ----------------------------------------------------------------

_DOUBTS = "doubts"


class Doubts(Struct, frozen=True):
    """Keys of claims of deleted sessions that may be in doubt, listed before the claim changes."""

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
    """List the effects in doubt of deleted sessions: operation (or effect key), and claim. Blocks."""
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


# -- verdicts of people ---------------------------------------------------------------------------------


def settle_operation(
    engine: Engine, operation: str, verdict: OperationVerdict, by: str, note: str, result: Json
) -> bool:
    """Settle an operation, or an effect by its key, of a deleted session. Blocks.

    False if it was no longer in doubt.
    """
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    while True:
        key = effect_key(operation)
        claim, record = find_claim(engine, key)
        if record is None:
            key = settle_key(operation)
            claim, record = find_claim(engine, key)
        if record is None:
            raise NotFound(f"no session ever claimed an operation {operation!r}")
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
    """Reject a verdict that the journal of a living owner can take in."""
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
