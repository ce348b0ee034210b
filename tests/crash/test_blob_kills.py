"""A process that dies at its n-th write or sync while it puts and removes blobs leaves no half of one."""

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from holdfast.blobs import BlobContext, BlobHome, open_home
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.errors import Corrupt
from holdfast.limits import BLOB_PART_BYTES

from . import faults
from .acknowledged import Ack, Acks, read_acks
from .fork_server import Line, Warm

LARGE = b"L" * (2 * BLOB_PART_BYTES + 5)
SMALL = b"small"
CONTEXT = BlobContext(media_type="text/plain", file_name="a.txt")
LATER = datetime.max.replace(tzinfo=UTC)
KINDS = ("dir", "dir with keys", "sqlite")


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


# -- in children --------------------------------------------------------------------------------------


def open_kind(kind: str, folder: str) -> BlobHome:
    if kind == "sqlite":
        return SqliteDriver(Path(folder, "store.db")).blobs
    key = (lambda digest, context: f"{digest[:4]}/{context.file_name}") if "keys" in kind else None
    return open_home(f"dir:{folder}/home", key=key)


def live(
    line: Line, kind: str, folder: str, number: int = 0, when: faults.When = "before"
) -> Sequence[faults.Kind]:
    """Put, put again, remove and put anew; or die the death that was chosen."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    acks = Acks(Path(folder, "acks"))
    home = open_kind(kind, folder)
    for data in (LARGE, SMALL, LARGE):
        put(home, acks, data)
    acks.note("removing", digest=digest_of(SMALL))
    home.remove(digest_of(SMALL), put_before=LATER)
    acks.note("removed", digest=digest_of(SMALL))
    put(home, acks, SMALL)
    acks.note("removing", digest=digest_of(LARGE))
    home.remove(digest_of(LARGE), put_before=LATER)
    acks.note("removed", digest=digest_of(LARGE))
    home.sweep(begun_before=LATER)
    home.close()
    return [event.kind for event in disk.events]


def put(home: BlobHome, acks: Acks, data: bytes) -> None:
    acks.note("putting", digest=digest_of(data))
    home.put(digest_of(data), [data], CONTEXT, owner="owner")
    acks.note("put", digest=digest_of(data))


def look_and_go_on(line: Line, kind: str, folder: str) -> list[str]:
    """What is wrong before anybody goes on, after that, and when all is swept."""
    problems = [f"at first: {why}" for why in find_problems(kind, folder)]
    live(line, kind, folder)
    problems += [f"in the end: {why}" for why in find_problems(kind, folder)]
    return problems + find_leftovers(kind, folder)


def find_problems(kind: str, folder: str) -> list[str]:
    home = open_kind(kind, folder)
    problems: list[str] = []
    for digest, ack in last_acks(read_acks(Path(folder, "acks"))).items():
        found = home.find(digest)
        if ack["kind"] == "put" and found is None:
            problems.append(f"{digest} was put and is lost")
        if ack["kind"] == "removed" and found is not None:
            problems.append(f"{digest} was removed and is there")
    for blob in home.list_blobs(None, 10):
        found = home.find(blob.digest)
        try:
            if found is None or len(b"".join(found.parts)) != blob.size or found.context != CONTEXT:
                problems.append(f"{blob} is not what was put")
        except Corrupt as error:
            problems.append(str(error))
    home.close()
    return problems


def last_acks(acks: Iterable[Ack]) -> dict[str, Ack]:
    return {ack["digest"]: ack for ack in acks}


def find_leftovers(kind: str, folder: str) -> list[str]:
    """One small blob is there in the end, and nothing else."""
    if kind == "sqlite":
        db = apsw.Connection(str(Path(folder, "store.db")))
        rows = [db.execute(f"SELECT count(*) FROM {name}").get for name in ("blob_parts", "blob_uploads")]
        return [] if rows == [1, 0] else [f"{rows} parts and uploads are left"]
    names = [path.name for path in Path(folder, "home").rglob("*") if path.is_file()]
    wanted = 5 if "keys" in kind else 4
    return [] if len(names) == wanted else [f"left are {names}"]


# -- campaigns ----------------------------------------------------------------------------------------


def campaign(warm: Warm, kind: str, folder: Path, deaths: Sequence[int], when: faults.When) -> None:
    for number in deaths:
        trial = folder / f"trial-{when}-{number}"
        trial.mkdir()
        with warm.child(live, kind, str(trial), number, when) as child:
            outcome = child.outcome()
            assert outcome is None or isinstance(outcome, list), f"death {number}: {outcome!r}"
        assert warm.call(look_and_go_on, kind, str(trial)) == [], f"death {number}, {when}"


def count_changes(warm: Warm, kind: str, folder: Path) -> int:
    (folder / "whole").mkdir()
    return len(warm.call(live, kind, str(folder / "whole")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_a_write_leaves_no_half_of_a_blob(
    warm: Warm, kind: str, quick_path: Path, seed: int
) -> None:
    """At some of the writes, others each time: what was put is there, what is there is whole, and nothing
    is left behind once it was swept."""
    changes = count_changes(warm, kind, quick_path)
    chosen = random.Random(seed).sample(range(1, changes + 1), min(changes, 8))
    campaign(warm, kind, quick_path, chosen, "before")
    campaign(warm, kind, quick_path, chosen[:3], "half")


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_every_write_leaves_no_half_of_a_blob(warm: Warm, kind: str, quick_path: Path) -> None:
    """At every single one, before it and in its middle."""
    changes = count_changes(warm, kind, quick_path)
    for when in ("before", "half"):
        campaign(warm, kind, quick_path, range(1, changes + 1), when)
