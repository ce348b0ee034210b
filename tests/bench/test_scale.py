"""The stores of the scale benchmark are true ones, and every question finds what it looks for."""

import os
import subprocess
import sys

import pytest

import holdfast
from bench import scale

SESSIONS, ENTRIES = 300, 600


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The script runs on asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
async def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:{tmp_path_factory.mktemp('many')}/agents.db"
    await scale.make_many(url, SESSIONS)
    return url


@pytest.fixture(scope="module")
async def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:{tmp_path_factory.mktemp('long')}/agents.db"
    await scale.make_long(url, ENTRIES)
    return url


@pytest.mark.parametrize("what", scale.MANY)
async def test_a_question_about_many_sessions_is_answered(many: str, what: str) -> None:
    """Questions check what they find."""
    found = await scale.ask_here(scale.MANY[what], many, SESSIONS)
    assert len(found["times_s"]) == len(found["worked_s"]) == scale.TIMES


@pytest.mark.parametrize("what", scale.LENGTHY)
async def test_a_question_about_a_long_journal_is_answered(long: str, what: str) -> None:
    """With its keyframe."""
    await scale.ask_here(scale.LENGTHY[what], long, ENTRIES)


@pytest.mark.parametrize("what", scale.BARE)
async def test_a_question_is_answered_without_a_keyframe(long: str, what: str) -> None:
    """It is not there, and not needed."""
    scale.drop_keyframes(long)
    await scale.ask_here(scale.BARE[what], long, ENTRIES)


async def test_a_session_that_was_made_in_bulk_goes_on(many: str) -> None:
    """As one that its agent made."""
    async with holdfast.open_store(many) as store:
        head = await store.head(scale.name_of(7))
        assert (head.status, head.messages, head.agent) == ("completed", 2, "clerk")
        outcome = await scale.make_clerk().run("And order 43?", session=scale.name_of(7), store=store)
        assert outcome.status == "completed"


def test_figures_become_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Stores side by side, in units that suit them."""
    found = scale.Found("open", [0.002, 0.004, 0.003], [0.001] * 3, 12.4)
    served = found._replace(server_s=2.0)
    scale.print_tables(
        [
            scale.Table("3 entries", "sqlite", 1.5, [found]),
            scale.Table("3 entries", "postgresql", 1.5, [served]),
            scale.Table("3 sessions", "sqlite", 20.0, [found]),
        ]
    )
    printed = capsys.readouterr().out
    assert "| open | 3.00 ms (1.00 ms), 12 MB | 3.00 ms (1.00 ms + 2.00 s), 12 MB |" in printed
    assert "| bytes on disk | 20.0 MB |" in printed


def test_the_work_of_a_server_is_that_of_all_its_processes() -> None:
    """Those that run, and those that have ended and were waited for."""
    before = scale.worked_by(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert scale.worked_by(os.getpid()) > before
