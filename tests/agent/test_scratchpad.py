"""A model's scratchpad: whole files in a directory of the session's own, and no way out of it."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Registry, Session
from holdfast.agents import scratchpad_tools
from holdfast.core.entries import ScratchpadSet
from holdfast.limits import (
    SCRATCHPAD_DEPTH_MAX,
    SCRATCHPAD_FILE_BYTES_MAX,
    SCRATCHPAD_LISTED_MAX,
    SCRATCHPAD_PAGE_CHARS,
)
from tests.tools.example_tools import Url, bodies, call, opened, reply

SECRET = "nobody's business"


class Desk:
    """A session with a scratchpad, and a directory beside it that is none of the model's business."""

    def __init__(self, session: Session, root: Path) -> None:
        self.session, self.root = session, root
        self.pad = root / "pads" / session.id
        self.outside = root / "outside"
        self.registry = Registry(scratchpad_tools(root=root / "pads"))

    async def done(self, name: str, path: str, **args: Any) -> str:
        """What a call says that goes well."""
        result = await self.registry.dispatch(
            f"scratchpad_{name}", {"path": path, **args}, session=self.session
        )
        assert result.status == "completed", result.content
        return result.content

    async def refused(self, name: str, path: str, **args: Any) -> str:
        """What a call says that fails, and surely did nothing."""
        result = await self.registry.dispatch(
            f"scratchpad_{name}", {"path": path, **args}, session=self.session
        )
        assert result.status == "failed", result
        assert self.session.in_doubt == []
        return result.content

    async def refused_all(self, path: str) -> list[str]:
        """What every tool says about a path that it must not touch."""
        return [
            await self.refused("write", path, content="mine"),
            await self.refused("append", path, text="mine"),
            await self.refused("read", path),
        ]

    def is_left_alone(self) -> bool:
        """Whether nothing outside was touched, and nothing is left over inside."""
        whole = {one.name: one.read_text() for one in self.outside.iterdir()} == {"secret.txt": SECRET}
        return whole and not [one for one in self.pad.rglob("*") if one.name.startswith(".holdfast")]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened("memory:") as (_, session):
        found = Desk(session, tmp_path)
        found.outside.mkdir()
        (found.outside / "secret.txt").write_text(SECRET)
        await found.done("write", "notes.md", content="# Notes\n")
        yield found
        assert found.is_left_alone()


# -- what it is for --------------------------------------------------------------------------------------


async def test_files_are_written_read_listed_and_deleted(desk: Desk) -> None:
    """In a directory that is named after the session."""
    assert await desk.done("write", "drafts/a.md", content="Grüße\n") == "wrote drafts/a.md (8 bytes)"
    assert (desk.pad / "drafts" / "a.md").read_text() == "Grüße\n"
    assert await desk.done("read", "./drafts//a.md") == "Grüße\n"
    assert await desk.done("list", "") == "drafts/\ndrafts/a.md (8 bytes)\nnotes.md (8 bytes)"
    assert await desk.done("list", "drafts") == "drafts/a.md (8 bytes)"
    assert await desk.done("delete", "drafts/a.md") == "deleted drafts/a.md"
    assert await desk.done("delete", "drafts") == "deleted drafts"
    assert await desk.done("list", "") == "notes.md (8 bytes)"


async def test_a_scratchpad_is_made_by_the_first_write(tmp_path: Path) -> None:
    """Looking makes nothing."""
    async with opened("memory:") as (store, session):
        desk = Desk(session, tmp_path)
        assert await desk.done("list", "") == "The scratchpad is empty."
        assert "it is empty" in await desk.refused("read", "notes.md")
        assert await desk.done("delete", "notes.md") == "there is no notes.md (any more)"
        assert (session.scratchpad, desk.pad.exists()) == (None, False)
        await desk.done("write", "notes.md", content="one")
        await desk.done("write", "notes.md", content="two")
        assert (session.scratchpad, desk.pad.exists()) == (desk.pad, True)
        assert len(await bodies(store, session, ScratchpadSet)) == 1


async def test_lines_are_appended_and_the_same_line_again_is_one_more(desk: Desk) -> None:
    """Each begins on a line of its own."""
    await desk.done("append", "log.txt", text="one")
    await desk.done("append", "log.txt", text="one")
    await desk.done("write", "log.txt", content="zero")
    assert await desk.done("append", "log.txt", text="one\n") == "appended to log.txt (now 9 bytes)"
    assert await desk.done("read", "log.txt") == "zero\none\n"
    assert "nothing to append" in await desk.refused("append", "log.txt", text="")


