"""A store that a forked child inherits is not the child's: every call says so at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.stores import server_url

ROOT = Path(__file__).resolve().parents[2]


def fork_and_use(*arguments: str) -> dict[str, str]:
    """What became of each call in the child; in a process without threads of the tests."""
    command = [sys.executable, "-m", "tests.session.inherited_stores", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, str] = json.loads(ended.stdout)
    return found


def expect_refused(found: dict[str, str], least: int) -> None:
    """Each call of the child was refused, in our words."""
    assert len(found) >= least
    others = {
        name: text
        for name, text in found.items()
        if not (text.startswith("Closed: the store was closed, or was opened in the parent"))
    }
    assert others == {}


async def expect_untouched(url: str) -> None:
    """What the parent wrote is there, and nothing else."""
    async with holdfast.open_store(url, create=False) as store:
        assert [head.session async for head in store.sessions()] == ["s"]
        assert [one.text for one in (await store.load("s")).transcript] == ["one", "three"]


@pytest.fixture(params=["sqlite", "dir", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    if request.param == "postgresql":
        return server_url(request.getfixturevalue("schema"))
    return f"{request.param}:{tmp_path}/agents"


@pytest.mark.parametrize("kind", ["new loop", "same loop"])
async def test_an_async_store_is_refused_in_a_forked_child(
    kind: str, url: str, anyio_backend_name: str
) -> None:
    """Under an event loop of the child's own, and in the middle of the parent's task; it never waits, and
    does not disturb a connection of the parent's."""
    expect_refused(fork_and_use(kind, url, anyio_backend_name), 19)
    await expect_untouched(url)


async def test_a_blocking_store_is_refused_in_a_forked_child(url: str) -> None:
    """The thread of its event loop did not come along, and is not waited for."""
    expect_refused(fork_and_use("blocking", url), 9)
    await expect_untouched(url)
