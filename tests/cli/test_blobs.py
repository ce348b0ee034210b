"""`holdfast blobs`: what there is, who refers to it, and what can go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from holdfast import open_store
from holdfast.messages import Media, Message
from tests.cli.cli_processes import Done

IMAGE = bytes(100_000)
ORPHAN = b"orphan" * 20_000


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """A store with a blob that is shown, and one that is not."""

    async def fill() -> None:
        async with open_store(f"sqlite:{tmp_path}/holdfast.db") as store:
            async with store.session("shows") as session:
                media = Media(media_type="image/png", data=IMAGE, name="cat.png")
                await session.add(Message(role="user", blocks=(media,)))
            await store.put_blob(ORPHAN, media_type="text/plain", name="left.txt")

    anyio.run(fill)
    return tmp_path


def test_blobs_are_listed_with_who_refers_to_them(
    album: Path, call_here: Callable[[Path, str], Done]
) -> None:
    """For people, and for programs."""
    listed = call_here(album, "blobs")
    assert "cat.png" in listed.out
    assert "shows" in listed.out
    assert "none" in listed.out
    assert "100.0 kB" in listed.out
    assert "2 blobs, 220.0 kB" in listed.err
    found = call_here(album, "blobs --json").json
    assert {blob["name"]: blob["sessions"] for blob in found["blobs"]} == {
        "cat.png": ["shows"],
        "left.txt": [],
    }
    assert found["bytes"] == 220_000


def test_gc_removes_nothing_unless_it_is_told_to(album: Path, call_here: Callable[[Path, str], Done]) -> None:
    """And only blobs that are old enough and unreferenced."""
    recent = call_here(album, "blobs gc --remove --yes --json").json
    assert (recent["orphans"], recent["recent"], recent["removed"]) == ([], 1, False)
    refused = call_here(album, "blobs gc --grace 0")
    assert refused.code != 0
    assert "too short while others may be writing" in refused.err
    dry = call_here(album, "blobs gc --grace 0 --alone")
    assert "left.txt" in dry.out
    assert "nothing was removed" in dry.err
    assert len(call_here(album, "blobs --json").json["blobs"]) == 2
    done = call_here(album, "blobs gc --grace 0 --alone --remove --yes")
    assert "removed 1 blob, 120.0 kB; 1 are referenced, 0 are too recent" in done.err
    assert [blob["name"] for blob in call_here(album, "blobs --json").json["blobs"]] == ["cat.png"]


def test_a_home_elsewhere_is_named(tmp_path: Path, call_here: Callable[[Path, str], Done]) -> None:
    """By an option, as for every command."""

    async def fill() -> None:
        async with open_store(f"sqlite:{tmp_path}/holdfast.db", blobs=f"dir:{tmp_path}/blobs") as store:
            await store.put_blob(ORPHAN)

    anyio.run(fill)
    assert call_here(tmp_path, "blobs --json").json["blobs"] == []
    assert len(call_here(tmp_path, "blobs --blobs dir:blobs --json").json["blobs"]) == 1


def test_media_are_shown_by_what_they_are(album: Path, call_here: Callable[[Path, str], Done]) -> None:
    """Media is described, not printed as base64."""
    for line in ("export shows", "export shows --form markdown"):
        assert "[image/png cat.png, media+sha256://" in call_here(album, line).out
    for line in ("show shows", "tail shows"):  # Cut and folded where the terminal is narrow.
        assert "[image/png" in call_here(album, line).out
