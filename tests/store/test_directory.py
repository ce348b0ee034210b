"""What only a directory can suffer: torn files, full disks, foreign directories."""

import errno
import fcntl
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.blobs.home import BlobContext
from holdfast.core.codec import Page
from holdfast.core.entries import Body, CheckpointTaken, InboxCancel, InboxTaken, RunCompleted, RunStarted
from holdfast.drivers.contract import Append, ClaimChange, Conflict, Done, HeadFilter, hidden_name
from holdfast.drivers.directory import DirectoryDriver, layout
from holdfast.drivers.directory import journal as journals
from holdfast.errors import BadUrl, Corrupt, NewerFormat, NotFound, StoreBusy, StoreFailed
from holdfast.ids import HolderId, SessionId
from holdfast.system import file_locks as locks
from holdfast.system import files
from holdfast.testing.conformance.author import Author, Said, commit_one, erased, note, read_all, say, whole

A = SessionId("a")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def driver(root: Path) -> DirectoryDriver:
    return DirectoryDriver(root)


@pytest.fixture
def author(driver: DirectoryDriver) -> Author:
    """Three commits: line 1 with entry 1, lines 2 and 3 with entries 2 to 5, lines 4 and 5 with 6 to 9."""
    author = Author("a")
    author.begin(driver)
    author.commit(driver, *chunk_of(say("two")), say("four"), note("five"))
    author.commit(driver, *chunk_of(say("six")), say("eight"), note("nine"))
    return author


def chunk_of(*entries: Body | Said) -> list[Body | Said]:
    """These entries, and one that ends the chunk."""
    return [*entries, CheckpointTaken(version=1)]


def author_and(author: Author, item: Append) -> object:
    """The page of all that was accepted, and of this."""
    return whole([*author.chunks, *item.chunks])


@pytest.fixture
def journal(root: Path, author: Author) -> Path:
    return root / "sessions" / "a" / "journal.jsonl"


def stored_lines(journal: Path) -> list[bytes]:
    return journal.read_bytes().splitlines(keepends=True)


def forget_head(journal: Path) -> None:
    """As a crash in the middle of a commit leaves it: the head is written when the commit is durable."""
    (journal.parent / "head.json").unlink(missing_ok=True)


# -- the file ---------------------------------------------------------------------------------------


def test_a_journal_can_be_read_by_anything_that_reads_json_lines(journal: Path, author: Author) -> None:
    """One object a line; `end` counts the entries of the commit that a line ends."""
    rows = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    assert [row["facts"]["seq"] for row in rows] == [1, 2, 4, 6, 8]
    assert [len(row["facts"]["entries"]) for row in rows] == [1, 2, 2, 2, 2]
    assert [row.get("end") for row in rows] == [1, None, 4, None, 4]
    assert [row["sum"] for row in rows] == list(author.sums.values())
    assert [list(row) for row in rows[:3]] == [
        ["facts", "sum", "end"],
        ["facts", "sum", "said"],
        ["facts", "sum", "details", "said", "end"],
    ]


def test_each_part_stands_in_its_line_byte_for_byte(journal: Path, author: Author) -> None:
    """What is hashed is never written in another way."""
    for line, chunk in zip(stored_lines(journal), author.chunks, strict=True):
        assert b'{"facts":%b,"sum":"%b"' % (chunk.facts, chunk.sum.encode()) in line
        assert chunk.details is None or b',"details":%b' % chunk.details in line
        assert chunk.said is None or b',"said":%b' % chunk.said in line


def test_a_fresh_head_is_told(driver: DirectoryDriver, author: Author) -> None:
    """After each commit the cache is that of the journal."""
    tip = driver.find_tip(A)
    assert tip is not None
    assert tip.head == author.head


def test_files_can_be_handed_from_process_to_process(root: Path, author: Author, journal: Path) -> None:
    """A driver that did not write them finds its way from the end, and from the middle."""
    author.commit(DirectoryDriver(root), *(one for _ in range(300) for one in chunk_of(say("x" * 1000))))
    for after in (0, 1, 2, 3, 4, 100, 101, 350, 606, 607, 608, 609, 610):
        expected = [chunk for chunk in author.chunks if chunk.seq > after][:3]
        for said in (True, False):
            found = DirectoryDriver(root).read(A, after, 3, said=said)
            assert found == Page.of(expected, said=said) or (not expected and not found.count)


