"""The ready-made tools in processes that are killed, and in those that come after them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import Registry, Session, open_store
from holdfast.agents import plan_tools, scratchpad_tools
from tests.crash import faults
from tests.crash.fork_server import Line, Warm
from tests.tools.example_tools import call, reply

PLAN = {"goal": "Move", "steps": [{"what": "Copy", "postcondition": "it is there"}]}
MORE = {"steps": [{"what": "Tell", "postcondition": "they know"}]}
OLD, NEW = "old\n" * 2000, "new\n" * 3000
LINE = "one more line"
# What tools need is imported with the first one: here, and not in each child.
plan_tools()


# -- in children -----------------------------------------------------------------------------------------


def tools(place: str) -> Registry:
    return Registry([*plan_tools(), *scratchpad_tools(root=f"{place}/pads")])


async def dispatch(session: Session, place: str, name: str, args: Any) -> None:
    result = await tools(place).dispatch(name, args, session=session)
    assert not result.is_error, result.content


def prepare(line: Line, place: str) -> None:
    """A plan, a file, and a reply whose calls have not begun."""

    async def main() -> None:
        async with open_store(f"dir:{place}/store") as store, store.session("s") as session:
            await dispatch(session, place, "make_plan", PLAN)
            await dispatch(session, place, "scratchpad_write", {"path": "a.txt", "content": OLD})
            await dispatch(session, place, "scratchpad_write", {"path": "log.txt", "content": OLD})
            await reply(
                session,
                call("add_plan_steps", MORE),
                call("finish_plan_step", {"step": 1, "evidence": "ls shows it"}),
                call("scratchpad_write", {"path": "a.txt", "content": NEW}),
                call("scratchpad_write", {"path": "deep/b.txt", "content": NEW}),
                call("scratchpad_append", {"path": "log.txt", "text": LINE}),
            )

    anyio.run(main)


def work(line: Line, place: str, number: int = 0, when: faults.When = "before") -> list[tuple[str, str]]:
    """Carry out the calls, or die at a change on the disk; the changes."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)

    async def main() -> None:
        async with open_store(f"dir:{place}/store") as store, store.session("s", wait_s=30) as session:
            registry = tools(place)
            assert await session.settle(registry) == []
            for result in await registry.dispatch_step(session):
                assert result.status == "completed", result

    anyio.run(main)
    return [(event.kind, event.path) for event in disk.events]


def look(line: Line, place: str) -> dict[str, Any]:
    """What another process finds."""

    async def main() -> dict[str, Any]:
        async with open_store(f"dir:{place}/store") as store, store.session("s", wait_s=30) as session:
            assert session.plan is not None
            assert session.scratchpad is not None
            listed = await tools(place).dispatch("scratchpad_list", {}, session=session)
            return {
                "steps": [[step.what, step.status, step.evidence] for step in session.plan.steps],
                "listed": listed.content.splitlines(),
                "pad": str(session.scratchpad),
                "problems": [str(one) for one in session.problems],
                "in_doubt": len(session.in_doubt),
            }

    return anyio.run(main)


def work_and_look(line: Line, place: str) -> dict[str, Any]:
    """Resume where a process was killed; return what there is in the end."""
    work(line, place)
    return look(line, place)


# -- the tests -------------------------------------------------------------------------------------------


def test_another_process_finds_the_plan_with_its_evidence_and_the_files(warm: Warm, quick_path: Path) -> None:
    """What one process planned and wrote, the next one goes on with."""
    warm.call(prepare, str(quick_path))
    warm.call(work, str(quick_path))
    assert warm.call(look, str(quick_path)) == {
        "steps": [["Copy", "done", "ls shows it"], ["Tell", "todo", ""]],
        "listed": [
            f"a.txt ({len(NEW)} bytes)",
            "deep/",
            f"deep/b.txt ({len(NEW)} bytes)",
            f"log.txt ({len(OLD) + len(LINE) + 1} bytes)",
        ],
        "pad": f"{quick_path}/pads/s",
        "problems": [],
        "in_doubt": 0,
    }


def deaths(changes: list[tuple[str, str]], stride: int) -> Iterator[tuple[int, faults.When]]:
    """Before every change on the disk and in the middle of every write; of the store's own, only some."""
    for number, (kind, path) in enumerate(changes, start=1):
        if "/store/" not in path or number % stride == 0:
            yield number, "before"
            if kind == "write":
                yield number, "half"


@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.long)])
def test_a_kill_at_any_write_leaves_whole_files_and_repeats_nothing(
    warm: Warm, quick_path: Path, stride: int
) -> None:
    """Each file is the old one or the new one; the next process does the rest, and nothing twice."""
    # The session knows its scratchpad by its path, so each trial is made in the same place.
    trial = quick_path / "trial"
    trial.mkdir()
    warm.call(prepare, str(trial))
    shutil.copytree(trial, quick_path / "kept")
    changes = warm.call(work, str(trial))
    killed = 0
    for number, when in deaths(changes, stride):
        shutil.rmtree(trial)
        shutil.copytree(quick_path / "kept", trial)
        with warm.child(work, str(trial), number, when) as child:
            killed += child.outcome() is None
        pad = trial / "pads" / "s"
        assert (pad / "a.txt").read_text() in (OLD, NEW), (number, when)
        assert (pad / "log.txt").read_text() in (OLD, f"{OLD}{LINE}\n"), (number, when)
        found = warm.call(work_and_look, str(trial))
        assert [step[0] for step in found["steps"]] == ["Copy", "Tell"], (number, when)
        assert found["steps"][0][1] == "done"
        assert (found["problems"], found["in_doubt"]) == ([], 0)
        assert (pad / "a.txt").read_text() == (pad / "deep" / "b.txt").read_text() == NEW
        assert (pad / "log.txt").read_text() == f"{OLD}{LINE}\n", (number, when)
        assert {one.name for one in pad.iterdir()} == {"a.txt", "log.txt", "deep"}
    assert killed > 20
