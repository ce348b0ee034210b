"""The chat behind a web service goes on, wherever its server is killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

EXAMPLE = ROOT / "examples" / "chat_service.py"


@contextmanager
def serving(store: str, listening: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """A server; who connects before it is up waits in the socket's queue."""
    fd = listening.fileno()
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(EXAMPLE), "--fd", str(fd), store]
    with subprocess.Popen(command, pass_fds=[fd], env={**os.environ, "PYTHONPATH": path}) as server:
        try:
            yield server
        finally:
            server.terminate()


def say(port: int, text: str, key: str) -> Iterator[str]:
    """The reply, in the pieces it comes in."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/chats/ada", text.encode(), {"Idempotency-Key": key})
        answer = connection.getresponse()
        assert answer.status == 200
        while piece := answer.read1():
            yield piece.decode()


def look(port: int) -> dict[str, list[str]]:
    """All that was said."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/chats/ada")
        found: dict[str, list[str]] = json.loads(connection.getresponse().read())
        return found


@pytest.mark.parametrize("pieces", [1, 8])
def test_a_chat_goes_on_after_its_server_was_killed_in_the_middle_of_a_reply(
    pieces: int, tmp_path: Path
) -> None:
    """The guest sends the message again, and it is one message with one reply."""
    store = f"sqlite:{tmp_path}/chats.db"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with serving(store, listening) as server:
            assert "number 1" in "".join(say(port, "I am Ada.", "1"))
            seen = 0
            with suppress(OSError, http.client.HTTPException):
                for _ in say(port, "My kettle leaks.", "2"):
                    seen += 1
                    if seen == pieces:
                        server.send_signal(signal.SIGKILL)
            assert server.wait() == -signal.SIGKILL
        with serving(store, listening):
            again = "".join(say(port, "My kettle leaks.", "2"))
            assert "number 2" in again
            assert "".join(say(port, "My kettle leaks.", "2")).strip() == again.strip()
            assert "number 3" in "".join(say(port, "Thank you.", "3"))
            chat = look(port)
    asked = [line for line in chat["said"] if line.startswith("user: ")]
    assert asked == ["user: I am Ada.", "user: My kettle leaks.", "user: Thank you."]
    assert len(chat["said"]) == 6
    assert chat["runs"] == ["completed", "interrupted", "completed", "completed"]


def test_a_reply_that_nobody_came_back_for_is_finished_by_the_next_server(tmp_path: Path) -> None:
    """It takes up what the last one left."""
    store = f"sqlite:{tmp_path}/chats.db"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with serving(store, listening) as server:
            with suppress(OSError, http.client.HTTPException):
                for _ in say(port, "I am Ada.", "1"):
                    server.send_signal(signal.SIGKILL)
            assert server.wait() == -signal.SIGKILL
        with serving(store, listening):
            while look(port)["runs"] != ["interrupted", "completed"]:
                pass
            assert [line.partition(":")[0] for line in look(port)["said"]] == ["user", "assistant"]