def test_a_page_ends_with_a_line_wherever_the_blocks_end_in_which_it_is_read(
    driver: DirectoryDriver, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of every size, pages of every length."""
    for size in range(2, 300):
        monkeypatch.setattr(journals, "_BUFFER_BYTES", size)
        for limit in range(1, 7):
            assert driver.read(A, 0, limit, said=True) == whole(author.chunks[:limit])


def test_reading_on_costs_what_is_read(
    root: Path, author: Author, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a process that has never seen the file: it finds the place by halving."""
    for _ in range(20):
        author.commit(DirectoryDriver(root), *(one for _ in range(20) for one in chunk_of(say("x" * 5000))))
    size = journal.stat().st_size
    driver = DirectoryDriver(root)
    taken = 0

    def count(fd: int, size: int, offset: int) -> bytes:
        nonlocal taken
        data = os.pread(fd, size, offset)
        taken += len(data)
        return data

    monkeypatch.setattr(files, "read_at", count)
    for after in range(0, author.seq, 100):
        assert driver.read(A, after, 2, said=True).count == 2
    # A look at the end of the file, then a block for each place.
    assert taken < size / 2


def test_runs_are_known_from_commits_as_they_are_from_the_file(root: Path) -> None:
    """From the commits of this process, from those of others, and by a process that made none."""
    driver, other = DirectoryDriver(root), DirectoryDriver(root)
    author = Author("a")
    author.begin(driver, RunStarted(), run="0")
    assert [run.run for run in driver.list_runs(A, None, 10)] == ["0"]
    words = chunk_of(say('"kind":"run.started"'))
    writers = [driver, other, driver, driver, other, other, driver]
    for number, (writer, next_writer) in enumerate(pairwise(writers), start=1):
        author.commit(writer, *words, RunStarted(), *words, run=f"{number}")
        author.commit(next_writer, *words, RunCompleted(), *words, run=f"{number}")
        found = [list(one.list_runs(A, None, 10)) for one in (driver, other, DirectoryDriver(root))]
        assert found[0] == found[1] == found[2]
    assert [(run.run, run.ended is not None) for run in found[0]] == [
        ("0", False),
        *((f"{number}", True) for number in range(1, len(writers))),
    ]


# -- torn tails -------------------------------------------------------------------------------------


def test_a_commit_that_was_cut_short_anywhere_never_happened(
    root: Path, author: Author, journal: Path
) -> None:
    """The session goes on from the commit before, and what was cut off is kept."""
    stored = journal.read_bytes()
    start = len(b"".join(stored_lines(journal)[:3]))
    before = author.twin()
    before.seq, before.sum = 5, author.sums[5]
    for length in range(start, len(stored)):
        journal.write_bytes(stored[:length])
        forget_head(journal)
        driver = DirectoryDriver(root)
        assert read_all(driver, "a") == whole(author.chunks[:3])
        tip = driver.find_tip(A)
        assert tip is not None
        assert (tip.seq, tip.sum, tip.head) == (5, author.sums[5], None)
        assert journal.read_bytes() == stored[:length]

        item = before.write(say("instead"))
        assert commit_one(driver, item) == Done(0)
        assert read_all(driver, "a") == whole([*author.chunks[:3], *item.chunks])
        kept = sorted(journal.parent.glob("torn-*"))
        assert [path.read_bytes() for path in kept] == ([stored[start:length]] if length > start else [])
        for path in kept:
            path.unlink()


def zeroed(line: bytes) -> bytes:
    return b"\0" * len(line)


def left_out(line: bytes) -> bytes:
    return b""


def doubled(line: bytes) -> bytes:
    return line + line


def unmarked(line: bytes) -> bytes:
    return line.replace(b',"end":4}', b"}")


def miscounted(line: bytes) -> bytes:
    return line.replace(b',"end":4}', b',"end":5}')


def undercounted(line: bytes) -> bytes:
    return line.replace(b',"end":4}', b',"end":3}')


def cut_in_half(line: bytes) -> bytes:
    return line[: len(line) // 2] + b"\n"


def without_newline(line: bytes) -> bytes:
    return line[:-1] + b" "


def with_a_misspelt_mark(line: bytes) -> bytes:
    return line.replace(b',"end":', b',"eNd":')


def renumbered(line: bytes) -> bytes:
    return line.replace(b'"seq":', b'"seq":9', 1)


def without_an_entry(line: bytes) -> bytes:
    row = json.loads(line)
    del row["facts"]["entries"][0]
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    ("index", "damage"),
    [
        (3, zeroed),
        (3, cut_in_half),
        (3, renumbered),
        (3, without_an_entry),
        (4, zeroed),
        (4, cut_in_half),
        (4, renumbered),
        (4, without_an_entry),
        (4, unmarked),
        (4, miscounted),
        (4, undercounted),
    ],
)
def test_damage_in_the_last_commit_cuts_it_whole(
    root: Path, author: Author, journal: Path, index: int, damage: Callable[[bytes], bytes]
) -> None:
    """Pages of one write can reach the disk in any order."""
    lines = stored_lines(journal)
    lines[index] = damage(lines[index])
    journal.write_bytes(b"".join(lines))
    forget_head(journal)
    driver = DirectoryDriver(root)
    assert read_all(driver, "a") == whole(author.chunks[:3])
    assert journal.read_bytes() == b"".join(lines)
    late = author.write(say("ten"))
    assert commit_one(driver, late) == Conflict(author.sums[5])
    assert journal.read_bytes() == b"".join(lines)


def test_a_driver_that_knows_the_file_finds_a_torn_tail_too(
    driver: DirectoryDriver, author: Author, journal: Path
) -> None:
    """Another process died in the middle of a commit."""
    assert read_all(driver, "a") == author.page
    with journal.open("ab") as file:
        file.write(b'{"facts":{"v":2,"seq":10,"at":"20')
    assert read_all(driver, "a") == author.page
    item = author.commit(driver, say("six"))
    assert read_all(driver, "a") == author.page
    assert author.chunks[-1:] == list(item.chunks)
    assert len(list(journal.parent.glob("torn-*"))) == 1


def test_two_torn_tails_at_the_same_place_are_both_kept(
    driver: DirectoryDriver, author: Author, journal: Path
) -> None:
    """Nothing that was ever in the file is lost."""
    stored = journal.read_bytes()
    for number in (1, 2):
        journal.write_bytes(stored + b"torn %d" % number)
        forget_head(journal)
        assert commit_one(driver, author.write(say("six"))) == Done(0)
    kept = sorted(journal.parent.glob("torn-*"))
    assert [path.name for path in kept] == [f"torn-{len(stored)}-1", f"torn-{len(stored)}-2"]
    assert [path.read_bytes() for path in kept] == [b"torn 1", b"torn 2"]


def test_a_session_whose_first_commit_was_cut_short_does_not_exist(root: Path) -> None:
    """It is listed nowhere, and can begin."""
    lost = Author("a")
    lost.begin(DirectoryDriver(root))
    journal = root / "sessions" / "a" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-1])
    forget_head(journal)
    driver = DirectoryDriver(root)
    assert driver.find_tip(A) is None
    assert list(driver.list_tips(HeadFilter(), None, 10)) == []
    assert commit_one(driver, lost.write(say("two"))) == Conflict(None)
    with pytest.raises(NotFound):
        driver.post(A, b"{}")
    author = Author("a")
    author.begin(driver)
    assert read_all(driver, "a") == author.page
    fork = author.fork("b", seq=1)
    fork.begin(driver)


