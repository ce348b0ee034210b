"""The claim on an operation that happens once ever: who does it, or did it, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..content.lazy import Place, as_plain
from ..content.packing import Given, read_given
from ..effects import Effect, Effects
from ..errors import BadInput, Corrupt, NotFound
from ..facts import Facts
from ..head import Head
from ..ids import SessionId
from ..messages import Json, Media, Text
from ..store.driver import ClaimChange, Claimed
from ..store.engine import Engine
from ..store.journal import Journal
from .session import Session

OperationVerdict: TypeAlias = Literal["landed", "not_landed"]


class Said(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person said about an operation whose session is gone."""

    verdict: OperationVerdict
    by: str
    at: datetime
    session: SessionId
    call: str
    note: str = ""


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
    said: tuple[Said, ...] = ()

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
        )

    @property
    def given(self) -> Given:
        """What it gave."""
        return Given(text=self.text, value=self.value, parts=self.parts)

    def unfinished(self) -> Claim:
        """The same without a result: the owner's journal speaks for it."""
        return replace(self, done=False, text="", value=None, parts=())


_decoder = msgspec.json.Decoder(Claim)


def _key(operation: str) -> str:
    return f"effect:{operation}"


def find_claim(engine: Engine, operation: str) -> tuple[Claim, str | None]:
    """The claim, and its record for `change_claim`. Blocks."""
    record = engine.driver.find_claim(_key(operation))
    try:
        return (Claim() if record is None else _decoder.decode(record)), record
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Corrupt(f"claim {_key(operation)!r}", f"its record cannot be read ({error})") from error


def change_claim(engine: Engine, operation: str, expect: str | None, claim: Claim) -> bool:
    """Put this claim in the place of the record; False if another one is there. Blocks."""
    record = msgspec.json.encode(claim).decode()
    change = ClaimChange(key=_key(operation), expect=expect, record=record)
    return not isinstance(engine.driver.claim(change), Claimed)


def amend_own(engine: Engine, session: Session, operation: str, amend: Callable[[Claim], Claim]) -> None:
    """Change the claim, if it is this session's and no later holder has touched it. Blocks."""
    while True:
        claim, record = find_claim(engine, operation)
        if not claim.is_of(session.state.facts.head) or claim.fence > session.fence:
            return
        amended = amend(claim)
        if amended is claim:
            return
        if amended.session is not None:
            amended = replace(amended, fence=session.fence)
        if change_claim(engine, operation, record, amended):
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


# -- when the owner goes --------------------------------------------------------------------------------


def settle_claims(engine: Engine, session: Session) -> None:
    """Before a session is deleted, as its holder: its claims get to know what its journal knows. Blocks.

    So a claim of a deleted session that says nothing was never followed by an intent.
    """
    facts = session.state.facts
    for operation in {row.operation for row in facts.effects.rows.values() if row.scope == "global"}:
        amend_own(engine, session, operation, partial(_settled, engine, facts, operation))


def _settled(engine: Engine, facts: Facts, operation: str, claim: Claim) -> Claim:
    row = find_row(facts.effects, claim, operation)
    if row is None or is_free(row):
        return claim.freed(free_generation(claim, row))
    undo = facts.effects.find_open_undo(row)
    if undo is not None:
        # Whoever does it anew needs another key, once somebody has found out that it was taken back.
        doubt = f"did it, issued its undo at {describe_time(undo)} with key {undo.key}"
        return replace(claim.unfinished(), call=row.call.id, doubt=doubt, generation=row.generation + 1)
    if row.status != "completed":
        doubt = f"issued it at {describe_time(row)} with key {row.key}"
        return replace(claim, call=row.call.id, doubt=doubt, generation=row.generation)
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


# -- what a person says ---------------------------------------------------------------------------------


def settle_operation(
    engine: Engine, operation: str, verdict: OperationVerdict, by: str, note: str, result: Json
) -> bool:
    """Say what became of an operation whose session is gone; whether that was still open. Blocks."""
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    while True:
        claim, record = find_claim(engine, operation)
        if record is None:
            raise NotFound(f"nobody ever claimed an operation {operation!r}")
        _refuse_living(engine, claim)
        if claim.session is None or not claim.doubt:
            return False
        said = Said(
            verdict=verdict, by=by, at=engine.now(), session=claim.session, call=claim.call, note=note
        )
        known = replace(claim, doubt="", said=(*claim.said, said))
        landed = verdict == "landed"
        new = replace(known, done=True, text=text, value=result) if landed else known.freed(claim.generation)
        if change_claim(engine, operation, record, new):
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
