"""A platform without `fcntl` has all but `dir:` stores and homes, and the proof that a process ended."""

import subprocess
import sys
from pathlib import Path

_WITHOUT_FCNTL = """
import asyncio, importlib, os, sys

sys.modules["fcntl"] = None  # Importing it fails from now on.

import holdfast
from holdfast import LeaseHeld, errors, open_store
from holdfast.agents import ScriptedModel, scratchpad_tools
from holdfast.blobs import open_home
from holdfast.messages import ToolCall

path = sys.argv[2]
url = f"sqlite:{path}/a.db"
"""

_IMPORTS = """
for name in ("agents", "blobs", "blocking", "drivers", "errors", "messages", "records", "tools", "workers"):
    module = importlib.import_module(f"holdfast.{name}")
    assert all(hasattr(module, public) for public in module.__all__)
assert all(hasattr(holdfast, public) for public in holdfast.__all__)
"""

_REFUSALS = """
async def open_directory_store():
    async with open_store(f"dir:{path}/store"):
        raise AssertionError("a directory was opened")

async def open_directory_home():
    open_home(f"dir:{path}/home")
    raise AssertionError("a directory was opened")

for opening in (open_directory_store, open_directory_home):
    try:
        asyncio.run(opening())
    except errors.BadUrl as error:
        assert "locks between processes" in str(error), error
"""

_AGENT = """
async def main():
    write = ToolCall(id="c", name="scratchpad_write", args={"name": "a.txt", "text": "b"})
    agent = holdfast.Agent(ScriptedModel([[write], "Done."]), tools=scratchpad_tools(root=path))
    async with open_store(url) as store, store.session("s") as session:
        assert (await agent.run("Write it down.", session=session)).output == "Done."
        ((_, beat),) = store._engine.driver.list_holders()
        assert b'"lock"' not in beat.record, beat

asyncio.run(main())
"""

_DIE = """
async def main():
    async with open_store(url, lease_s=3600) as long, open_store(url, lease_s=1) as short:
        async with long.session("long"), short.session("short"):
            os._exit(0)

asyncio.run(main())
"""

_TAKE_OVER = """
async def main():
    async with open_store(url) as store:
        async with store.session("short", wait_s=60):
            pass
        try:
            async with store.session("long"):
                raise AssertionError("what proved that the holder had ended?")
        except LeaseHeld:
            pass

asyncio.run(main())
"""


def run_without_fcntl(script: str, path: Path) -> None:
    """In a process of its own: this one has imported it."""
    command = [sys.executable, "-c", "import sys\nexec(sys.argv[1])", _WITHOUT_FCNTL + script, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_every_public_name_is_there_without_fcntl(tmp_path: Path) -> None:
    """Importing needs nothing that a platform may lack."""
    run_without_fcntl(_IMPORTS, tmp_path)


def test_directories_are_refused_without_fcntl(tmp_path: Path) -> None:
    """They need locks between processes; the error says what to use."""
    run_without_fcntl(_REFUSALS, tmp_path)


def test_an_agent_works_without_fcntl(tmp_path: Path) -> None:
    """On SQLite, with files of its own; its heartbeat names no kernel lock."""
    run_without_fcntl(_AGENT, tmp_path)


def test_leases_go_by_their_term_without_fcntl(tmp_path: Path) -> None:
    """Nothing proves that a holder has ended, so its term must run out."""
    run_without_fcntl(_DIE, tmp_path)
    run_without_fcntl(_TAKE_OVER, tmp_path)
