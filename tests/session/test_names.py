"""Text that has no place in UTF-8: refused where it is given, or kept as it is."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, Session, Store, open_store
from holdfast.errors import BadInput, BadUrl
from tests.session.example_sessions import StoreUrl, collect

HALF = "half \ud800 a pair"


async def _enter(block: Any) -> None:
    async with block:
        pass


IN_SESSION: dict[str, Callable[[Session], Awaitable[object]]] = {
    "hold": lambda session: _enter(session.hold(HALF)),
    "a state key": lambda session: session.set(HALF, 1),
    "a message": lambda session: session.add(HALF),
    "a foreign message": lambda session: session.add({"said": HALF}, format="other"),
    "a format": lambda session: session.add({}, format=HALF),
    "a label": lambda session: session.label(tenant=HALF),
    "a summary": lambda session: session.set_summary(HALF),
    "a checkpoint": lambda session: session.checkpoint(HALF),
    "an agent": lambda session: _enter(session.run(agent=HALF)),
    "a run": lambda session: _enter(session.run(run_id=HALF)),
    "a model": lambda session: _enter(session.run(model=HALF)),
    "a config": lambda session: _enter(session.run(config={HALF: HALF})),
    "a reason": lambda session: session.close("active", HALF),
    "a scratchpad": lambda session: session.set_scratchpad(f"/tmp/{HALF}"),
}
AT_STORE: dict[str, Callable[[Store], Awaitable[object]]] = {
    "a message": lambda store: store.submit("s", HALF),
    "a key": lambda store: store.submit("s", "hello", key=HALF),
    "an agent": lambda store: store.submit("s", "hello", agent=HALF),
    "who cancels": lambda store: store.cancel("s", by=HALF),
    "who resolves": lambda store: store.resolve_operation("x", "landed", by=HALF),
    "an operation": lambda store: store.resolve_operation(HALF, "landed", by="me"),
    "a session": lambda store: store.load(HALF),
    "a status": lambda store: collect(store.sessions(status=HALF)),  # type: ignore[arg-type]
    "a label": lambda store: collect(store.sessions(label={"tenant": HALF})),
    "a fork": lambda store: store.fork("s", into=HALF),
}


@pytest.mark.parametrize("what", IN_SESSION)
async def test_half_a_surrogate_pair_in_a_session_is_bad_input(store_url: StoreUrl, what: str) -> None:
    """And the session goes on."""
    async with open_store(store_url) as store, store.session("s") as session:
        with pytest.raises(BadInput):
            await IN_SESSION[what](session)
        await session.set("kept", HALF)
        await session.checkpoint()
        assert (await store.load("s")).get("kept") == HALF


@pytest.mark.parametrize("what", AT_STORE)
async def test_half_a_surrogate_pair_given_to_a_store_is_bad_input(store_url: StoreUrl, what: str) -> None:
    """Nothing is written."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.checkpoint()
        before = (await store.head("s")).seq
        with pytest.raises(BadInput):
            await AT_STORE[what](store)
        assert (await store.head("s")).seq == before


@pytest.mark.parametrize("scheme", ["sqlite:", "dir:", "postgresql://"])
def test_half_a_surrogate_pair_in_a_url_is_a_bad_url(tmp_path: Path, scheme: str) -> None:
    """Of a store, and of a home of blobs."""
    with pytest.raises(BadUrl, match="surrogate"):
        open_store(f"{scheme}{tmp_path}/{HALF}")
    with pytest.raises(HoldfastError):
        open_store("memory:", blobs=f"dir:{tmp_path}/{HALF}")
