"""Nothing is acknowledged before it is synced, with its name.

A kill does not show this, for the page cache outlives the process; a power cut shows it only now and then.
So every write and every sync is watched: what lies behind an acknowledgement must be clean when it is given.
"""

import errno
import hashlib
from pathlib import Path

import anyio
import anyio.to_thread

from holdfast import Session, open_store
from holdfast.errors import StoreFailed
from tests.stores import open_driver

from . import faults
from .acknowledged import Acks
from .fork_server import Line, Warm
from .workload import BLOB_DIGEST, Life


class Cleanliness:
    """Which files have bytes, and which directories have names, that were not synced."""

    def __init__(self, disk: faults.Disk) -> None:
        self._disk = disk
        self._seen = 0
        self._dirty: set[str] = set()

    def find_dirty(self) -> set[str]:
        """Dirty files, and dirty names in the form of their paths with a slash behind."""
        events = self._disk.done[self._seen :]
        self._seen += len(events)
        for event in events:
            self._note(event)
        return self._dirty

    def _note(self, event: faults.Event) -> None:
        match event.kind:
            case "write" | "truncate":
                self._dirty.add(event.path)
            case "sync":
                self._dirty.discard(event.path)
                self._dirty -= {
                    path for path in self._dirty if path.endswith("/") and _parent(path) == event.path
                }
            case "create" | "mkdir":
                self._dirty.add(f"{event.path}/")
            case "rename":
                self._dirty |= {f"{event.path}/", f"{event.target}/"}
                if event.path in self._dirty:
                    self._dirty.remove(event.path)
                    self._dirty.add(event.target)


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]


class WatchfulAcks(Acks):
    """Looks, before it notes something, whether that is true."""

    def __init__(self, path: Path, root: Path, disk: faults.Disk) -> None:
        super().__init__(path)
        self._root, self._cleanliness = root, Cleanliness(disk)
        self.checked = 0
        self.problems: list[str] = []

    def note(self, kind: str, **fields: object) -> None:
        super().note(kind, **fields)
        needed = self._needed(kind, fields)
        found = needed & self._cleanliness.find_dirty()
        self.problems += [f"{path} was not synced before {kind} {fields}" for path in sorted(found)]
        self.checked += bool(needed)

    def _needed(self, kind: str, fields: dict[str, object]) -> set[str]:
        folder = f"{self._root}/sessions/{fields.get('session')}"
        match kind:
            case "lines":
                files = [f"{folder}/journal.jsonl", f"{folder}/session.json"]
                return {f"{folder}/", *files, *(f"{path}/" for path in files)}
            case "posted":
                item = f"{folder}/inbox/{fields['number']}.json"
                return {f"{folder}/inbox/", item, f"{item}/"}
            case "deleted":
                return {f"{folder}/"}
            case "ran":
                return self._claim(f"run:{fields['run']}")
            case "claimed":
                return self._claim(str(fields["key"]))
            case "blob":
                files = [f"{self._root}/blobs/{BLOB_DIGEST[:2]}/{BLOB_DIGEST}{end}" for end in ("", ".info")]
                return {*files, *(f"{path}/" for path in files)}
        return set()

    def _claim(self, key: str) -> set[str]:
        path = f"{self._root}/claims/{hashlib.sha256(key.encode()).hexdigest()}.json"
        return {path, f"{path}/"}


# -- in children --------------------------------------------------------------------------------------


def live_and_watch(line: Line, url: str, acks: str) -> dict[str, object]:
    """The whole workload; what was acknowledged too early."""
    disk = faults.install()
    watchful = WatchfulAcks(Path(acks), Path(url.partition(":")[2]), disk)
    Life(url, watchful).run()
    return {"problems": watchful.problems, "checked": watchful.checked}


def commit_and_watch(line: Line, url: str) -> list[list[str]]:
    """One session by itself; what was dirty after each commit."""
    return anyio.run(_commit_and_watch, url, Cleanliness(faults.install()))


async def _commit_and_watch(url: str, cleanliness: Cleanliness) -> list[list[str]]:
    found: list[list[str]] = []
    async with open_store(await anyio.to_thread.run_sync(open_driver, url)) as store:
        async with store.session("a") as session:
            for number in range(20):
                await session.add(f"message {number}")
                await session.checkpoint()
                found.append(sorted(path for path in cleanliness.find_dirty() if path.endswith("-wal")))
    return found


def fail_to_sync_and_to_cut(line: Line, url: str) -> list[str]:
    """A sync fails, and so does the attempt to take the bytes back; then the disk is well again."""
    return anyio.run(_fail_to_sync_and_to_cut, url, faults.install())


async def _fail_to_sync_and_to_cut(url: str, disk: faults.Disk) -> list[str]:
    async with open_store(await anyio.to_thread.run_sync(open_driver, url)) as store:
        async with store.session("a") as session:
            await _fail_once(session, disk)
            await session.flush()
            return sorted(path for path in Cleanliness(disk).find_dirty() if path.endswith("journal.jsonl"))


async def _fail_once(session: Session, disk: faults.Disk) -> None:
    await session.add("is it there?")
    disk.fail(errno.EIO, "sync", "truncate", path="journal.jsonl")
    try:
        await session.flush()
    except StoreFailed:
        disk.heal()
    else:
        raise AssertionError("acknowledged, and no sync succeeded")


# -- tests --------------------------------------------------------------------------------------------


def test_files_and_names_are_synced_before_anything_is_acknowledged(warm: Warm, quick_path: Path) -> None:
    """On a directory, for every acknowledgement of the workload: journal, inbox, claims, blobs, deletion."""
    found = warm.call(live_and_watch, f"dir:{quick_path}/store", str(quick_path / "acks"))
    assert found["problems"] == []
    assert found["checked"] > 80


def test_the_log_is_synced_before_a_commit_is_acknowledged(warm: Warm, quick_path: Path) -> None:
    """On SQLite: with every commit, not only with some."""
    found = warm.call(commit_and_watch, f"sqlite:{quick_path}/store")
    assert found == [[]] * 20


def test_what_a_failed_sync_left_is_synced_before_it_counts(warm: Warm, quick_path: Path) -> None:
    """A commit that is there, but was never synced, is not taken for durable when it is tried again."""
    assert warm.call(fail_to_sync_and_to_cut, f"dir:{quick_path}/store") == []
