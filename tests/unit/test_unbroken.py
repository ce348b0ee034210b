"""Work that is brought to its end, whoever is cancelled."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from holdfast.unbroken import unbroken

done: list[str] = []


async def _work() -> str:
    for name in ("a", "b"):
        await anyio.sleep(0.01)
        done.append(name)
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
    with anyio.move_on_after(0.005) as scope:
        await unbroken(_work)
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert done == ["a", "b"]


def test_a_task_that_is_cancelled_again_and_again_waits_for_its_end() -> None:
    """As asyncio cancels: through every shield. Then the cancellation is raised."""

    async def main() -> None:
        task = asyncio.create_task(unbroken(_work))
        for _ in range(3):
            await asyncio.sleep(0.002)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["a", "b"]
