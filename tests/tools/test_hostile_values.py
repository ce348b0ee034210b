"""Values and exceptions that cannot even be looked at: what a tool did is on record all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import holdfast
from holdfast import Landed, NotDone, Registry, ToolContext, tool
from holdfast.core.values import Opaque, Values
from holdfast.reprs import describe_error, describe_value
from tests.tools.example_tools import opened

RAISES: list[Callable[[], BaseException]] = [
    lambda: ValueError("no"),
    lambda: SystemExit("no"),
    lambda: RecursionError("no"),
    lambda: BaseException("no"),
]


def make_meta(error: Callable[[], BaseException]) -> type[type]:
    """A metaclass of which nothing works."""

    def fail(*args: object, **kwargs: object) -> NoReturn:
        raise error()

    broken: dict[str, Any] = dict.fromkeys(("__repr__", "__str__", "__eq__", "__hash__", "__len__"), fail)
    broken["__name__"] = property(fail)
    # Not `__subclasscheck__`: Python calls it when an exception is raised, and raises what it raises instead.
    broken.update(dict.fromkeys(("__instancecheck__", "__getattribute__"), fail))
    return type("Meta", (type,), broken)


def make_value(error: Callable[[], BaseException], base: type = object, *args: Any) -> Any:
    """A value of which nothing works, by itself and by its metaclass."""

    def fail(*ignored: object, **more: object) -> NoReturn:
        raise error()

    names = ("__repr__", "__str__", "__eq__", "__hash__", "__len__", "__bool__", "__iter__", "__getitem__")
    broken: dict[str, Any] = dict.fromkeys((*names, "__format__", "__reduce_ex__"), fail)
    broken.update({"__class__": property(fail), "__dict__": property(fail)})
    return make_meta(error)("Hostile", (base,), broken)(*args)


class Surrogate(str):
    """A text that is none, and does not like to be cut."""

    def __getitem__(self, key: object) -> str:
        raise SystemExit

    def encode(self, *args: object) -> bytes:
        raise SystemExit


class Endless:
    """Its repr is a text of its own."""

    def __repr__(self) -> str:
        return Surrogate("\ud800" * 10_000_000)

    def __len__(self) -> int:
        return -1  # noqa: PLE0303


VALUES: list[Callable[[], Any]] = [
    *(lambda error=error: make_value(error) for error in RAISES),
    *(lambda error=error: make_value(error, dict) for error in RAISES),
    *(lambda error=error: make_value(error, str) for error in RAISES[:2]),
    *(lambda error=error: [1, {"a": make_value(error)}] for error in RAISES),
    *(lambda error=error: make_meta(error)("Class", (), {}) for error in RAISES),
    Endless,
]
ERRORS: list[Callable[[], Exception]] = [
    *(lambda error=error: make_value(error, Exception, "x") for error in RAISES),
    lambda: ExceptionGroup("several", [ExceptionGroup("inner", [make_value(RAISES[1], ValueError)])]),
    lambda: ValueError("\ud800" * 100_000),
    lambda: ValueError(make_value(RAISES[1])),
]


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("make", VALUES)
async def test_an_effect_whose_result_cannot_be_looked_at_is_completed(
    make: Callable[[], Any], sync: bool
) -> None:
    """It happened. The result is described as far as that goes, and the call is not run again."""
    done: list[str] = []

    def charge(order: str) -> Any:
        done.append(order)
        return make()

    async def charge_async(order: str) -> Any:
        return charge(order)

    declared = tool(side_effects={"mutate"}, name="charge")(charge if sync else charge_async)
    registry = Registry([declared])
    async with opened("memory:") as (_, session):
        first = await registry.dispatch("charge", {"order": "7"}, session=session)
        again = await registry.dispatch("charge", {"order": "7"}, session=session)
    assert (first.status, again.status) == ("completed", "completed"), first.content
    assert first.content
    assert len(first.content) < 10_000
    assert again.content.endswith(first.content) or first.content in again.content
    assert done == ["7"]


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("make", ERRORS)
async def test_an_exception_that_cannot_be_looked_at_is_on_record(
    make: Callable[[], Exception], sync: bool
) -> None:
    """A harmless tool has failed, and one that may have done something is in doubt: both say so."""

    def fail(order: str) -> Any:
        raise make()

    async def fail_async(order: str) -> Any:
        raise make()

    body = fail if sync else fail_async
    registry = Registry(
        [
            tool(side_effects=(), name="look")(body),
            tool(side_effects={"mutate"}, name="charge")(body),
            tool(side_effects={"mutate"}, name="pay", harmless=[NotDone])(body),
        ]
    )
    async with opened("memory:") as (_, session):
        found = [
            await registry.dispatch(name, {"order": "7"}, session=session)
            for name in ("look", "charge", "pay")
        ]
        assert [one.status for one in found] == ["failed", "in_doubt", "in_doubt"]
        assert all("raised" in one.content and len(one.content) < 10_000 for one in found)
        assert session.continuable


@pytest.mark.parametrize("make", ERRORS)
async def test_hooks_may_raise_what_cannot_be_looked_at(make: Callable[[], Exception]) -> None:
    """`verify` is then unsure, the policy denies, and `undo` is in doubt."""

    def verify(ctx: ToolContext[None], order: str) -> Landed:
        raise make()

    def undo(ctx: ToolContext[None], order: str) -> None:
        raise make()

    def wants(order: str) -> bool:
        raise make()

    @tool(side_effects={"mutate"}, verify=verify)
    def charge(order: str) -> str:
        raise OSError

    @tool(side_effects={"mutate"}, undo=undo)
    def book(order: str) -> str:
        return "booked"

    @tool(side_effects={"mutate"}, needs_approval=wants)
    def refund(order: str) -> str:
        return "refunded"

    registry = Registry([charge, book, refund])
    async with opened("memory:") as (_, session):
        await session.checkpoint()
        statuses = {
            name: (await registry.dispatch(name, {"order": "7"}, session=session)).status
            for name in ("charge", "book", "refund")
        }
        assert statuses == {"charge": "in_doubt", "book": "completed", "refund": "refused"}
        await session.checkpoint()
        rewound = await session.rewind(version=1, undo=True, registry=registry)
        assert [one.status for one in rewound.undone if one.tool == "book"] == ["in_doubt"]


@pytest.mark.parametrize("make", VALUES)
async def test_what_verify_found_is_kept_as_far_as_it_goes(make: Callable[[], Any]) -> None:
    """`Landed` with anything in it means that it happened; anything else than an answer is none."""

    @tool(side_effects={"mutate"}, verify=lambda order: Landed(make()))
    def charge(order: str) -> str:
        raise OSError

    @tool(side_effects={"mutate"}, verify=lambda order: make())
    def pay(order: str) -> str:
        raise OSError

    registry = Registry([charge, pay])
    async with opened("memory:") as (_, session):
        assert (await registry.dispatch("charge", {"order": "7"}, session=session)).status == "completed"
        assert (await registry.dispatch("pay", {"order": "7"}, session=session)).status == "in_doubt"


@pytest.mark.parametrize("make", VALUES)
async def test_state_that_cannot_be_looked_at_is_opaque(make: Callable[[], Any]) -> None:
    """The save goes on, and says what it was of."""
    packed = Values().encode({"kept": 1, "lost": make(), "set": {1}})
    found = Values().decode(packed)
    assert found["kept"] == 1
    assert found["set"] == {1}
    assert isinstance(found["lost"], Opaque | dict | list | str)
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        await session.set("lost", make())
        await session.checkpoint()


@pytest.mark.parametrize("make", ERRORS)
async def test_a_run_that_fails_with_it_says_so(make: Callable[[], Exception]) -> None:
    """And the exception is the caller's, as it was raised."""
    error = make()
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        # Not with `pytest.raises`: it would look at the exception.
        caught: Exception | None = None
        try:
            async with session.run(agent="clerk"):
                raise error
        except Exception as raised:
            caught = raised
        assert (caught is error) is True
        assert session.state.facts.head.status == "failed"


def test_a_keyboard_interrupt_is_the_users() -> None:
    """Somebody wants to stop, wherever that falls."""

    class Slow:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe_value(Slow())
    with pytest.raises(KeyboardInterrupt):
        Values().encode([Slow()])


def test_a_group_says_what_is_in_it() -> None:
    """As far as one reads."""
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("more", [KeyError("b")])])
    said = describe_error(group)
    assert said.startswith("ExceptionGroup: two (2 sub-exceptions): ValueError: a; ")
    assert "KeyError: 'b'" in said