def test_a_long_torn_tail_is_cut(root: Path, author: Author, journal: Path) -> None:
    """Also one that is much longer than what is read at first."""
    large = author.write(*(one for _ in range(100) for one in chunk_of(say("x" * 10_000))))
    assert commit_one(DirectoryDriver(root), large) == Done(0)
    os.truncate(journal, journal.stat().st_size - 1)
    forget_head(journal)
    driver = DirectoryDriver(root)
    assert read_all(driver, "a") == author.page
    author.commit(driver, say("six"))
    assert read_all(driver, "a") == author.page


# -- other damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("damage", [zeroed, cut_in_half, renumbered, without_newline])
def test_earlier_damage_is_an_error_that_names_the_line(
    root: Path, author: Author, journal: Path, index: int, damage: Callable[[bytes], bytes]
) -> None:
    """No crash does that. Nothing is cut, by readers or by writers."""
    lines = stored_lines(journal)
    lines[index] = damage(lines[index])
    journal.write_bytes(b"".join(lines))
    driver = DirectoryDriver(root)
    for attempt in (lambda: read_all(driver, "a"), lambda: commit_one(driver, author.write(say("six")))):
        with pytest.raises(Corrupt) as caught:
            attempt()
        assert caught.value.where == str(journal)
        if damage is not renumbered:
            assert caught.value.line == index + 1
    assert journal.read_bytes() == b"".join(lines)
    assert list(journal.parent.glob("torn-*")) == []


@pytest.mark.parametrize("index", [0, 2])
def test_a_commit_that_lost_its_mark_is_an_error_and_not_cut_with_the_last_one(
    root: Path, author: Author, journal: Path, index: int
) -> None:
    """Every line can be read, and the last one says that its commit began later."""
    lines = stored_lines(journal)
    lines[index] = with_a_misspelt_mark(lines[index])
    journal.write_bytes(b"".join(lines))
    forget_head(journal)
    for attempt in (
        lambda: read_all(DirectoryDriver(root), "a"),
        lambda: commit_one(DirectoryDriver(root), author.write(say("ten"))),
    ):
        with pytest.raises(Corrupt) as caught:
            attempt()
        assert caught.value.line == index + 1
    assert journal.read_bytes() == b"".join(lines)


