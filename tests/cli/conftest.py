"""A shop with interesting sessions: done, killed, doubtful, asking, family, erring, torn, forked."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.cli.cli_processes import Done, call


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the shop creates it: two dozen processes, one after the other."""
    for item in items:
        if "stocked" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once for all workers, by real processes, some of which are killed. Tests get a copy."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    shop = base / "stocked"
    with open(base / "stocked.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shop.exists():
            stock(tmp_path_factory.mktemp("shop")).rename(shop)
    return shop


def stock(shop: Path) -> Path:
    """Fill a folder."""
    shutil.copy(Path(__file__).with_name("clerk.py"), shop)

    def run(words: str, session: str, *options: str, dies_in: str = "") -> int:
        line = f"run clerk.py '{words}' --session {session} {' '.join(options)}"
        return call(shop, line, CLERK_DIES_IN=dies_in).code

    assert run("Refund order 42", "done", "--label tenant=acme") == 0
    assert run("Book a room", "done") == 0
    assert run("12 please", "done") == 0
    assert run("Look it up", "killed", dies_in="look_up") == -signal.SIGKILL
    assert call(shop, "resume clerk.py killed").code == 0
    assert run("Charge it", "doubtful", dies_in="charge") == -signal.SIGKILL
    assert run("Ask them", "asking", "--label tenant=acme") == 5
    assert run("Delegate it", "family") == 0
    assert run("Err a bit", "erring") == 0
    assert run("Look at it", "torn", dies_in="look_up") == -signal.SIGKILL
    assert call(shop, "fork done --version 2 --into forked").code == 0
    assert run("Announce it", "deleted", dies_in="announce") == -signal.SIGKILL
    assert call(shop, "clean deleted --yes").code == 0
    # Who looks finds the proof that the killed are dead, once; the copies only know that they are gone.
    assert call(shop, "sessions").code == 0
    return shop


@pytest.fixture
def shop(stocked: Path, tmp_path: Path) -> Path:
    """A shop of one's own, and the directory to work in."""
    return Path(shutil.copytree(stocked, tmp_path / "shop"))


@pytest.fixture
def call_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path, str], Done]:
    """The same as `call`, in this process: for tables of many commands, where one each would cost a lot."""

    def run(shop: Path, line: str) -> Done:
        monkeypatch.chdir(shop)
        monkeypatch.delenv("HOLDFAST_STORE", raising=False)
        code = main(shlex.split(line))
        return Done(code, *capsys.readouterr())

    return run
