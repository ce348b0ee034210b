"""After a crash: is everything there that was acknowledged, and is what is there sound?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from holdfast.core.entries import Entry, InboxMessage, InboxTaken, MessageAdded, SessionForked, SessionOpened
from holdfast.core.head import Head
from holdfast.core.pages import Chain
from holdfast.core.session_state import SessionState
from holdfast.drivers.contract import Driver, HeadFilter, Tip
from holdfast.engine.journal import Journal
from holdfast.ids import SessionId
from holdfast.messages import Message
from tests.stores import connect, schema_of

from .acknowledged import Ack
from .workload import BLOB, LEDGER


class Found(NamedTuple):
    """A session, read from its first chunk on. `sums` are those of its chunks, by their last entry."""

    tip: Tip
    state: SessionState
    sums: dict[int, str]
    entries: list[Entry]


def find_problems(driver: Driver, acks: Iterable[Ack]) -> list[str]:
    """Everything that is wrong, one sentence each."""
    problems: list[str] = []
    found: dict[str, Found] = {}
    for tip in _tips(driver):
        one = _read(driver, tip)
        found[tip.session] = one
        problems += [f"{tip.session}: {why}" for why in _find_flaws(driver, one)]
        if tip.session == LEDGER:
            problems += _find_loose_claims(driver, one)
    return problems + _find_losses(driver, found, list(acks))


def _tips(driver: Driver) -> Iterator[Tip]:
    after: SessionId | None = None
    while page := driver.list_tips(HeadFilter(), after, 100):
        yield from page
        after = page[-1].session


def _read(driver: Driver, tip: Tip) -> Found:
    """Raises if a chunk is torn, altered or missing: the whole chain is checked, across forks."""
    chain = Chain(tip.session)
    state = SessionState(tip.session)
    sums: dict[int, str] = {}
    entries: list[Entry] = []
    for page in Journal(driver, tip.session).pages(said=True):
        for chunk in chain.open(page):
            for entry in chunk.entries:
                state.apply(entry)
            state.facts.head.sum = sums[chunk.last] = chunk.sum
            entries += chunk.entries
    return Found(tip, state, sums, entries)


def _find_flaws(driver: Driver, one: Found) -> Iterator[str]:
    tip, head = one.tip, one.state.facts.head
    if (tip.seq, tip.sum) != (head.seq, head.sum):
        yield f"the tip says {tip.seq}, the journal ends with {head.seq}"
    if tip.head is not None and tip.head != head:
        yield f"the stored head is not the fold's: {_compare(tip.head, head)}"
    if _written_down(Journal(driver, tip.session).fold()) != _written_down(one.state):
        yield "folding from the keyframe gives another state"
    yield from _find_halves(one.entries)


def _compare(stored: Head, folded: Head) -> dict[str, tuple[object, object]]:
    both = {name: (getattr(stored, name), getattr(folded, name)) for name in stored.__struct_fields__}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


def _written_down(state: SessionState) -> tuple[bytes, bytes]:
    messages: Sequence[object] = [
        msgspec.to_builtins(message) if isinstance(message, Message) else message.data
        for message in state.transcript
    ]
    return msgspec.json.encode(state.facts), msgspec.json.encode(messages)


def _find_halves(entries: list[Entry]) -> Iterator[str]:
    """Entries that belong into one commit are there together."""
    submitted: set[str] = set()
    for entry, following in zip(entries, [*entries[1:], None], strict=True):
        body = entry.body
        if isinstance(body, SessionForked):
            submitted.clear()
        if isinstance(body, SessionOpened) and (following is None or following.kind != "lease.taken"):
            yield f"entry {entry.seq} opens the session, and nobody holds it"
        if isinstance(body, InboxTaken) and isinstance(body.item, InboxMessage):
            known = body.item.key in submitted
            submitted |= {body.item.key} if body.item.key else set()
            added = following.body if following is not None else None
            if known != (not isinstance(added, MessageAdded) or added.inbox != body.number):
                yield f"entry {entry.seq} takes in item {body.number}, and its message is not there"


def _find_loose_claims(driver: Driver, ledger: Found) -> Iterator[str]:
    """Entries and claims that were committed together are there together."""
    seqs = [entry.seq for entry in ledger.entries if entry.kind == "state.set"]
    for seq in range(1, ledger.tip.seq + 10):
        if (driver.find_claim(f"{LEDGER}-{seq}") is not None) != (seq in seqs):
            yield f"the claim or the entry {seq} of the ledger is there without the other"
    if driver.find_claim(LEDGER) != (str(seqs[-1]) if seqs else None):
        yield "the ledger's last entry and its claim are not of the same commit"


# -- what was acknowledged ----------------------------------------------------------------------------


def _find_losses(driver: Driver, found: dict[str, Found], acks: list[Ack]) -> list[str]:
    doomed = {ack["uid"] for ack in acks if ack["kind"] == "deleting"}
    gone = {ack["uid"] for ack in acks if ack["kind"] == "deleted"}
    problems = [f"{name} is back" for name, one in found.items() if one.state.facts.head.uid in gone]
    fences = [ack["fence"] for ack in acks if ack["kind"] == "held"]
    if len(set(fences)) != len(fences):
        problems.append(f"a resource was held twice under one fence: {fences}")
    for ack in acks:
        one = found.get(ack.get("session", ""))
        if "uid" in ack and (one is None or one.state.facts.head.uid != ack["uid"]):
            # Deleted, or about to be when somebody died.
            if ack["uid"] not in doomed:
                problems.append(f"the session is gone: {ack}")
        elif why := _find_loss(driver, one, ack):
            problems.append(f"{why}: {ack}")
    return problems


def _find_loss(driver: Driver, one: Found | None, ack: Ack) -> str | None:
    match ack["kind"]:
        case "lines" if one and not _has_entry(one, ack["seq"], ack["sum"]):
            return f"the entry is lost; the journal ends with {one.tip.seq}"
        case "posted" if one and not _was_posted(driver, one, ack["number"]):
            return "the item is neither in the inbox nor taken in"
        case "ran" if driver.find_claim(f"run:{ack['run']}") is None:
            return "the run's id is free again"
        case "claimed" if driver.find_claim(ack["key"]) is None:
            return "the claim is lost"
        case "erased" if one and any(map(_says_something, _said(one.entries, ack["upto"]))):
            return "what was erased is back"
        case "blob":
            blob = driver.blobs.find(ack["digest"])
            if blob is None or b"".join(blob.parts) != BLOB:
                return "the blob is lost"
    return None


def _has_entry(one: Found, seq: int, sum: str | None) -> bool:
    """Whether the entry is there; with a sum, whether the chunk that it ends is the one that has it."""
    return seq <= one.tip.seq if sum is None else one.sums.get(seq) == sum


def _was_posted(driver: Driver, one: Found, number: int) -> bool:
    if any(row.number == number for row in driver.read_inbox(one.tip.session, 0, 1000)):
        return True
    own = (entry.body for entry in one.entries)
    return any(isinstance(body, InboxTaken) and body.number == number for body in own)


def _said(entries: list[Entry], upto: int) -> list[Entry]:
    said = ("message.added", "model.replied")
    return [entry for entry in entries if entry.seq <= upto and entry.kind in said]


def _says_something(entry: Entry) -> bool:
    return entry.content is not None or (isinstance(entry.body, MessageAdded) and entry.body.title != "")


# -- the store itself ---------------------------------------------------------------------------------


def find_damage(url: str) -> list[str]:
    """What the store's own files say, once nobody has it open."""
    scheme, _, path = url.partition(":")
    if scheme != "sqlite" or not Path(path).exists():
        return []
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        answer = db.pragma("integrity_check")
        return [] if answer == "ok" else [f"integrity_check: {answer}"]
    finally:
        db.close()


def find_leftovers(url: str) -> list[str]:
    """What a finished life should not have left behind: nothing hidden, nothing half-deleted."""
    scheme, _, path = url.partition(":")
    if scheme == "dir":
        folders = ("hidden", "pins", "trash", "tmp")
        return [f"left in {name}: {left}" for name in folders if (left := _names(Path(path) / name))]
    if scheme == "postgresql":
        return _find_leftovers_on_server(schema_of(path))
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        found = (db.execute(query).fetchall() for query in _LEFT)
        return [f"left behind: {left}" for left in found if left]
    finally:
        db.close()


_LEFT = (
    "SELECT session FROM sessions WHERE session LIKE '~%'",
    "SELECT origin_uid FROM pins",
    "SELECT DISTINCT session FROM chunks WHERE session NOT IN (SELECT session FROM sessions)",
)


def _find_leftovers_on_server(schema: str) -> list[str]:
    with connect() as db, db.transaction():
        db.execute(f"SET LOCAL search_path TO {schema}")
        found = (db.execute(query).fetchall() for query in _LEFT)
        return [f"left behind: {left}" for left in found if left]


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