def test_damage_far_from_the_end_is_found_by_who_reads_it(root: Path, author: Author, journal: Path) -> None:
    """The end can still be told, and written to; the line number is exact."""
    for _ in range(50):
        author.commit(DirectoryDriver(root), *chunk_of(say("x" * 5000)), say("y" * 5000))
    lines = stored_lines(journal)
    lines[40] = zeroed(lines[40])
    journal.write_bytes(b"".join(lines))
    driver = DirectoryDriver(root)
    author.commit(driver, say("last"))
    assert driver.read(A, author.seq - 2, 10, said=True) == whole(author.chunks[-2:])
    assert driver.read(A, 0, 40, said=True) == whole(author.chunks[:40])
    for reader in (driver, DirectoryDriver(root)):
        with pytest.raises(Corrupt) as caught:
            read_all(reader, "a")
        assert caught.value.line == 41
        with pytest.raises(Corrupt) as caught:
            reader.read(A, author.chunks[38].seq, 2, said=False)
        assert caught.value.line == 41


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize(
    "damage", [zeroed, cut_in_half, renumbered, without_an_entry, without_newline, left_out, doubled]
)
def test_damage_within_a_page_is_named_by_its_line(
    root: Path, author: Author, journal: Path, damage: Callable[[bytes], bytes], said: bool
) -> None:
    """All lines of a page are decoded at once; the error says which it is all the same."""
    for _ in range(50):
        author.commit(DirectoryDriver(root), *chunk_of(say("x" * 5000)), say("y" * 5000), note("z"))
    lines = stored_lines(journal)
    lines[40] = damage(lines[40])
    journal.write_bytes(b"".join(lines))
    driver = DirectoryDriver(root)
    for after, limit in ((0, 60), (0, 1000), (author.chunks[35].seq, 20)):
        with pytest.raises(Corrupt) as caught:
            driver.read(A, after, limit, said=said)
        assert caught.value.where == str(journal)
        assert caught.value.line == (42 if damage in (doubled, without_an_entry) else 41)


def test_a_damaged_session_does_not_keep_others_from_being_listed(
    driver: DirectoryDriver, author: Author, journal: Path, root: Path
) -> None:
    """It is in the list, so that whoever checks everything finds it."""
    other = Author("b")
    other.begin(driver, RunStarted(), run="r")
    lines = stored_lines(journal)
    journal.write_bytes(b"".join([lines[0], b"damage\n", *lines[2:]]))
    found = DirectoryDriver(root)
    assert [tip.session for tip in found.list_tips(HeadFilter(), None, 10)] == ["a", "b"]
    assert [run.cursor.session for run in found.list_runs(None, None, 10)] == ["b"]


def test_a_damaged_fork_still_keeps_the_lines_of_its_origin(
    driver: DirectoryDriver, author: Author, journal: Path, root: Path
) -> None:
    """Somebody may repair it."""
    fork = author.fork("b", seq=3)
    fork.begin(driver)
    fork.commit(driver, say("five"))
    damaged = root / "sessions" / "b" / "journal.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'"seq":4', b'"seq":x'))
    found = DirectoryDriver(root)
    assert found.delete(A, author.sum) == Done(0)
    # The pinned chunk was the first of two of a commit: it is now the last one.
    assert read_all(found, hidden_name(author.uid)) == whole(author.chunks[:2])
    assert read_all(DirectoryDriver(root), hidden_name(author.uid)) == whole(author.chunks[:2])


# -- what was acknowledged --------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_missing_last_commit_is_noticed_and_never_written_over(
    driver: DirectoryDriver, root: Path, author: Author, journal: Path, keep: int
) -> None:
    """The head says that it was acknowledged: this is no crash. In readers, writers and listings."""
    lines = stored_lines(journal)
    journal.write_bytes(b"".join(lines[:keep]))
    for one in (driver, DirectoryDriver(root)):
        for attempt in (
            lambda one=one: one.read(A, 0, 10, said=False),
            lambda one=one: one.find_tip(A),
            lambda one=one: commit_one(one, author.write(say("six"))),
            lambda one=one: one.delete(A, author.sum),
            lambda one=one: one.post(A, b"{}"),
        ):
            with pytest.raises(Corrupt, match="9 were acknowledged") as caught:
                attempt()
            assert caught.value.where == str(journal)
        (tip,) = one.list_tips(HeadFilter(), None, 10)
        assert isinstance(tip.damage, Corrupt)
    assert journal.read_bytes() == b"".join(lines[:keep])


