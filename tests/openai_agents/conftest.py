"""Sessions of the OpenAI Agents SDK on each kind of store, and the SDK's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from agents import SQLiteSession, set_tracing_disabled
from agents.memory import Session

import holdfast
from holdfast.adapters.openai_agents import HoldfastSession
from tests.conftest import IN_LONG
from tests.crash.fork_server import Warm
from tests.stores import server_url

OpenSession: TypeAlias = Callable[..., Session]
"""Makes a session with an id, and the settings of the SDK."""

set_tracing_disabled(True)


@pytest.fixture
def anyio_backend() -> str:
    """The SDK knows asyncio only."""
    return "asyncio"


@pytest.fixture(autouse=True)
def default_loop(closed_default_loop: None) -> None:
    """`run_sync` leaves one open."""


@pytest.fixture(scope="session")
def warm(loaded_warm: Warm) -> Warm:
    """Children here import frameworks."""
    return loaded_warm


def url_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of this kind."""
    match kind:
        case "memory":
            return "memory:"
        case "postgresql":
            return server_url(request.getfixturevalue("schema"))
        case scheme:
            return f"{scheme}:{tmp_path}/store"


@pytest.fixture(params=["memory", "dir", "sqlite", IN_LONG])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[holdfast.Store]:
    """An open store of each kind."""
    async with holdfast.open_store(url_of(request.param, request, tmp_path)) as opened:
        yield opened


on_every_store = pytest.mark.parametrize(
    "open_session", ["memory", "dir", "sqlite", "postgresql", "theirs"], indirect=True
)
"""In `make test`, too; other tests meet PostgreSQL in `make test-long` only."""


@pytest.fixture(params=["memory", "dir", "sqlite", IN_LONG, "theirs"])
async def open_session(
    request: pytest.FixtureRequest, tmp_path: Path, quick_path: Path
) -> AsyncIterator[OpenSession]:
    """Opens sessions on each kind of store, and those of the SDK, which promise the same."""
    async with AsyncExitStack() as stack:
        if request.param == "theirs":
            theirs: list[SQLiteSession] = []

            def open_theirs(session_id: str = "ann", **settings: int) -> Session:
                theirs.append(SQLiteSession(session_id, quick_path / "theirs.db", session_settings=settings))
                return theirs[-1]

            yield open_theirs
            for one in theirs:
                one.close()
            return
        store = await stack.enter_async_context(holdfast.open_store(url_of(request.param, request, tmp_path)))

        def open_ours(session_id: str = "ann", **settings: int) -> Session:
            return HoldfastSession(session_id, store, session_settings=dict(settings))

        yield open_ours


@pytest.fixture(params=["dir", "sqlite", IN_LONG, "theirs"])
def open_sync_session(
    request: pytest.FixtureRequest, tmp_path: Path, quick_path: Path
) -> Iterator[OpenSession]:
    """Opens sessions where there is no event loop: each has a store of its own, or file."""
    opened: list[SQLiteSession | HoldfastSession] = []

    def open_one(session_id: str = "ann", **settings: int) -> Session:
        made: SQLiteSession | HoldfastSession
        if request.param == "theirs":
            made = SQLiteSession(session_id, quick_path / "theirs.db", session_settings=settings)
        else:
            made = HoldfastSession(
                session_id, url_of(request.param, request, tmp_path), session_settings=dict(settings)
            )
        opened.append(made)
        return made

    yield open_one
    for one in opened:
        one.close()