async def test_a_replaced_file_keeps_its_permissions(desk: Desk) -> None:
    """A script stays one."""
    (desk.pad / "notes.md").chmod(0o750)
    await desk.done("write", "notes.md", content="#!/bin/sh\n")
    assert stat.S_IMODE((desk.pad / "notes.md").stat().st_mode) == 0o750


async def test_the_same_content_again_is_not_written_twice(desk: Desk) -> None:
    """Unless something else was done in between."""
    first = await desk.done("write", "a.md", content="v1")
    assert (await desk.done("write", "a.md", content="v1")).endswith(first)
    await desk.done("write", "a.md", content="v2")
    await desk.done("write", "a.md", content="v1")
    assert (desk.pad / "a.md").read_text() == "v1"


async def test_the_writes_of_one_reply_are_done_in_its_order(desk: Desk) -> None:
    """The last one stays; appends between them lose nothing."""
    calls = [call("scratchpad_write", {"path": "a.md", "content": f"v{n}"}) for n in range(5)]
    calls += [call("scratchpad_append", {"path": "b.md", "text": f"line {n}"}) for n in range(5)]
    await reply(desk.session, *calls)
    assert all(not one.is_error for one in await desk.registry.dispatch_step(desk.session))
    assert (desk.pad / "a.md").read_text() == "v4"
    assert sorted((desk.pad / "b.md").read_text().split("\n")) == ["", *(f"line {n}" for n in range(5))]


async def test_a_long_file_is_read_in_pages_of_whole_lines(desk: Desk) -> None:
    """One after another they are all of it."""
    text = "".join(f"line {n}: {'ü' * (n % 90)}\n" for n in range(1500))
    (desk.pad / "long.txt").write_text(text)
    pages: list[str] = []
    offset = 0
    while True:
        said = await desk.done("read", "long.txt", offset=offset)
        page, _, note = said.rpartition("\n[characters ")
        assert 0 < len(page) <= SCRATCHPAD_PAGE_CHARS
        assert page.endswith("\n")
        pages.append(page)
        if "this is the end" in note:
            break
        offset = int(note.partition("go on with offset=")[2].rstrip("]"))
    assert "".join(pages) == text
    assert len(pages) > 3


async def test_a_line_without_end_is_read_in_pages_as_well(desk: Desk) -> None:
    """And a smaller page is what was asked for."""
    (desk.pad / "line.json").write_text("x" * (SCRATCHPAD_PAGE_CHARS + 5))
    first = await desk.done("read", "line.json")
    assert first.endswith(f"go on with offset={SCRATCHPAD_PAGE_CHARS}]")
    rest = await desk.done("read", "line.json", offset=SCRATCHPAD_PAGE_CHARS)
    assert rest.startswith("xxxxx\n[")
    assert (await desk.done("read", "line.json", limit=3)).startswith("xxx\n[characters 0 to 3 of ")
    assert (await desk.done("read", "line.json", limit=10**9)) == first
    assert "nothing at offset" in await desk.refused("read", "line.json", offset=10**9)
    assert "offset is 0 or more" in await desk.refused("read", "line.json", offset=-1)


async def test_a_file_that_is_not_there_is_told_with_the_one_that_was_meant(desk: Desk) -> None:
    """In the whole of the scratchpad."""
    await desk.done("write", "drafts/letter.md", content="Dear")
    assert "did you mean 'drafts/letter.md'?" in await desk.refused("read", "draft/letter.md")
    assert "did you mean 'notes.md'?" in await desk.refused("read", "note.md")
    assert "there is no 'nowhere'" in await desk.refused("list", "nowhere")


async def test_what_is_empty_is_said_to_be(desk: Desk) -> None:
    """A model that is shown nothing at all would wonder."""
    await desk.done("write", "empty.md", content="")
    assert await desk.done("read", "empty.md") == "[empty.md is empty]"
    (desk.pad / "hollow").mkdir()
    assert await desk.done("list", "hollow") == "hollow is empty."


# -- where it is -----------------------------------------------------------------------------------------


async def test_a_session_keeps_the_scratchpad_it_has(store_url: Url, tmp_path: Path) -> None:
    """Whatever root the tools have, and in whichever process."""
    async with opened(store_url) as (_, session):
        own = await session.set_scratchpad(tmp_path / "own")
        await Desk(session, tmp_path).done("write", "notes.md", content="mine")
        assert (own / "notes.md").read_text() == "mine"
    async with opened(store_url) as (_, session):
        assert await Desk(session, tmp_path / "elsewhere").done("read", "notes.md") == "mine"
        assert session.scratchpad == own
        assert not (tmp_path / "elsewhere").exists()