def test_exchanged_journals_are_noticed(root: Path, driver: DirectoryDriver, author: Author) -> None:
    """The files alone, those with what belongs to them, and whole folders."""
    other = Author("b")
    other.begin(driver)
    other.commit(driver, *map(say, "abcdefgh"))
    a, b = root / "sessions" / "a", root / "sessions" / "b"
    for names in (["journal.jsonl"], ["journal.jsonl", "session.json"], ["session.json", "head.json"]):
        for _ in range(2):
            for name in names:
                (a / name).rename(root / "aside")
                (b / name).rename(a / name)
                (root / "aside").rename(b / name)
            if not (a / "seen").exists():
                (a / "seen").touch()
                for session in (A, SessionId("b")):
                    with pytest.raises(Corrupt):
                        DirectoryDriver(root).find_tip(session)
        (a / "seen").unlink()
    assert read_all(DirectoryDriver(root), "a") == author.page
    a.rename(root / "aside")
    b.rename(a)
    (root / "aside").rename(b)
    for session in (A, SessionId("b")):
        with pytest.raises(Corrupt, match="of another one"):
            driver.find_tip(session)


def test_a_missing_lock_is_named(driver: DirectoryDriver, author: Author, journal: Path) -> None:
    """It is not made anew while another process may hold the old one."""
    lock = journal.parent / "lock"
    lock.unlink()
    for attempt in (
        lambda: commit_one(driver, author.write(say("six"))),
        lambda: commit_one(driver, Author("a").opening()),
        lambda: driver.delete(A, author.sum),
        lambda: driver.post(A, b"{}"),
    ):
        with pytest.raises(Corrupt, match=r"make an empty\s+file") as caught:
            attempt()
        assert caught.value.where == str(lock)
    assert read_all(driver, "a") == author.page
    lock.touch()
    author.commit(driver, say("six"))


# -- removed, renamed or replaced while it is open --------------------------------------------------


@pytest.mark.parametrize("part", [".", "sessions", "sessions/a", "sessions/a/journal.jsonl"])
def test_nothing_is_acknowledged_into_a_place_that_was_moved_away(
    root: Path, driver: DirectoryDriver, author: Author, part: str
) -> None:
    """`StoreFailed` names it; when it is back, the same commit lands."""
    path, aside = root / part, root.parent / "aside"
    item = author.write(say("six"))
    path.rename(aside)
    for _ in range(2):
        with pytest.raises(StoreFailed) as caught:
            commit_one(driver, item)
        assert str(root) in str(caught.value)
    aside.rename(path)
    assert commit_one(driver, item) == Done(0)
    author.accept(item)
    assert read_all(DirectoryDriver(root), "a") == author.page


