"""A sync tool that hangs keeps no process from ending."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anyio.from_thread
import anyio.lowlevel
import pytest

import holdfast
import holdfast.blocking
from holdfast import Registry, ToolContext, tool
from tests.tools import hung_process
from tests.tools.example_tools import Url, opened


@pytest.mark.parametrize("loop", ["asyncio", "trio", "blocking"])
def test_one_ctrl_c_ends_a_process_whose_sync_tool_hangs(loop: str, tmp_path: Path) -> None:
    """It gets its grace, is left behind, and stays in doubt on record: nothing waits for its thread."""
    url = f"sqlite:{tmp_path}/store.db"
    with subprocess.Popen(
        [sys.executable, hung_process.__file__, url, loop],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "began\n"
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=300)
        finally:
            child.kill()
    assert "KeyboardInterrupt" in said
    with holdfast.blocking.open_store(url) as store:
        assert [(doubt.session, doubt.effect.call.id) for doubt in store.in_doubt()] == [("s", "c")]


async def test_a_sync_body_reaches_the_event_loop_from_its_thread(store_url: Url) -> None:
    """`anyio.from_thread` works in it, and what it notes is durable when it goes on."""

    async def double(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        return number * 2

    @tool(side_effects={"mutate"})
    def act(ctx: ToolContext[None]) -> int:
        ctx.annotate(vendor="v-1")
        ctx.report("half-way")
        return anyio.from_thread.run(double, 21)

    async with opened(store_url) as (_, session):
        found = await Registry([act]).dispatch("act", {}, session=session)
        assert found.value == 42
        (row,) = session.left_behind()
        assert row.notes == {"vendor": "v-1"}
