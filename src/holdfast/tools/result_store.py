"""What a tool gave: kept when it is recorded, and given once more to who asks for the same."""

from __future__ import annotations

import logging

import anyio
from msgspec import Struct

from ..content.encode import Given, PackedResult, pack_light_result, pack_result, read_given
from ..content.lazy import BlobReader, read_content
from ..core.effects import Effect
from ..core.entries import ResultContent
from ..engine.journal import Journal
from ..errors import Corrupt, LostBlob
from ..session.session import Session

log = logging.getLogger("holdfast")


class Recalled(Struct, frozen=True):
    """The recorded outcome of a row: what it gave, and how that is stored."""

    given: Given
    stored: ResultContent


async def keep(session: Session, given: Given) -> tuple[PackedResult, BaseException | None]:
    """The result as it is stored, its blobs durable, and what interrupted that.

    What happened must be on record: whoever is cancelled meanwhile records it without blobs.
    """
    engine, interrupt = session.engine, None
    packed = pack_light_result(given, engine.blobs.sizes)
    if packed is not None:
        return packed, None
    try:
        with anyio.CancelScope(shield=True):
            packed = await engine.pack_result(given)
    except anyio.get_cancelled_exc_class() as error:
        interrupt = error
    return packed or pack_result(given, engine.blobs.sizes, homeless=True), interrupt


async def recall(session: Session, row: Effect) -> Recalled:
    """The recorded outcome of a row."""
    if row.outcome is None:
        return Recalled(Given(text=row.why), ResultContent(text=row.why))
    await session.flush()
    return await session.engine.call_home(_read, session, row.outcome)


def _read(session: Session, seq: int) -> Recalled:
    engine = session.engine
    journal = Journal(engine.driver, session.id)
    for entry in journal.entries(seq - 1, seq):
        stored = read_content(entry.content)
        if entry.content is None:
            return Recalled(Given(text=stored.text), stored)
        try:
            return Recalled(
                read_given(entry.content, BlobReader(session.id, engine.blobs, entry=seq)), stored
            )
        except LostBlob as error:
            # What was done is known all the same, and is not done again.
            log.warning("%s", error)
            return Recalled(Given(text=stored.text), stored)
    raise Corrupt(journal.where, "the outcome is not there", seq=seq)
