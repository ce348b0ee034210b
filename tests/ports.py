"""Ports for servers of the tests' own."""

from __future__ import annotations

import random
import socket

_PORTS = range(20_000, 32_000)
"""Where no connection begins by itself: it could take the port of a server that is restarting."""

_choose = random.SystemRandom().choice


def free_port() -> int:
    """A port on which nobody listens."""
    while True:
        port = _choose(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