async def test_two_sessions_do_not_see_each_other(tmp_path: Path) -> None:
    """Each has a directory of its own."""
    async with opened("memory:") as (store, session), store.session("other") as other:
        await Desk(session, tmp_path).done("write", "notes.md", content="mine")
        assert await Desk(other, tmp_path).done("list", "") == "The scratchpad is empty."


async def test_files_that_are_not_on_this_machine_are_told_of(tmp_path: Path) -> None:
    """The tools neither hide the loss nor begin anew by themselves; a person can do either."""
    async with opened("memory:") as (_, session):
        gone = await session.set_scratchpad(tmp_path / "gone")
        gone.rmdir()
        desk = Desk(session, tmp_path)
        said = await desk.refused("write", "notes.md", content="mine")
        said += await desk.refused("read", "notes.md") + await desk.refused("list", "")
        assert said.count(f"{gone}, which is not there on this machine") == 3
        assert str(desk.pad) in said
        assert not gone.exists()
        # A person copied them to the root of the tools on this machine.
        desk.pad.mkdir(parents=True)
        (desk.pad / "notes.md").write_text("copied")
        assert await desk.done("read", "notes.md") == "copied"
        await desk.done("write", "more.md", content="mine")
        assert session.scratchpad == desk.pad


async def test_a_root_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    """And nothing was done."""
    (tmp_path / "pads").write_text("a file")
    async with opened("memory:") as (_, session):
        said = await Desk(session, tmp_path).refused("write", "notes.md", content="mine")
        assert f"the scratchpad {tmp_path}/pads/s cannot be made" in said
        assert session.scratchpad is None


