"""A process that dies between a blob and the entry that refers to it leaves no entry without its blob.

A child shows images and dies at its n-th change on the disk. Whoever looks then finds every image that an
entry refers to; blobs that no entry refers to are collected, and nothing else is.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from holdfast import open_store

from ..stores import on_files
from . import faults
from .fork_server import Line, Warm
from .image_sessions import GALLERIES, image

in_every_gallery = pytest.mark.parametrize("gallery", list(GALLERIES))


@pytest.fixture(scope="session")
def warm(loaded_warm: Warm) -> Warm:
    """Children here import frameworks."""
    return loaded_warm


# -- in children --------------------------------------------------------------------------------------


def show_images(
    line: Line, url: str, acks: str, gallery: str, number: int = 0, when: faults.When = "before"
) -> int:
    """Show what is left to show, or die the death that was chosen; the changes on the disk."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    anyio.run(_show, url, Path(acks), gallery)
    return len(disk.events)


async def _show(url: str, acks: Path, gallery: str) -> None:
    def acknowledge() -> None:
        with acks.open("ab") as file:
            file.write(b".")

    # One that died before its lock was there counts as alive for a term.
    async with open_store(url, lease_s=2) as store:
        await GALLERIES[gallery].fill(store, acknowledge)


def look(line: Line, url: str, acks: str, gallery: str, finish: bool) -> list[str]:
    """What is wrong: before anybody collects, and after."""
    if finish:
        show_images(line, url, acks, gallery)
    return anyio.run(_look, url, gallery, len(Path(acks).read_text()) if Path(acks).exists() else 0)


async def _look(url: str, gallery: str, acknowledged: int) -> list[str]:
    problems: list[str] = []
    async with open_store(url) as store:
        if not [head async for head in store.sessions()]:
            return [] if not acknowledged else ["the session is gone"]
        for when in ("at first", "after collecting"):
            shown = await GALLERIES[gallery].look(store)
            if shown != [image(number) for number in range(len(shown))] or len(shown) < acknowledged:
                problems.append(f"{when}: {len(shown)} images, {acknowledged} acknowledged")
            await store.collect_blobs(grace_s=0, dry_run=False, alone=True)
        left = {blob.digest: blob.sessions async for blob in store.blobs(sessions=True)}
        problems += [f"orphan {digest} was not collected" for digest, who in left.items() if not who]
    return problems


# -- campaigns ----------------------------------------------------------------------------------------


def _run(
    warm: Warm, scheme: str, gallery: str, folder: Path, deaths: Iterable[tuple[int, faults.When]]
) -> int:
    def attempt(number: int, when: faults.When) -> int:
        here = folder / f"{number}-{when}"
        here.mkdir()
        names = f"{scheme}:{here}/store", str(here / "acks"), gallery
        with warm.child(show_images, *names, number, when) as child:
            died = child.outcome() is None
        for finish in (False, True):
            problems = warm.call(look, *names, finish)
            assert problems == [], f"{number}, {when}, finish={finish}: {problems}"
        shutil.rmtree(here)
        return died

    with ThreadPoolExecutor(os.cpu_count()) as lanes:
        return sum(lanes.map(lambda death: attempt(*death), deaths))


def _count(warm: Warm, scheme: str, gallery: str, folder: Path) -> int:
    changes: int = warm.call(show_images, f"{scheme}:{folder}/all", f"{folder}/all-acks", gallery)
    return changes


@on_files
@in_every_gallery
def test_a_kill_between_blob_and_entry_leaves_no_entry_without_its_blob(
    warm: Warm, scheme: str, gallery: str, quick_path: Path, seed: int
) -> None:
    """At some of the writes, others each time."""
    trials = 8 if gallery == "session" else 4
    changes = _count(warm, scheme, gallery, quick_path)
    choose = random.Random(seed)
    deaths: set[tuple[int, faults.When]] = {
        (choose.randint(1, changes), choose.choice(("before", "half"))) for _ in range(trials)
    }
    killed = _run(warm, scheme, gallery, quick_path, sorted(deaths))
    assert killed > len(deaths) // 2


@on_files
@in_every_gallery
@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_kill_at_any_write_leaves_no_entry_without_its_blob(
    warm: Warm, scheme: str, gallery: str, quick_path: Path
) -> None:
    """At every single one (under a framework, at every fourth), and in the middle of every fourth of them."""
    changes = _count(warm, scheme, gallery, quick_path)
    every = range(1, changes + 1, 1 if gallery == "session" else 4)
    deaths: list[tuple[int, faults.When]] = [(number, "before") for number in every]
    deaths += [(number, "half") for number in every[::4]]
    assert _run(warm, scheme, gallery, quick_path, deaths) > 0.9 * len(every)
