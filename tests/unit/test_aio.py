"""Work that runs to its end when its caller is cancelled."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from holdfast.system.aio import unbroken

done: list[str] = []


async def _work() -> str:
    for name in ("a", "b"):
        await anyio.sleep(0.01)
        done.append(name)
    return "given"


class Steps:
    """Work that is begun, and goes on when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go_on = anyio.Event(), anyio.Event()

    async def work(self) -> str:
        """Half of it, a pause, and the rest."""
        done.append("a")
        self.begun.set()
        await self.go_on.wait()
        await anyio.lowlevel.checkpoint()
        done.append("b")
        return "given"


@pytest.fixture(autouse=True)
def _nothing_is_done_yet() -> None:
    done.clear()


@pytest.mark.anyio
async def test_it_gives_what_the_work_gives() -> None:
    """And raises what it raises."""

    async def fail() -> None:
        raise KeyError("mine")

    assert await unbroken(_work) == "given"
    with pytest.raises(KeyError, match="mine"):
        await unbroken(fail)


@pytest.mark.anyio
async def test_a_scope_that_is_cancelled_waits_for_its_end() -> None:
    """In both kinds of event loops."""
    steps = Steps()

    async def cancel() -> None:
        await steps.begun.wait()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        steps.go_on.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        with anyio.CancelScope() as scope:
            await unbroken(steps.work)
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert done == ["a", "b"]


def test_a_task_that_is_cancelled_again_and_again_waits_for_its_end() -> None:
    """As asyncio cancels: through every shield. Then the cancellation is raised."""

    async def main() -> None:
        steps = Steps()
        task = asyncio.create_task(unbroken(steps.work))
        await steps.begun.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.002)
        steps.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["a", "b"]
