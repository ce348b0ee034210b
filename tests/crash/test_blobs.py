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

from holdfast import Media, Message, open_store

from ..stores import on_files
from . import faults
from .warm import Line, Warm

IMAGES = 6
SIZE = 150_000


def image(number: int) -> bytes:
    """Each one is another; every third comes again."""
    return bytes([number % 4]) * SIZE


def showing(number: int) -> Message:
    return Message(role="user", blocks=(Media(media_type="image/png", data=image(number)),))


# -- in children --------------------------------------------------------------------------------------


def show_images(line: Line, url: str, acks: str, number: int = 0, when: faults.When = "before") -> int:
    """Show what is left to show, or die the death that was chosen; the changes on the disk."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    anyio.run(_show, url, Path(acks))
    return len(disk.events)


async def _show(url: str, acks: Path) -> None:
    # One that died before its lock was there counts as alive for a term.
    async with open_store(url, lease_s=2) as store, store.session("s", wait_s=30) as session:
        for number in range(len(session.transcript), IMAGES):
            await session.add(showing(number))
            await session.set("last", image(number))
            await session.flush()
            with acks.open("ab") as file:
                file.write(b".")


def look(line: Line, url: str, acks: str, finish: bool) -> list[str]:
    """What is wrong: before anybody collects, and after."""
    if finish:
        show_images(line, url, acks)
    return anyio.run(_look, url, len(Path(acks).read_text()) if Path(acks).exists() else 0)


async def _look(url: str, acknowledged: int) -> list[str]:
    problems: list[str] = []
    async with open_store(url) as store:
        if not [head async for head in store.sessions()]:
            return [] if not acknowledged else ["the session is gone"]
        for when in ("at first", "after collecting"):
            state = await store.load("s")
            shown = [message.blocks[0].data for message in state.transcript]  # type: ignore[union-attr]
            if shown != [image(number) for number in range(len(shown))] or len(shown) < acknowledged:
                problems.append(f"{when}: {len(shown)} images, {acknowledged} acknowledged")
            if "last" in state.facts.values and state.get("last") not in shown:
                problems.append(f"{when}: the last image is another one")
            await store.collect_blobs(grace_s=0, dry_run=False, alone=True)
        left = {blob.digest: blob.sessions async for blob in store.blobs(sessions=True)}
        problems += [f"orphan {digest} was not collected" for digest, who in left.items() if not who]
    return problems


# -- campaigns ----------------------------------------------------------------------------------------


def _run(warm: Warm, scheme: str, folder: Path, deaths: Iterable[tuple[int, faults.When]]) -> int:
    def attempt(number: int, when: faults.When) -> int:
        here = folder / f"{number}-{when}"
        here.mkdir()
        names = f"{scheme}:{here}/store", str(here / "acks")
        with warm.child(show_images, *names, number, when) as child:
            died = child.outcome() is None
        for finish in (False, True):
            problems = warm.call(look, *names, finish)
            assert problems == [], f"{number}, {when}, finish={finish}: {problems}"
        shutil.rmtree(here)
        return died

    with ThreadPoolExecutor(os.cpu_count()) as lanes:
        return sum(lanes.map(lambda death: attempt(*death), deaths))


def _count(warm: Warm, scheme: str, folder: Path) -> int:
    changes: int = warm.call(show_images, f"{scheme}:{folder}/all", f"{folder}/all-acks")
    return changes


@on_files
def test_a_kill_between_blob_and_entry_leaves_no_entry_without_its_blob(
    warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """At some of the writes, others each time."""
    changes = _count(warm, scheme, quick_path)
    choose = random.Random(seed)
    deaths = [(choose.randint(1, changes), choose.choice(("before", "half"))) for _ in range(8)]
    killed = _run(warm, scheme, quick_path, sorted(set(deaths)))  # type: ignore[arg-type]
    assert killed > len(set(deaths)) // 2


@on_files
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_kill_at_any_write_leaves_no_entry_without_its_blob(
    warm: Warm, scheme: str, quick_path: Path
) -> None:
    """At every single one, and in the middle of every fourth."""
    changes = _count(warm, scheme, quick_path)
    deaths: list[tuple[int, faults.When]] = [(number, "before") for number in range(1, changes + 1)]
    deaths += [(number, "half") for number in range(1, changes + 1, 4)]
    assert _run(warm, scheme, quick_path, deaths) > 0.9 * changes
