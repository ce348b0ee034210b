"""Clients of others, unchanged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crash.fork_server import DEADLINE_S, Warm, poll

from .servers import PYTHON, ROOT
from .test_kills import GIT, Shop, count_calls, is_doubt_text

PAGE = ROOT / "docs" / "mcp-proxy.md"
PUBLISHED = {
    "with_mcp": "the `mcp` package",
    "with_fastmcp": "fastmcp",
    "with_openai_agents": "OpenAI Agents SDK, `MCPServerStdio`",
    "with_pydantic_ai": "pydantic-ai, `MCPToolset`",
}
"""What the page on the proxy calls them."""
CLIENTS = pytest.mark.parametrize(
    "client",
    [
        "with_openai_agents",
        pytest.param("with_mcp", marks=pytest.mark.long),
        pytest.param("with_fastmcp", marks=pytest.mark.long),
        pytest.param("with_pydantic_ai", marks=pytest.mark.long),
    ],
)


def start(client: str, times: int, shop: Shop, command: Sequence[str], **more: str) -> subprocess.Popen[str]:
    """The client calls the tool of the shop so often."""
    # fastmcp needs an environment of its own.
    python = sys.executable if client in ("with_mcp", "with_openai_agents") else str(PYTHON)
    script = Path(__file__).parent / "clients" / f"{client}.py"
    ((tool, arguments),) = shop.calls
    return subprocess.Popen(
        [python, str(script), tool, json.dumps(arguments), str(times), *command],
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Any:
    """What the client found."""
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.mark.long
@CLIENTS
def test_a_client_sees_no_difference(client: str, warm: Warm, tmp_path: Path) -> None:
    """The same tools, the same results, in the same order."""
    found: list[Any] = []
    for proxied in (False, True):
        place = tmp_path / str(proxied)
        place.mkdir()
        shop = Shop(GIT, place, warm, proxied=proxied)
        found.append(end(start(client, 2, shop, shop.command)))
        assert shop.count == 1
        hash = found[-1]["said"][0][0].split()[-1]
        found[-1] = json.loads(json.dumps(found[-1]).replace(hash, "HASH").replace(str(place), "PLACE"))
    assert found[0] == found[1]
    assert len(found[0]["said"]) == 2
    assert "git_commit" in found[0]["tools"]


@CLIENTS
def test_a_client_that_makes_the_call_again_does_not_make_it_twice(
    client: str, warm: Warm, tmp_path: Path
) -> None:
    """It is started anew after a kill, and tries twice what it is told has failed. That of pydantic-ai is
    even told to retry by its framework."""
    shop = Shop(GIT, tmp_path, warm)
    shop.kill_at("after", "client proxy server")
    GIT.prepare(tmp_path)
    said = end(start(client, 2, shop, shop.command))["said"]
    assert [is_doubt_text(texts[0]) for texts in said] == [True, True]
    assert (shop.count, count_calls(tmp_path, GIT.tool)) == (1, 1)


def read_published(client: str) -> list[str]:
    """The row of the page on the proxy that is about this client, behind its name."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    (row,) = [row for row in rows if row[0].strip("| ") == PUBLISHED[client]]
    return [cell.strip(" |") for cell in row[1:]]


@pytest.mark.long
@CLIENTS
def test_a_client_that_is_killed_and_started_again_does_what_the_page_says(
    client: str, warm: Warm, tmp_path: Path
) -> None:
    """It dies between the effect and the answer, and calls again. Without the proxy there are two commits.
    Behind it, the client gets the answer that it has missed, or is told that it is in doubt."""
    found: list[str] = []
    for number, whom in enumerate(("client", "client", "client proxy server")):
        place = tmp_path / str(number)
        place.mkdir()
        shop = Shop(GIT, place, warm, proxied=number > 0)
        (place / "do").write_text(f"{GIT.tool} after {whom}")
        with start(client, 1, shop, shop.command) as killed:
            _, said = killed.communicate(timeout=DEADLINE_S)
            assert killed.returncode == -signal.SIGKILL, said
        assert shop.count == 1
        GIT.prepare(place)
        ((text,),) = end(start(client, 1, shop, shop.command))["said"]
        told = ", in doubt" if is_doubt_text(text) else ""
        found.append(f"{shop.count}{told}")
    assert found == read_published(client) == ["2", "1", "1, in doubt"]


@pytest.mark.long
@pytest.mark.parametrize(("proxied", "count"), [(True, 1), (False, 2)])
def test_a_client_that_loses_patience_and_retries(
    proxied: bool, count: int, warm: Warm, tmp_path: Path
) -> None:
    """The answer comes later than the client waits, so it sends the call again by itself: twice without the
    proxy, once behind it."""
    shop = Shop(GIT, tmp_path, warm, proxied=proxied)
    (tmp_path / "do").write_text(f"{GIT.tool} after hold")
    process = start("with_openai_agents", 1, shop, shop.command, TIMEOUT_S="60")
    poll(lambda: (tmp_path / "held").exists(), "the call to be under way")
    assert shop.count == 1
    GIT.prepare(tmp_path)
    if proxied:
        (texts,) = end(process)["said"]
        assert is_doubt_text(texts[0])
    else:
        poll(lambda: count_calls(tmp_path, GIT.tool) == 2, "the second attempt")
        (tmp_path / "go").touch()
        process.communicate(timeout=DEADLINE_S)
    assert shop.count == count_calls(tmp_path, GIT.tool) == count