@pytest.mark.parametrize("part", [".", "sessions/a", "sessions/a/journal.jsonl"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_commit_is_not_acknowledged_if_its_file_is_moved_while_it_is_written(
    root: Path, driver: DirectoryDriver, author: Author, part: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync succeeds, in a file that nobody will find."""
    path, aside = root / part, root.parent / "aside"

    def move_and_sync(fd: int) -> None:
        path.rename(aside)
        if how == "replaced":
            if aside.is_dir():
                shutil.copytree(aside, path)
            else:
                shutil.copy(aside, path)
        files.sync_data(fd)

    item = author.write(say("six"))
    with monkeypatch.context() as patch:
        patch.setattr(journals, "sync_data", move_and_sync)
        with pytest.raises(StoreFailed, match="removed, renamed or replaced"):
            commit_one(driver, item)
    if path.is_dir():
        shutil.rmtree(path)
    aside.rename(path)
    assert commit_one(driver, item) == Done(0)
    assert read_all(DirectoryDriver(root), "a") == author_and(author, item)


def test_another_store_in_the_place_of_the_open_one_is_refused(
    root: Path, driver: DirectoryDriver, author: Author
) -> None:
    """By readers, too: they would say that there is no session."""
    root.rename(root.parent / "aside")
    other = DirectoryDriver(root)
    for attempt in (
        lambda: commit_one(driver, Author("b").opening()),
        lambda: driver.find_tip(A),
        lambda: driver.list_tips(HeadFilter(), None, 10),
        lambda: driver.beat(HolderId("h"), b"{}", []),
        lambda: driver.blobs.put("0" * 64, [b""], BlobContext(), owner="me"),
    ):
        with pytest.raises(StoreFailed, match=other.store_id()):
            attempt()
    assert list(other.list_tips(HeadFilter(), None, 10)) == []


def test_a_deleted_session_is_told_from_one_whose_folder_was_moved(
    driver: DirectoryDriver, root: Path, author: Author
) -> None:
    """A writer that has not noticed is out for good, in another process as well."""
    assert DirectoryDriver(root).delete(A, author.sum) == Done(0)
    assert commit_one(driver, author.write(say("six"))) == Conflict(None)


@pytest.mark.parametrize("length", [0, 1, 30, -2])
def test_a_torn_head_is_not_believed(root: Path, author: Author, length: int) -> None:
    """The tip is there, without a head; the next commit writes it anew."""
    path = root / "sessions" / "a" / "head.json"
    path.write_bytes(path.read_bytes()[:length] + b"\n")
    driver = DirectoryDriver(root)
    tip = driver.find_tip(A)
    assert tip is not None
    assert (tip.seq, tip.head) == (9, None)
    assert [tip.session for tip in driver.list_tips(HeadFilter(status="failed"), None, 10)] == ["a"]
    author.commit(driver, say("six"))
    tip = driver.find_tip(A)
    assert tip is not None
    assert tip.head == author.head


def test_a_head_of_another_commit_is_not_believed(root: Path, author: Author) -> None:
    """It is a cache: it counts only with the sum of the journal's last line."""
    path = root / "sessions" / "a" / "head.json"
    old = path.read_bytes()
    author.commit(DirectoryDriver(root), say("six"))
    path.write_bytes(old)
    tip = DirectoryDriver(root).find_tip(A)
    assert tip is not None
    assert (tip.seq, tip.head) == (10, None)


def test_a_head_that_is_half_old_and_half_new_is_not_believed(root: Path, author: Author) -> None:
    """Even where the halves fit together and the sum is the right one."""
    path = root / "sessions" / "a" / "head.json"
    path.write_bytes(path.read_bytes().replace(b'"status":"active"', b'"status":"failed"'))
    tip = DirectoryDriver(root).find_tip(A)
    assert tip is not None
    assert tip.head is None


# -- failing disks ----------------------------------------------------------------------------------


@contextmanager
def failing(function: str, code: int, *, after: int = 0) -> Iterator[None]:
    """Calls of this function of `os` fail from the `after`-th on."""
    real = getattr(os, function)
    calls = 0

    def fail(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(code, os.strerror(code))
        return real(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, function, fail)
        yield


@pytest.mark.parametrize(
    ("function", "code", "advice"),
    [
        ("write", errno.ENOSPC, "Free some space"),
        ("write", errno.EDQUOT, "quota"),
        ("fdatasync", errno.EIO, "check the disk"),
        ("fdatasync", errno.ENOSPC, "Free some space"),
    ],
)
def test_a_commit_that_fails_leaves_the_file_as_it_was(
    driver: DirectoryDriver, author: Author, journal: Path, function: str, code: int, advice: str
) -> None:
    """The error says what to do; once that is done, the same item lands."""
    before = journal.read_bytes()
    item = author.write(say("six"), say("seven"))
    with failing(function, code), pytest.raises(StoreFailed, match=advice) as caught:
        driver.commit([item])
    assert isinstance(caught.value.__cause__, OSError)
    assert str(journal) in str(caught.value)
    assert journal.read_bytes() == before
    assert read_all(driver, "a") == author.page
    assert commit_one(driver, item) == Done(0)
    assert read_all(driver, "a") == author_and(author, item)


def test_a_disk_that_fills_up_in_the_middle_of_a_commit_leaves_nothing_of_it(
    driver: DirectoryDriver, author: Author, journal: Path
) -> None:
    """A file that may not grow beyond a limit takes the first part of a write, and refuses the rest."""
    before = journal.read_bytes()
    item = author.write(say("x" * 5000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 1000, hard))
    try:
        with pytest.raises(StoreFailed, match="ulimit -f"):
            driver.commit([item])
        assert journal.read_bytes() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert commit_one(driver, item) == Done(0)
    assert read_all(driver, "a") == author_and(author, item)


def test_a_commit_that_can_neither_be_synced_nor_taken_back_is_settled_by_committing_it_again(
    driver: DirectoryDriver, author: Author
) -> None:
    """Its outcome is unknown; afterwards it is known, and the lines are there once."""
    item = author.write(say("six"))
    with failing("fdatasync", errno.EIO), failing("ftruncate", errno.EIO), pytest.raises(StoreFailed):
        driver.commit([item])
    assert commit_one(driver, item) in (Done(0), Conflict(item.head.sum))
    assert read_all(driver, "a") == author_and(author, item)


@pytest.mark.parametrize("function", ["write", "fdatasync", "fsync", "rename"])
def test_a_session_that_could_not_begin_can_begin_later(root: Path, function: str) -> None:
    """Whatever failed, and however far it came."""
    driver = DirectoryDriver(root)
    Author("other").begin(driver)
    for after in range(10):
        author = Author("a")
        try:
            with failing(function, errno.ENOSPC, after=after):
                author.begin(driver)
        except StoreFailed:
            assert driver.find_tip(A) is None
            author.begin(driver)
        assert read_all(DirectoryDriver(root), "a") == author.page
        assert driver.delete(A, author.sum) == Done(0)


@pytest.mark.parametrize("function", ["write", "fdatasync", "fsync", "rename"])
def test_a_claim_and_its_lines_fail_together(root: Path, function: str) -> None:
    """Whatever failed: committing the same item again settles it, lines and claim alike."""
    driver = DirectoryDriver(root)
    change = ClaimChange(key="k", expect=None, record="mine")
    for after in range(10):
        author = Author(f"s{after}")
        author.begin(driver)
        item = author.write(say("issued"), claims=[change])
        try:
            with failing(function, errno.ENOSPC, after=after):
                driver.commit([item])
        except StoreFailed:
            landed = len(read_all(driver, author.session)) == 2
            assert DirectoryDriver(root).find_claim("k") == ("mine" if landed else None)
            assert commit_one(driver, item) in (Done(0), Conflict(item.head.sum))
        assert len(read_all(driver, author.session)) == 2
        assert driver.find_claim("k") == "mine"
        assert driver.claim(ClaimChange(key="k", expect="mine", record=None)) == Done(0)


def test_a_cache_that_cannot_be_written_does_not_fail_the_commit(
    driver: DirectoryDriver, author: Author, root: Path
) -> None:
    """The lines are durable: what is missing beside them costs time, and nothing else."""
    (root / "sessions" / "a" / "head.json").unlink()
    (root / "sessions" / "a" / "head.json").mkdir()
    with failing("rename", errno.EIO):
        author.commit(driver, say("six"), keyframe=b"{}")
    assert read_all(driver, "a") == author.page
    assert driver.find_keyframe(A) is None


# -- locks ------------------------------------------------------------------------------------------


def test_a_lock_that_is_never_let_go_of_is_reported(
    driver: DirectoryDriver, author: Author, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped in the middle surfaces as an error, with the path of the lock."""
    monkeypatch.setattr(locks, "BUSY_S", 0.05)
    lock = root / "sessions" / "a" / "lock"
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        item = author.write(say("six"))
        with pytest.raises(StoreBusy, match=str(lock)):
            driver.commit([item])
        assert read_all(driver, "a") == author.page
    assert commit_one(driver, item) == Done(0)


def test_a_line_that_is_not_synced_yet_is_not_read(
    driver: DirectoryDriver, author: Author, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader waits for the commit that is under way: its lines may yet be taken back."""
    other = DirectoryDriver(root)
    assert read_all(other, "a") == author.page
    monkeypatch.setattr(locks, "BUSY_S", 0.01)

    def look(fd: int) -> None:
        for reader in (other, driver):
            with pytest.raises(StoreBusy):
                read_all(reader, "a")
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", look)
        with pytest.raises(StoreFailed):
            driver.commit([author.write(say("six"))])
    assert read_all(other, "a") == author.page


def test_who_waited_for_a_session_that_was_deleted_does_not_write_into_the_trash(
    driver: DirectoryDriver, author: Author, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock that was waited for is no longer the session's."""
    anew = Author("a")
    opened = os.open
    lock = root / "sessions" / "a" / "lock"
    other = DirectoryDriver(root)

    def delete_meanwhile(path: Path, flags: int, *args: Any, **options: Any) -> int:
        fd = opened(path, flags, *args, **options)
        if path == lock and not flags & os.O_CREAT:
            monkeypatch.undo()
            assert other.delete(A, author.sum) == Done(0)
        return fd

    monkeypatch.setattr(os, "open", delete_meanwhile)
    anew.begin(driver)
    assert read_all(other, "a") == anew.page


# -- the root ---------------------------------------------------------------------------------------


def test_a_store_is_made_with_the_directories_above_it(tmp_path: Path) -> None:
    """As deep as asked for."""
    root = tmp_path / "x" / "y" / "store"
    driver = DirectoryDriver(root)
    assert json.loads((root / "holdfast.json").read_text()) == {"format": 2, "id": driver.store_id()}


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    """Also one in which somebody was interrupted while making a store."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "lock").touch()
    name = DirectoryDriver(tmp_path).store_id()
    assert DirectoryDriver(tmp_path, create=False).store_id() == name


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    """And left as it is."""
    (tmp_path / "thesis.txt").write_text("precious")
    for create in (True, False):
        with pytest.raises(BadUrl, match="not a holdfast store"):
            DirectoryDriver(tmp_path, create=create)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    """The error says so."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BadUrl, match="is a file"):
        DirectoryDriver(tmp_path / "file")


def test_a_store_that_must_exist_is_not_made(tmp_path: Path) -> None:
    """Neither in a missing directory nor in an empty one."""
    for root in (tmp_path / "missing", tmp_path):
        with pytest.raises(NotFound, match="no store"):
            DirectoryDriver(root, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_a_newer_format_is_not_touched(driver: DirectoryDriver, root: Path) -> None:
    """Whatever else its file says."""
    (root / "holdfast.json").write_text('{"format":3,"brand":"new"}')
    with pytest.raises(NewerFormat, match="format 3"):
        DirectoryDriver(root)


def test_a_store_of_the_format_before_is_not_touched(root: Path, author: Author, journal: Path) -> None:
    """Its lines are entries. The error says what it is, and what to do."""
    path = root / "holdfast.json"
    path.write_bytes(path.read_bytes().replace(b'"format":2', b'"format":1'))
    before = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    for create in (True, False):
        with pytest.raises(
            BadUrl, match=r"format 1, .* reads 2\. Nothing was changed\. Name another directory"
        ):
            DirectoryDriver(root, create=create)
    assert {file: file.read_bytes() for file in root.rglob("*") if file.is_file()} == before


def test_a_damaged_store_file_is_reported(driver: DirectoryDriver, root: Path) -> None:
    """Not replaced: its id is part of keys."""
    (root / "holdfast.json").write_text("{")
    with pytest.raises(Corrupt, match=r"holdfast\.json"):
        DirectoryDriver(root)


def test_a_file_system_that_ignores_case_is_refused(
    driver: DirectoryDriver, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions would be one. Nothing is left behind."""
    (root / "LOCK").touch()
    with pytest.raises(BadUrl, match="case"):
        DirectoryDriver(root)
    monkeypatch.setattr(layout, "_ignores_case", lambda _: True)
    with pytest.raises(BadUrl, match="case"):
        DirectoryDriver(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path, code: int) -> None:
    """With its path and what to do."""
    with failing("mkdir", code), pytest.raises(StoreFailed, match="name another directory") as caught:
        DirectoryDriver(tmp_path / "store")
    assert str(tmp_path) in str(caught.value)


def test_leftovers_of_dead_processes_are_cleared_away(
    driver: DirectoryDriver, root: Path, author: Author
) -> None:
    """Temporary files that nobody writes any more, and sessions that were half removed."""
    (root / "tmp" / "dead").write_bytes(b"x")
    (root / "trash" / "half").mkdir()
    (root / "trash" / "half" / "journal.jsonl").write_bytes(b"x")
    with (root / "tmp" / "alive").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        DirectoryDriver(root)
    assert [path.name for path in (root / "tmp").iterdir()] == ["alive"]
    assert list((root / "trash").iterdir()) == []
    assert read_all(driver, "a") == author.page


def test_nothing_is_left_of_what_was_deleted_or_erased(driver: DirectoryDriver, root: Path) -> None:
    """Not in any file: also not in what a crash had cut off."""
    author, forked = Author("a"), Author("b")
    for each in (author, forked):
        each.begin(driver, keyframe=b'"precious secret"', title="precious secret")
        each.commit(driver, say("precious secret"))
        with (root / "sessions" / each.session / "journal.jsonl").open("ab") as file:
            file.write(b"precious secret")
        each.commit(driver, say("on"))
    driver.post(forked.session, b'"precious secret"')
    secret = author.chunks[1]
    driver.erase(A, author.sum, {secret.seq: erased(secret)}, Author("a").head)
    fork = forked.fork("c", seq=1)
    fork.begin(driver)
    driver.delete(forked.session, forked.sum)
    left = [path for path in root.rglob("*") if path.is_file() and b"precious" in path.read_bytes()]
    assert left == []


@pytest.mark.parametrize("cut_short", [False, True])
def test_an_item_that_was_taken_in_does_not_keep_what_was_erased(
    driver: DirectoryDriver, root: Path, cut_short: bool
) -> None:
    """Nor after a crash between the commit that took it in and the removal of its file."""
    author = Author("a")
    author.begin(driver)
    for number in (1, 2):
        assert driver.post(A, b'"precious secret"') == number
    taken = [InboxTaken(number=number, item=InboxCancel()) for number in (1, 2)]
    item = author.write(*taken, taken=2)
    if cut_short:
        with failing("unlink", errno.EIO), failing("rename", errno.EIO):
            assert commit_one(driver, item) == Done(2)
    else:
        assert commit_one(driver, item) == Done(2)
    author.accept(item)
    assert driver.erase(A, author.sum, {}, author.head) == Done(2)
    assert [path for path in root.rglob("*") if path.is_file() and b"precious" in path.read_bytes()] == []
    assert DirectoryDriver(root).post(A, b'"next"') == 3


def test_a_name_cannot_lead_out_of_the_store(driver: DirectoryDriver) -> None:
    """Ids were checked before; this is the last line of defence."""
    for name in ("../x", "..", "a/b", "", "a\0b", "\ud800", 300 * "x"):
        with pytest.raises(Corrupt, match="no name"):
            driver.read(SessionId(name), 0, 1, said=False)
        with pytest.raises(Corrupt, match="no name"):
            driver.find_beat(HolderId(name))
    with pytest.raises(Corrupt, match="no name"):
        driver.beat(HolderId("../x"), b"{}", [])
