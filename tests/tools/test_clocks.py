"""How old an effect is: by the clocks that no person sets, and never by more or less than they know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
import holdfast.tools.reconcile
from holdfast import Landed, Registry, ToolContext, tool
from holdfast.core.entries import ToolIssued
from holdfast.engine.engine import Engine
from holdfast.system.clock import Instant, boot_s
from tests.internals import engine_of
from tests.tools.example_tools import NoWaiting, Url, World, bodies, die, later, move_to, opened, set_clock

DAY_S = 86_400.0
AWAY_S = 1000.0

Move = Callable[[Engine], None]


def stay(engine: Engine) -> None:
    """The same machine, with the right time."""


def ahead(engine: Engine) -> None:
    """Somebody sets the wall clock ahead."""
    set_clock(engine, DAY_S)


def back(engine: Engine) -> None:
    """Somebody sets the wall clock back."""
    set_clock(engine, -DAY_S)


def elsewhere(engine: Engine) -> None:
    """Another machine, with a wall clock that is far ahead, and no clock in common."""
    set_clock(engine, DAY_S)
    move_to(engine, "another boot")


def elsewhere_and_back(engine: Engine) -> None:
    """Another machine, with a wall clock that is far behind, and no clock in common."""
    set_clock(engine, -DAY_S)
    move_to(engine, "another boot")


def served(boot: str, passed_s: float) -> Move:
    """A machine of a store whose server has a clock; some seconds have passed by it."""

    def move(engine: Engine) -> None:
        set_clock(engine, -DAY_S if passed_s else DAY_S)
        move_to(engine, boot, server_s=lambda: boot_s() + DAY_S + passed_s)

    return move


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def dying(world: World, **options: Any) -> Registry:
    """A tool whose process dies the first time, after its effect has landed."""
    dies = iter([True])

    @tool(side_effects={"mutate"}, **options)
    async def act(ctx: ToolContext[holdfast.Store]) -> str:
        world.do("it", ctx.key)
        if next(dies, False):
            die(ctx.deps)
        return "did it"

    return Registry([act])


async def settle_elsewhere(registry: Registry, url: Url, first: Move, second: Move, passed_s: float) -> int:
    """A process dies in the call, and another one settles; how many calls stay in doubt."""
    async with opened(url) as (store, session):
        first(engine_of(store))
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch("act", {}, session=session, deps=store)
    async with opened(url) as (store, session):
        second(engine_of(store))
        later(session, passed_s)
        return len(await session.settle(registry, deps=store))


@pytest.mark.parametrize("move", [stay, ahead, back])
async def test_setting_the_wall_clock_changes_nothing_about_when_a_hook_is_asked(
    move: Move, store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify_after_s` is what the service needs: set ahead, the hook is not asked earlier, and set back, not
    later."""
    waiting = NoWaiting(monkeypatch, holdfast.tools.reconcile)
    registry = dying(world, verify=lambda: Landed("did it"), verify_after_s=5000)
    assert await settle_elsewhere(registry, store_url, stay, move, AWAY_S) == 0
    (slept_s,) = waiting.slept
    assert 3000 < slept_s <= 4000


@pytest.mark.parametrize("move", [elsewhere, elsewhere_and_back])
async def test_without_a_clock_in_common_a_hook_waits_from_the_lease_on(
    move: Move, store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another boot: the effect is older than the lease, and that is all that is known."""
    waiting = NoWaiting(monkeypatch, holdfast.tools.reconcile)
    registry = dying(world, verify=lambda: Landed("did it"), verify_after_s=5000)
    assert await settle_elsewhere(registry, store_url, stay, move, 0) == 0
    (slept_s,) = waiting.slept
    assert 4000 < slept_s <= 5000


@pytest.mark.parametrize(
    ("second", "least_s", "most_s"),
    [
        (served("another boot", AWAY_S), 3000, 4000),
        (served("one boot", AWAY_S), 4000, 5000),
        (served("one boot", -AWAY_S), 4000, 5000),
    ],
)
async def test_a_hook_is_asked_by_the_clock_that_says_least(
    second: Move,
    least_s: float,
    most_s: float,
    store_url: Url,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server's clock tells machines apart from each other; one that was set does not make a hook asked
    early, and keeps it no longer than the service needs."""
    waiting = NoWaiting(monkeypatch, holdfast.tools.reconcile)
    registry = dying(world, verify=lambda: Landed("did it"), verify_after_s=5000)
    assert await settle_elsewhere(registry, store_url, served("one boot", 0), second, 0) == 0
    (slept_s,) = waiting.slept
    assert least_s < slept_s <= most_s


@pytest.mark.parametrize("move", [stay, ahead, back])
@pytest.mark.parametrize(("passed_s", "runs"), [(AWAY_S, 2), (9000.0, 1)])
async def test_setting_the_wall_clock_makes_no_key_older_or_younger(
    passed_s: float, runs: int, move: Move, store_url: Url, world: World
) -> None:
    """`idempotent=5000`: set back, a key that the service has forgotten is not used again, and set ahead,
    one that it knows is."""
    registry = dying(world, idempotent=5000)
    left = await settle_elsewhere(registry, store_url, stay, move, passed_s)
    assert (left, len(world.done)) == (2 - runs, runs)
    assert len(set(world.keys)) == 1


@pytest.mark.parametrize("move", [elsewhere, elsewhere_and_back])
async def test_without_a_clock_in_common_a_key_counts_as_forgotten(
    move: Move, store_url: Url, world: World
) -> None:
    """Another boot: the key may be of any age. One that is remembered for good is used all the same."""
    assert await settle_elsewhere(dying(world, idempotent=5000), store_url, stay, move, 0) == 1
    assert len(world.done) == 1


async def test_a_key_that_is_remembered_for_good_needs_no_clock(store_url: Url, world: World) -> None:
    """`idempotent=True`, on another machine."""
    assert await settle_elsewhere(dying(world, idempotent=True), store_url, stay, elsewhere, 0) == 0
    assert len(world.done) == 2


@pytest.mark.parametrize(
    ("second", "runs"),
    [
        (served("another boot", AWAY_S), 2),
        (served("another boot", 9000), 1),
        (served("one boot", 9000), 1),
        (served("one boot", -9000), 2),
    ],
)
async def test_a_key_is_as_old_as_the_clock_that_says_most(
    second: Move, runs: int, store_url: Url, world: World
) -> None:
    """Of this boot's and the server's, where both are known."""
    registry = dying(world, idempotent=5000)
    left = await settle_elsewhere(registry, store_url, served("one boot", 0), second, 0)
    assert (left, len(world.done)) == (2 - runs, runs)


async def test_an_intent_says_when_by_clocks_that_no_person_sets(store_url: Url, world: World) -> None:
    """Boot and boot seconds; on PostgreSQL the server's time, too. A harmless call needs none of it."""

    @tool(side_effects={"mutate"})
    async def act() -> None:
        pass

    @tool(side_effects=(), timeout_s=60)
    async def look() -> None:
        pass

    registry = Registry([act, look])
    async with opened(store_url) as (store, session):
        before = engine_of(store).instant()
        await registry.dispatch("act", {}, session=session)
        await registry.dispatch("look", {}, session=session)
        after = engine_of(store).instant()
        done, looked = [one.clock for one in await bodies(store, session, ToolIssued)]
        assert looked is None
        assert isinstance(done, Instant)
        assert (before.boot, before.boot_s) <= (done.boot, done.boot_s) <= (after.boot, after.boot_s)
        assert (done.server_s is None) == (not str(store_url).startswith("postgresql"))
