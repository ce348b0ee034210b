"""What homes say of damage, and what is left of uploads that died."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import obstore
import pytest

from holdfast.blobs import open_home
from holdfast.blobs.bucket import Version
from holdfast.blobs.home import BlobContext, BlobHome
from holdfast.blobs.object_store import ObjectHome
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.errors import BadInput, Corrupt, NewerFormat, StoreFailed
from holdfast.limits import BLOB_PART_BYTES
from holdfast.testing.conformance.homes import CONTEXTS, LATER, OWNER, digest_of, put, read
from tests.store.servers import Server

DATA = b"0123456789" * 10_000
DIGEST = digest_of(DATA)
KEY = f"{DIGEST[:2]}/{DIGEST}"


def objects_of(home: BlobHome) -> Any:
    """The obstore behind the home."""
    assert isinstance(home, ObjectHome)
    return home._bucket._store  # Damage is done past the home.


def names_in(home: BlobHome) -> set[str]:
    return {str(meta["path"]) for page in obstore.list(objects_of(home)) for meta in page}


class Damaged:
    """A home with one blob, and a way to change its bytes behind the home's back."""

    def __init__(self, home: BlobHome, change: Callable[[bytes | None], None]) -> None:
        self.home, self.change = home, change
        put(home, DATA)


@pytest.fixture(params=["dir", "sqlite", "s3", "azure"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Damaged:
    if request.param == "dir":
        path = tmp_path / "home" / KEY

        def rewrite(data: bytes | None) -> None:
            path.unlink()
            if data is not None:
                path.write_bytes(data)

        return Damaged(open_home(f"dir:{tmp_path}/home"), rewrite)
    if request.param == "sqlite":
        file = tmp_path / "a.db"

        def change(data: bytes | None) -> None:
            db = apsw.Connection(str(file))
            if data is None:
                db.execute("DELETE FROM blob_parts")
            else:
                db.execute("UPDATE blob_parts SET data = ?", (data,))

        return Damaged(SqliteDriver(file).blobs, change)
    home = request.getfixturevalue(request.param).open(tmp_path.name)

    def replace(data: bytes | None) -> None:
        if data is None:
            obstore.delete(objects_of(home), KEY)
        else:
            obstore.put(objects_of(home), KEY, data)

    return Damaged(home, replace)


@pytest.mark.parametrize(
    "bad", [b"X" + DATA[1:], DATA[:-1], b"", None], ids=["altered", "cut", "empty", "gone"]
)
def test_damaged_bytes_are_never_taken_for_whole(damaged: Damaged, bad: bytes | None) -> None:
    """The error names the digest and the home."""
    damaged.change(bad)
    found = damaged.home.find(DIGEST)
    assert found is not None
    with pytest.raises((Corrupt, StoreFailed)) as caught:
        b"".join(found.parts)
    assert DIGEST in str(caught.value)
    assert damaged.home.name in str(caught.value) or "home" in str(caught.value)


@pytest.mark.parametrize("damaged", ["dir", "s3", "azure"], indirect=True)
def test_bytes_that_are_gone_can_be_put_again(damaged: Damaged) -> None:
    """The blob is whole again, with what was first said of it."""
    damaged.change(None)
    put(damaged.home, DATA, CONTEXTS[0])
    assert read(damaged.home, DATA) == (CONTEXTS[1], len(DATA), DATA)


# -- uploads that died --------------------------------------------------------------------------------

_UPLOAD = """
import sys
from tests.store.test_home_damage import dying_home, upload_slowly
upload_slowly(dying_home(*sys.argv[1:]))
"""


def dying_home(kind: str, *where: str) -> BlobHome:
    """The home in the process that is killed."""
    if kind == "dir":
        return open_home(f"dir:{where[0]}")
    if kind == "sqlite":
        return SqliteDriver(Path(where[0])).blobs
    options = dict(pair.split("=", 1) for pair in where[2:])
    return open_home(where[0], endpoint=where[1], options=options)


BIG = b"x" * (20 * BLOB_PART_BYTES)


def upload_slowly(home: BlobHome) -> None:
    """Store all but the last part of a blob, say so, and never end."""

    def parts() -> Iterator[bytes]:
        yield from (BIG[start : start + BLOB_PART_BYTES] for start in range(0, len(BIG) - 1, BLOB_PART_BYTES))
        print("uploading", flush=True)
        time.sleep(600)

    home.put(digest_of(BIG), parts(), BlobContext(), owner=OWNER)


def kill_while_uploading(*arguments: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _UPLOAD, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"uploading\n"
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kind", ["dir", "sqlite", "s3", "azure"])
def test_an_upload_that_was_killed_is_no_blob_and_is_swept_away(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What it left is removed, not before its time; and the blob can be put as if nothing had been."""
    if kind in ("dir", "sqlite"):
        arguments = [kind, str(tmp_path / "home")]
    else:
        server: Server = request.getfixturevalue(kind)
        url = f"{server.scheme}://{server.bucket}/{tmp_path.name}"
        arguments = [kind, url, server.endpoint, *(f"{key}={value}" for key, value in server.options.items())]
    begun = datetime.now(UTC)
    kill_while_uploading(*arguments)
    home = dying_home(*arguments)
    assert home.find(digest_of(BIG)) is None
    assert list(home.list_blobs(None, 10)) == []
    assert home.sweep(begun_before=begun) == 0
    swept = home.sweep(begun_before=LATER)
    # A directory's temporary files are cleared when it is opened.
    assert swept == (0 if kind == "dir" else 1)
    assert home.sweep(begun_before=LATER) == 0
    if kind == "sqlite":
        db = apsw.Connection(str(tmp_path / "home"))
        assert db.execute("SELECT count(*) FROM blob_parts").get == 0
    if kind == "dir":
        assert list((tmp_path / "home" / ".holdfast" / "tmp").iterdir()) == []
    put(home, BIG)
    assert read(home, BIG) == (CONTEXTS[1], len(BIG), BIG)


@pytest.mark.parametrize("key", [None, lambda digest, context: "some/where"])
def test_bytes_without_a_description_are_swept_away(tmp_path: Path, key: Any) -> None:
    """In a directory: somebody died between the two files, on the way in or out."""
    home = open_home(f"dir:{tmp_path}/home", key=key)
    put(home, DATA)
    (tmp_path / "home" / ".holdfast" / "blobs" / DIGEST[:2] / f"{DIGEST}.info").unlink()
    before = datetime.now(UTC) - timedelta(hours=1)
    assert home.find(DIGEST) is None
    assert home.sweep(begun_before=before) == 0
    assert home.sweep(begun_before=LATER) == 1
    left = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert sorted(path.name for path in left) == ["home.json", "lock"]
    put(home, DATA)
    assert read(home, DATA) == (CONTEXTS[1], len(DATA), DATA)


def test_a_key_of_an_upload_that_died_is_free_for_another(tmp_path: Path) -> None:
    """In a directory, where nobody else can be in the middle of it."""
    home = open_home(f"dir:{tmp_path}/home", key=lambda digest, context: "same")
    put(home, DATA)
    (tmp_path / "home" / ".holdfast" / "blobs" / DIGEST[:2] / f"{DIGEST}.info").unlink()
    put(home, b"other")
    assert read(home, b"other") == (CONTEXTS[1], 5, b"other")
    assert home.find(DIGEST) is None


@pytest.mark.parametrize("server", ["s3", "azure"])
def test_a_removal_that_died_is_finished_by_the_next_sweep(
    server: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blob is gone once its record says so; the bytes follow, even if it came back meanwhile."""
    home = request.getfixturevalue(server).open(tmp_path.name)
    put(home, DATA)

    def die(path: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # A process that dies between two requests; servers of the tests answer both.
        patch.setattr(home._bucket, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            home.remove(DIGEST, put_before=LATER)
    assert home.find(DIGEST) is None
    assert KEY in names_in(home)
    put(home, DATA)
    assert home.find_key(DIGEST) != KEY
    home.sweep(begun_before=LATER)
    assert KEY not in names_in(home)
    assert read(home, DATA) == (CONTEXTS[1], len(DATA), DATA)


# -- object stores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["s3", "azure"])
def test_the_key_of_a_removed_blob_is_nobody_elses(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It comes back near it: a removal of the old object may still be on its way."""
    home = request.getfixturevalue(server).open(tmp_path.name, lambda digest, context: "same")
    put(home, DATA)
    assert home.remove(DIGEST, put_before=LATER)
    with pytest.raises(BadInput, match="'same'"):
        put(home, b"other")
    put(home, DATA)
    assert re.fullmatch(r"same\.[0-9a-f]{8}", home.find_key(DIGEST))
    assert read(home, DATA) == (CONTEXTS[1], len(DATA), DATA)


@pytest.mark.parametrize("passed_over", ["If-None-Match", "If-Match"])
def test_a_server_that_passes_over_conditions_is_refused(
    passed_over: str, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first put of all, which leaves nothing there."""
    home = s3.open(tmp_path.name)
    assert isinstance(home, ObjectHome)
    # Such a server: those of the tests heed the conditions.
    replace = home._bucket.replace

    def replace_carelessly(path: str, data: bytes, version: Version | None) -> Version | None:
        if (version is None) == (passed_over == "If-None-Match"):
            obstore.put(objects_of(home), path, data)
            return Version('"replaced"', None)
        return replace(path, data, version)

    monkeypatch.setattr(home._bucket, "replace", replace_carelessly)
    with pytest.raises(StoreFailed, match="does not heed If-None-Match and If-Match"):
        put(home, DATA)
    assert names_in(home) == set()


# -- directories --------------------------------------------------------------------------------------


def test_a_key_leads_nowhere_through_a_link(tmp_path: Path) -> None:
    """Whatever somebody put into the directory."""
    home = open_home(f"dir:{tmp_path}/home", key=lambda digest, context: "link/file")
    (tmp_path / "outside").mkdir()
    (tmp_path / "home" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(BadInput, match="a link leads from there out of the directory"):
        put(home, DATA)
    assert os.listdir(tmp_path / "outside") == []


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_no_key_may_lie_below_another_in_a_directory(tmp_path: Path, first: str, second: str) -> None:
    """A file is no directory."""
    put(open_home(f"dir:{tmp_path}/home", key=lambda digest, context: first), b"first")
    home = open_home(f"dir:{tmp_path}/home", key=lambda digest, context: second)
    with pytest.raises(BadInput, match="no key may lie below another"):
        put(home, b"second")
    assert read(home, b"first") == (CONTEXTS[1], 5, b"first")
    assert home.find(digest_of(b"second")) is None


@pytest.mark.parametrize("kind", ["dir", "s3", "azure"])
def test_what_is_no_blob_is_not_overwritten(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A key function that leads to somebody's file is told."""
    if kind == "dir":
        home = open_home(f"dir:{tmp_path}/home", key=lambda digest, context: "thesis.tex")
        (tmp_path / "home" / "thesis.tex").write_text("my thesis")
    else:
        home = request.getfixturevalue(kind).open(tmp_path.name, lambda digest, context: "thesis.tex")
        obstore.put(objects_of(home), "thesis.tex", b"my thesis")
    with pytest.raises(BadInput, match="something is there already that is no blob"):
        put(home, DATA)
    assert home.find(DIGEST) is None


def test_a_newer_home_is_refused(tmp_path: Path, s3: Server) -> None:
    """It never guesses."""
    newer = msgspec.json.encode({"format": 99, "store": "s"})
    put(open_home(f"dir:{tmp_path}/home"), DATA)
    (tmp_path / "home" / ".holdfast" / "home.json").write_bytes(newer)
    with pytest.raises(NewerFormat, match="format 99"):
        open_home(f"dir:{tmp_path}/home")
    home = s3.open(tmp_path.name)
    obstore.put(objects_of(home), ".holdfast/home.json", newer)
    with pytest.raises(NewerFormat, match="format 99"):
        put(home, DATA)
