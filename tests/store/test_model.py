"""Random operations: a driver must answer every one of them as the one in memory does.

When this fails, hypothesis prints the steps, and a line with `@reproduce_failure` that repeats them.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.blobs.home import BlobContext
from holdfast.core.codec import Page
from holdfast.core.entries import Body, InboxCancel, InboxTaken, RunCompleted, RunPaused, RunStarted
from holdfast.core.head import Lease
from holdfast.drivers.contract import (
    Append,
    ClaimChange,
    Done,
    Driver,
    DueFilter,
    Erasure,
    HeadFilter,
    RunCursor,
    hidden_name,
)
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.memory import MemoryDriver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.errors import NotFound
from holdfast.ids import HolderId, SessionId
from holdfast.testing.conformance.author import (
    CHUNK_END,
    Author,
    Said,
    at_second,
    erased,
    note,
    read_all,
    replaced,
    say,
)
from tests.stores import drop, schema_of, server_url

T = TypeVar("T")

NAMES = ("a", "A", "b", "c.1")
KEYS = ("k1", "k2")
HOLDERS = (HolderId("h1"), HolderId("h2"))

names = st.sampled_from(NAMES)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
records = st.none() | st.sampled_from(["r1", "r2"])
changes = st.builds(ClaimChange, key=st.sampled_from(KEYS), expect=records, record=records)
entries = (
    texts.map(say)
    | texts.map(note)
    | st.just(CHUNK_END)
    | st.integers(1, 3).map(lambda size: say("x" * 10_000 * size))
)
runs = st.sampled_from(
    [
        [],
        [],
        [RunStarted()],
        [RunCompleted()],
        [RunPaused()],
        [RunStarted(), RunCompleted()],
        [RunStarted(), CHUNK_END, RunPaused()],
        [RunPaused(), CHUNK_END, RunCompleted(), CHUNK_END],
    ]
)
heads = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["active", "waiting", "completed"]),
        "title": texts,
        "labels": st.dictionaries(st.sampled_from(["l1", "l2"]), st.sampled_from(["x", "y"])),
        "parent": st.none() | names.map(SessionId),
        "open_run": st.sampled_from([None, "r"]),
        "in_doubt": st.integers(0, 2),
        "usd": st.floats(0, 10),
        "due": st.none() | st.integers(0, 5).map(at_second),
        "lease": st.none() | st.sampled_from([Lease(holder=one, name="", fence=1) for one in HOLDERS]),
        "agent": st.sampled_from([None, "x"]),
    },
)
dues = st.builds(
    DueFilter,
    until=st.integers(0, 6).map(at_second),
    holder=st.sampled_from([None, *HOLDERS]),
    agents=st.sampled_from([None, ("x",)]),
    labels=st.sampled_from([{}, {"l1": "x"}]),
)
filters = st.builds(
    HeadFilter,
    status=st.sampled_from([None, "active", "completed"]),
    parent=st.none() | names.map(SessionId),
    labels=st.dictionaries(st.sampled_from(["l1", "l2"]), st.sampled_from(["x", "y"]), max_size=1),
    open_run=st.sampled_from([None, True, False]),
    in_doubt=st.sampled_from([None, True, False]),
)


class Agreement(RuleBasedStateMachine):
    """Does everything twice, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
        self._memory = MemoryDriver()
        self._driver = self.open_driver(self._folder)
        self._authors: dict[str, Author] = {}
        self._gone: list[Author] = []
        self._runs = 0

    def open_driver(self, folder: Path) -> Driver:
        raise NotImplementedError

    def teardown(self) -> None:
        self._driver.close()
        shutil.rmtree(self._folder)

    def _both(self, ask: Callable[[Driver], T]) -> T:
        expected, found = ask(self._memory), ask(self._driver)
        assert found == expected
        return found

    def _commit(self, items: Sequence[tuple[Author, Append]]) -> None:
        outcomes = self._both(lambda driver: list(driver.commit([item for _, item in items])))
        for (author, item), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Done):
                author.accept(item)
                self._authors[author.session] = author

    def _item(
        self, name: str, some: Sequence[Body | Said], run: Sequence[Body] = (), **options: Any
    ) -> tuple[Author, Append]:
        written = [*some, *run]
        if run:
            # Every run has a name of its own; what ends one may be in another session.
            self._runs += isinstance(run[0], RunStarted)
            options |= {"run": f"r{self._runs}", "at": at_second(self._runs // 2)}
        author = self._authors.get(name)
        if author is None:
            author = Author(name)
            return author, author.opening(*written, **options)
        return author, author.write(*(written or [say("nothing")]), **options)

    @rule(
        name=names,
        some=st.lists(entries, max_size=4),
        run=runs,
        head=heads,
        keyframe=st.none() | st.sampled_from([b'{"k":1}', b'{"k":2}']),
        claims=st.lists(changes, max_size=2, unique_by=lambda change: change.key),
    )
    def commit(
        self,
        name: str,
        some: list[Body | Said],
        run: list[Body],
        head: dict[str, Any],
        keyframe: bytes | None,
        claims: list[ClaimChange],
    ) -> None:
        self._commit([self._item(name, some, run, keyframe=keyframe, claims=claims, **head)])

    @rule(
        batch=st.dictionaries(names, st.lists(entries, max_size=2), min_size=2),
        claims=st.lists(changes, max_size=1),
    )
    def commit_a_batch(self, batch: dict[str, list[Body | Said]], claims: list[ClaimChange]) -> None:
        self._commit([self._item(name, some, claims=claims) for name, some in batch.items()])

    @rule(name=names, after=st.sampled_from([None, "no such sum"]), claims=st.lists(changes, max_size=1))
    def commit_what_does_not_fit(self, name: str, after: str | None, claims: list[ClaimChange]) -> None:
        _, item = self._item(name, [say("unfit")], claims=claims)
        if item.after is not None or after is not None:
            item = msgspec.structs.replace(item, after=after)
            self._both(lambda driver: list(driver.commit([item])))

    @rule(origin=names, into=names, share=st.floats(0, 1), gone=st.booleans())
    def fork(self, origin: str, into: str, share: float, gone: bool) -> None:
        author = self._gone[-1] if gone and self._gone else self._authors.get(origin)
        if author is None or into in self._authors:
            return
        seqs = sorted(author.sums)
        fork = author.fork(into, seq=seqs[round(share * (len(seqs) - 1))])
        self._commit([(fork, fork.opening())])

    @rule(name=names, item=texts)
    def post(self, name: str, item: str) -> None:
        def post(driver: Driver) -> int | None:
            try:
                return driver.post(SessionId(name), msgspec.json.encode(item))
            except NotFound:
                return None

        self._both(post)

    @rule(name=names, number=st.integers(1, 3))
    def take_in(self, name: str, number: int) -> None:
        author = self._authors.get(name)
        tip = self._memory.find_tip(SessionId(name))
        if author and tip and author.head.taken < number <= tip.posted:
            item = author.write(InboxTaken(number=number, item=InboxCancel()), taken=number)
            self._commit([(author, item)])

    @rule(name=names, stale=st.booleans())
    def delete(self, name: str, stale: bool) -> None:
        author = self._authors.get(name)
        after = author.sum if author and not stale else "no such sum"
        outcome = self._both(lambda driver: driver.delete(SessionId(name), after))
        if isinstance(outcome, Done):
            self._gone.append(self._authors.pop(name))

    @rule(
        name=names,
        shares=st.lists(st.floats(0, 1), max_size=3),
        parts=st.sampled_from(["details", "said", "both"]),
        stale=st.booleans(),
    )
    def erase(self, name: str, shares: list[float], parts: str, stale: bool) -> None:
        author = self._authors.get(name)
        if author is None:
            return
        left: dict[int, Erasure] = {}
        for share in shares:
            chunk = author.chunks[round(share * (len(author.chunks) - 1))]
            whole = erased(chunk)
            left[chunk.seq] = Erasure(
                chunk.details if parts == "said" else whole.details,
                chunk.said if parts == "details" else whole.said,
            )
        after = "no such sum" if stale else author.sum
        head = msgspec.structs.replace(author.head, title="")
        outcome = self._both(lambda driver: driver.erase(author.session, after, left, head))
        if isinstance(outcome, Done):
            author.chunks = [replaced(chunk, left.get(chunk.seq)) for chunk in author.chunks]
            author.head = head

    @rule(change=changes)
    def claim(self, change: ClaimChange) -> None:
        self._both(lambda driver: driver.claim(change))

    @rule(holder=st.sampled_from(HOLDERS), record=texts, sessions=st.lists(names, unique=True))
    def beat(self, holder: HolderId, record: str, sessions: list[str]) -> None:
        data = msgspec.json.encode(record)
        asked = [SessionId(name) for name in sessions]
        self._both(lambda driver: dict(driver.beat(holder, data, asked)))

    @rule(holder=st.sampled_from(HOLDERS))
    def retire(self, holder: HolderId) -> None:
        self._both(lambda driver: driver.retire(holder))

    @rule(data=st.sampled_from([b"", b"one", b"two"]), name=st.sampled_from(["1", "2"]))
    def put_blob(self, data: bytes, name: str) -> None:
        digest = hashlib.sha256(data).hexdigest()

        def put(driver: Driver) -> tuple[BlobContext, bytes] | None:
            context = BlobContext(file_name=name)
            driver.blobs.put(digest, [data[:2], data[2:]], context, owner=driver.store_id())
            found = driver.blobs.find(digest)
            return (found.context, b"".join(found.parts)) if found else None

        self._both(put)

    @rule(number=st.integers(0, 3))
    def remove_blob(self, number: int) -> None:
        """Times differ from driver to driver; that one was put before now does not."""

        def remove(driver: Driver) -> list[tuple[str, int, BlobContext]]:
            for blob in driver.blobs.list_blobs(None, 10)[number : number + 1]:
                assert driver.blobs.remove(blob.digest, put_before=blob.put_at + timedelta(microseconds=1))
            return [(blob.digest, blob.size, blob.context) for blob in driver.blobs.list_blobs(None, 10)]

        self._both(remove)

    @rule(name=names, after=st.integers(0, 30), limit=st.integers(0, 5), said=st.booleans())
    def read(self, name: str, after: int, limit: int, said: bool) -> None:
        self._both(lambda driver: _found(driver.read(SessionId(name), after, limit, said=said)))

    @rule(name=names, after=st.integers(0, 3), limit=st.integers(0, 3))
    def read_inbox(self, name: str, after: int, limit: int) -> None:
        self._both(lambda driver: list(driver.read_inbox(SessionId(name), after, limit)))

    @rule(wanted=filters, after=st.none() | names.map(SessionId), limit=st.integers(0, 3))
    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> None:
        self._both(lambda driver: list(driver.list_tips(wanted, after, limit)))

    @rule(wanted=dues, limit=st.integers(0, 3))
    def list_due(self, wanted: DueFilter, limit: int) -> None:
        self._both(lambda driver: list(driver.list_due(wanted, limit)))

    @rule(name=st.none() | names.map(SessionId), place=st.integers(0, 5), limit=st.integers(0, 3))
    def list_runs(self, name: SessionId | None, place: int, limit: int) -> None:
        known = self._memory.list_runs(None, None, 100)
        after: RunCursor | None = known[place].cursor if place < len(known) else None
        self._both(lambda driver: list(driver.list_runs(name, after, limit)))

    @rule()
    def reopen(self) -> None:
        name = self._driver.store_id()
        self._driver.close()
        self._driver = self.open_driver(self._folder)
        assert self._driver.store_id() == name

    @invariant()
    def everything_agrees(self) -> None:
        self._both(self._everything)

    def _everything(self, driver: Driver) -> list[object]:
        seen: list[object] = [
            list(driver.list_tips(HeadFilter(), None, 100)),
            list(driver.list_runs(None, None, 100)),
            [driver.find_claim(key) for key in KEYS],
            [_record_of(driver, holder) for holder in HOLDERS],
            [(holder, beat and beat.record) for holder, beat in driver.list_holders()],
            [_found(read_all(driver, hidden_name(author.uid))) for author in self._gone],
        ]
        for session in map(SessionId, NAMES):
            inbox = list(driver.read_inbox(session, 0, 100))
            seen += [
                _found(read_all(driver, session)),
                driver.find_tip(session),
                driver.find_keyframe(session),
                inbox,
            ]
        return seen


def _found(page: Page) -> Page | None:
    """All pages without a chunk say the same."""
    return page if page.count else None


def _record_of(driver: Driver, holder: HolderId) -> bytes | None:
    """Without its age, which only a server knows."""
    beat = driver.find_beat(holder)
    return beat.record if beat else None


class DirectoryAgreement(Agreement):
    def open_driver(self, folder: Path) -> Driver:
        return DirectoryDriver(folder / "store")


class SqliteAgreement(Agreement):
    def open_driver(self, folder: Path) -> Driver:
        return SqliteDriver(folder / "store.db")


class PostgresAgreement(Agreement):
    def open_driver(self, folder: Path) -> Driver:
        return PostgresDriver(server_url(schema_of(folder)))

    def teardown(self) -> None:
        super().teardown()
        drop([schema_of(self._folder)])


def check(agreement: type[Agreement], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        agreement,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("agreement", [DirectoryAgreement, SqliteAgreement])
def test_a_driver_agrees_with_the_one_in_memory(agreement: type[Agreement]) -> None:
    """Whatever is done to both, they give the same answers."""
    check(agreement, examples=25, steps=30)


def test_postgres_agrees_with_the_driver_in_memory(postgres: str) -> None:
    """The same, a little less of it: every sequence makes a schema."""
    check(PostgresAgreement, examples=10, steps=30)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_postgres_agrees_with_the_driver_in_memory_for_long(postgres: str) -> None:
    """With more and longer sequences."""
    check(PostgresAgreement, examples=60, steps=60)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("agreement", [DirectoryAgreement, SqliteAgreement])
def test_a_driver_agrees_with_the_one_in_memory_for_long(agreement: type[Agreement]) -> None:
    """The same, with many more and longer sequences."""
    check(agreement, examples=400, steps=60)