async def test_a_scratchpad_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    """The link may have been made with bad intent."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "pads").mkdir()
    (tmp_path / "pads" / "s").symlink_to(tmp_path / "outside")
    async with opened("memory:") as (_, session):
        desk = Desk(session, tmp_path)
        assert all("is a link or no directory" in said for said in await desk.refused_all("notes.md"))
        assert list(desk.outside.iterdir()) == []


# -- attacks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../outside/secret.txt", "'..'"),
        ("drafts/../../outside/secret.txt", "'..'"),
        ("..", "'..'"),
        ("/etc/passwd", "absolute"),
        ("//etc/passwd", "absolute"),
        ("", "names no file"),
        (".", "names no file"),
        ("a\0b", "holds '\\x00'"),
        ("a\nb (5 bytes)", "holds '\\n'"),
        ("a\x1b[2J", "holds '\\x1b'"),
        ("x" * 256, "too long"),
        ("ü" * 128, "too long"),
        ("/".join("x" * (SCRATCHPAD_DEPTH_MAX + 1)), "too deep"),
        (".holdfast-new", "are taken"),
    ],
)
async def test_a_path_that_leads_elsewhere_is_refused(desk: Desk, path: str, why: str) -> None:
    """Before anything is opened."""
    for said in [*await desk.refused_all(path), await desk.refused("delete", path)]:
        assert why in said


async def test_a_path_in_the_root_stays_in_the_root(desk: Desk) -> None:
    """What only looks like a way out is a name like any other."""
    for path in ("~/notes.md", "...", "..a", "%2e%2e/x", "C:\\x", "$HOME", "-rf", " ", "ß 📎"):
        await desk.done("write", path, content="mine")
        assert (desk.pad / path).read_text() == "mine"
        assert await desk.done("read", path) == "mine"


async def test_a_link_to_a_file_is_not_followed(desk: Desk) -> None:
    """It is neither read nor written through, and can be deleted."""
    (desk.pad / "link").symlink_to(desk.outside / "secret.txt")
    (desk.pad / "dangling").symlink_to(desk.outside / "new.txt")
    for path in ("link", "dangling"):
        assert all("symbolic link" in said for said in await desk.refused_all(path))
    assert await desk.done("list", "") == (
        "dangling (a symbolic link)\nlink (a symbolic link)\nnotes.md (8 bytes)"
    )
    await desk.done("delete", "link")
    assert not (desk.pad / "link").is_symlink()


async def test_a_link_to_a_directory_is_not_followed(desk: Desk) -> None:
    """Neither as the parent of a file, nor further up, nor to list it or to delete from it."""
    (desk.pad / "link").symlink_to(desk.outside)
    (desk.pad / "deep").mkdir()
    (desk.pad / "deep" / "link").symlink_to(desk.pad.parent.parent)
    for path in ("link/secret.txt", "link/new/secret.txt", "deep/link/outside/secret.txt"):
        said = [*await desk.refused_all(path), await desk.refused("delete", path)]
        assert all("links are not followed" in one for one in said)
    assert "links are not followed" in await desk.refused("list", "link")
    assert "secret" not in await desk.done("list", "")


async def test_special_files_are_not_opened(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe would block for ever, a device could do anything."""
    os.mkfifo(desk.pad / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        # Relative, because the name of a socket is short.
        monkeypatch.chdir(desk.pad)
        server.bind("socket")
    for path, kind in (("pipe", "a pipe"), ("socket", "a socket")):
        assert all(kind in said for said in await desk.refused_all(path))
        assert f"{path} ({kind})" in await desk.done("list", "")
    (desk.pad / "folder").mkdir()
    assert all("is a directory" in said for said in await desk.refused_all("folder"))


async def test_a_device_is_not_opened(desk: Desk) -> None:
    """Not even one that is harmless."""
    try:
        os.mknod(desk.pad / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")
    assert all("a device" in said for said in await desk.refused_all("null"))


async def test_a_file_is_no_directory(desk: Desk) -> None:
    """And a directory with files in it is not deleted."""
    assert all("not a directory" in said for said in await desk.refused_all("notes.md/more.md"))
    await desk.done("write", "drafts/a.md", content="mine")
    assert "delete those first" in await desk.refused("delete", "drafts")


async def test_what_is_not_text_is_told_so(desk: Desk) -> None:
    """And stays as it is."""
    (desk.pad / "image.png").write_bytes(b"\x89PNG\r\n")
    (desk.pad / "zeros").write_bytes(b"a\0b")
    assert "byte 0 is not UTF-8" in await desk.refused("read", "image.png")
    assert "not text" in await desk.refused("append", "image.png", text="mine")
    assert "NUL" in await desk.refused("read", "zeros")
    assert "NUL" in await desk.refused("write", "new", content="a\0b")
    assert (desk.pad / "image.png").read_bytes() == b"\x89PNG\r\n"


async def test_names_that_are_not_text_are_shown_and_harmless(desk: Desk) -> None:
    """A name cannot pretend to be another line of the listing."""
    (desk.pad / os.fsdecode(b"bad\xff")).write_text("x")
    (desk.pad / "two\nlines").write_text("x")
    assert await desk.done("list", "") == ("bad\\udcff (1 bytes)\nnotes.md (8 bytes)\ntwo\\nlines (1 bytes)")


async def test_huge_files_are_neither_read_nor_written(desk: Desk) -> None:
    """The limit is told."""
    (desk.pad / "huge").touch()
    os.truncate(desk.pad / "huge", 1 << 40)
    assert "too many to be read" in await desk.refused("read", "huge")
    assert "too many to be read" in await desk.refused("append", "huge", text="mine")
    large = "x" * (SCRATCHPAD_FILE_BYTES_MAX + 1)
    assert "too many" in await desk.refused("write", "large", content=large)
    assert not (desk.pad / "large").exists()
    (desk.pad / "full").write_text(large[1:])
    assert "too many" in await desk.refused("append", "full", text="x")


async def test_a_listing_ends_somewhere(desk: Desk) -> None:
    """However many files there are, and however deep they lie."""
    for number in range(SCRATCHPAD_LISTED_MAX + 5):
        (desk.pad / f"f{number:04}").touch()
    lines = (await desk.done("list", "")).splitlines()
    assert len(lines) == SCRATCHPAD_LISTED_MAX + 1
    assert lines[0] == "f0000 (0 bytes)"
    assert "only the first" in lines[-1]
    deep = desk.pad / "/".join("d" * 40)
    deep.mkdir(parents=True)
    assert len((await desk.done("list", "d")).splitlines()) == SCRATCHPAD_DEPTH_MAX


# -- races -----------------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, function: str, act: Callable[[], None]) -> None:
    """Right after the tool's first call of this function of `os`, another process acts."""
    real = getattr(os, function)

    def called(*args: Any, **options: Any) -> Any:
        answer = real(*args, **options)
        if options.get("dir_fd") is not None:
            monkeypatch.setattr(os, function, real)
            act()
        return answer

    monkeypatch.setattr(os, function, called)


async def test_a_file_that_becomes_a_link_after_the_look_is_not_followed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened is looked at once more, and a link is not opened at all."""

    def swap() -> None:
        (desk.pad / "notes.md").unlink()
        (desk.pad / "notes.md").symlink_to(desk.outside / "secret.txt")

    meanwhile(monkeypatch, "stat", swap)
    assert SECRET not in await desk.refused("read", "notes.md")


async def test_a_file_that_becomes_a_pipe_after_the_check_does_not_block(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened without waiting for its other end, and then refused."""

    def swap() -> None:
        (desk.pad / "notes.md").unlink()
        os.mkfifo(desk.pad / "notes.md")

    meanwhile(monkeypatch, "stat", swap)
    assert "a pipe" in await desk.refused("read", "notes.md")


async def test_a_link_that_appears_before_the_rename_is_replaced_and_not_followed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename never goes through a link."""

    def swap() -> None:
        (desk.pad / "notes.md").unlink()
        (desk.pad / "notes.md").symlink_to(desk.outside / "secret.txt")

    meanwhile(monkeypatch, "stat", swap)
    await desk.done("write", "notes.md", content="mine")
    assert not (desk.pad / "notes.md").is_symlink()
    assert (desk.pad / "notes.md").read_text() == "mine"


async def test_a_directory_that_becomes_a_link_while_it_is_in_use_leads_nowhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened before is still the old directory."""
    await desk.done("write", "drafts/secret.txt", content="old")

    def swap() -> None:
        (desk.pad / "drafts").rename(desk.pad / "moved")
        (desk.pad / "drafts").symlink_to(desk.outside)

    meanwhile(monkeypatch, "open", swap)
    await desk.done("write", "drafts/secret.txt", content="mine")
    assert (desk.pad / "moved" / "secret.txt").read_text() == "mine"


async def test_a_directory_that_flickers_never_leads_outside(desk: Desk) -> None:
    """Another process swaps a directory and a link as fast as possible, while the model works in it."""
    here = desk.pad / "here"
    over = threading.Event()

    def flicker() -> None:
        while not over.is_set():
            # The tools make directories there as well.
            shutil.rmtree(desk.pad / "old", ignore_errors=True)
            with suppress(OSError):
                here.rename(desk.pad / "old")
            with suppress(OSError):
                here.symlink_to(desk.outside)
            with suppress(OSError):
                here.unlink()
            with suppress(OSError):
                here.mkdir()

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        for number in range(50):
            for name, args in (
                ("write", {"path": "here/secret.txt", "content": f"{number}"}),
                ("read", {"path": "here/secret.txt"}),
                ("delete", {"path": "here/secret.txt"}),
                ("list", {"path": "here"}),
            ):
                said = await desk.registry.dispatch(f"scratchpad_{name}", args, session=desk.session)
                assert SECRET not in said.content
    finally:
        over.set()
        thread.join()
    assert desk.is_left_alone()


# -- bad disks -------------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, function: str, error: int, *, after: int = 0) -> None:
    """This function of `os` fails, after some calls that do not; once."""
    real, left = getattr(os, function), [after]

    def called(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(error, os.strerror(error))
        return real(*args, **options)

    monkeypatch.setattr(os, function, called)


@pytest.mark.parametrize(
    ("function", "error"),
    [("write", errno.ENOSPC), ("fsync", errno.EIO), ("rename", errno.EDQUOT), ("open", errno.EMFILE)],
)
async def test_a_full_or_failing_disk_leaves_the_old_file(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, function: str, error: int
) -> None:
    """Nothing was done, the model is told so, and no half of a file is left."""
    with monkeypatch.context() as patch:
        failing(patch, function, error)
        said = await desk.refused("write", "notes.md", content="mine")
        assert os.strerror(error) in said
    assert (desk.pad / "notes.md").read_text() == "# Notes\n"
    assert desk.is_left_alone()
    await desk.done("write", "notes.md", content="mine")


async def test_a_name_that_may_not_be_durable_is_in_doubt_until_it_is_written_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is there, but a power cut could still take it back: it must not count as done."""
    args = {"path": "notes.md", "content": "mine"}
    with monkeypatch.context() as patch:
        failing(patch, "fsync", errno.EIO, after=1)
        said = await desk.registry.dispatch("scratchpad_write", args, session=desk.session)
    assert said.status == "in_doubt"
    again = await desk.registry.dispatch("scratchpad_write", args, session=desk.session)
    assert again.status == "completed"
    assert desk.session.in_doubt == []
    assert (desk.pad / "notes.md").read_text() == "mine"
