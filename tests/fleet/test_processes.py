"""Real worker processes: killed, stopped and drained in the middle of their work."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from holdfast import open_store
from holdfast.core.head import Head
from tests.crash.fork_server import Child, Warm, poll
from tests.stores import server_url

from .effect_service import World
from .fleet_agents import AGENT, work
from .journals import find_zombie_lines

STEPS = 6
Start: TypeAlias = Callable[..., Child]


def submit(url: str, *sessions: str) -> None:
    """Work for whoever comes."""

    async def main() -> None:
        async with open_store(url) as store:
            for session in sessions:
                await store.submit(session, "build a wall", agent=AGENT)

    anyio.run(main)


def heads(url: str) -> list[Head]:
    """Every session as it stands."""

    async def main() -> list[Head]:
        async with open_store(url) as store:
            return [head async for head in store.sessions()]

    return anyio.run(main)


def wait_for_the_end(url: str) -> None:
    """Until every session is complete."""
    poll(lambda: all(head.status == "completed" for head in heads(url)), "all sessions", pause_s=0.05)


def bricks(world: World, session: str) -> list[str]:
    """What happened for a session."""
    return [deed.what for deed in world.deeds() if deed.session == session]


@pytest.fixture
def world(quick_path: Path) -> World:
    return World(quick_path / "world.db").make()


@pytest.fixture
def url(request: pytest.FixtureRequest, scheme: str, quick_path: Path) -> str:
    if scheme == "postgresql":
        return server_url(request.getfixturevalue("schema"))
    return f"{scheme}:{quick_path}/store"


@pytest.fixture
def start(warm: Warm, url: str, quick_path: Path) -> Iterator[Start]:
    """Starts a worker that is at it when this returns. None is left behind."""
    with ExitStack() as ending:

        def start(**options: Any) -> Child:
            child = warm.start(work, url, str(quick_path / "world.db"), steps=STEPS, **options)
            ending.callback(child.end)
            assert child.hear()[0] == "ready"
            return child

        yield start


def hear(child: Child, kind: str) -> str:
    """Go on when the worker tells of this; of which session."""
    while True:
        found, session, _ = child.hear()
        if found == kind:
            return str(session)


WALL = [f"brick {number}" for number in range(STEPS)]


def test_a_killed_worker_is_taken_over_at_once(url: str, world: World, start: Start) -> None:
    """By another one on its machine, and nothing happens twice."""
    submit(url, "a", "b")
    first = start(lease_s=60, pause_s=0.2)
    poll(lambda: len(world.deeds()) >= 3, "some work")
    first.kill()
    first.wait()
    start(lease_s=60)
    wait_for_the_end(url)
    assert bricks(world, "a") == bricks(world, "b") == WALL


def test_a_stopped_worker_is_taken_over_and_can_do_nothing_more(url: str, world: World, start: Start) -> None:
    """After its term; when it wakes up, neither the journal nor the world takes anything from it."""
    submit(url, "a")
    zombie = start(lease_s=1.0, pause_s=0.2)
    poll(lambda: len(world.deeds()) >= 2, "some work")
    zombie.kill(signal.SIGSTOP)
    zombie.wait_stopped()
    start(lease_s=1.0)
    wait_for_the_end(url)
    zombie.kill(signal.SIGCONT)
    assert hear(zombie, "lost") == "a"
    assert bricks(world, "a") == WALL
    assert anyio.run(find_zombie_lines, url) == []
    zombie.kill(signal.SIGTERM)
    assert zombie.result()["lost"] == 1


def test_a_worker_that_is_asked_to_stop_hands_over_at_the_end_of_a_step(
    url: str, world: World, start: Start
) -> None:
    """The next one goes on with the same run, as if nobody had changed."""
    submit(url, "a")
    first = start(lease_s=60, pause_s=0.1)
    poll(lambda: len(world.deeds()) >= 2, "some work")
    first.kill(signal.SIGTERM)
    assert first.result()["handed_over"] == 1
    (head,) = heads(url)
    assert (head.status, head.lease, head.failures) == ("active", None, 0)
    assert head.due is not None
    assert head.step == len(world.deeds())
    start(lease_s=60)
    wait_for_the_end(url)
    assert bricks(world, "a") == WALL


def test_what_takes_too_long_is_handed_over_where_it_is(url: str, world: World, start: Start) -> None:
    """In the middle of a step, after the time that was given."""
    submit(url, "a")
    first = start(lease_s=60, pause_s=1.5, drain_s=0.0)
    poll(lambda: len(world.deeds()) >= 1, "some work")
    first.kill(signal.SIGTERM)
    assert first.result()["handed_over"] == 1
    assert heads(url)[0].status == "active"
    start(lease_s=60)
    wait_for_the_end(url)
    assert bricks(world, "a") == WALL
