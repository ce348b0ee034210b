"""The server in the place of hosted models: what others rely on."""

import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.agent.provider_server import Stall, serve


@pytest.mark.parametrize("reads", [False, True], ids=["without reading", "having read something"])
def test_a_client_that_leaves_a_stall_has_hung_up(reads: bool) -> None:
    """However the connection ends: with what came unread, the system resets it."""
    body = json.dumps({"model": "any", "messages": [], "stream": True}).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
    with serve() as wire:
        wire.say(Stall())
        with socket.create_connection(("127.0.0.1", urlsplit(wire.url).port or 0)) as client:
            client.sendall(head.encode() + body)
            assert wire.stalling.wait(10)
            if reads:
                client.recv(1 << 20)
            assert not wire.hung_up.is_set()
        assert wire.hung_up.wait(10)
