"""What a process sends to its database server goes through here, to be counted, cut in two, or swallowed.

A wire is a socket of this process's own. Each piece that the client sends is an event of the disk's, as a
write to a file is: whoever dies at it has sent everything before it, and half of it or nothing of it.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from tests.stores import POSTGRES

Send: TypeAlias = Callable[[bytes], None]
Passing: TypeAlias = Callable[[bytes, Send], None]
"""Sees each piece and the way to send it on. An OSError cuts the wire."""

_PIECE_BYTES = 1 << 20
_PORT = 5432


class Wire:
    """Between this process and the server. `asked` sees what goes there, `answered` what comes back."""

    def __init__(self, asked: Passing, answered: Passing | None = None, *, server: str | None = None) -> None:
        given = conninfo_to_dict(server or os.environ[POSTGRES])
        self._server = str(given.get("host")), int(given.get("port") or 5432)
        self._asked = asked
        self._answered = answered or (lambda piece, send: send(piece))
        folder = Path(tempfile.mkdtemp(prefix="hf-wire-", dir="/tmp"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / f".s.PGSQL.{_PORT}"))
        self._listening.listen(50)
        self.url = f"postgresql://?{urlencode({**given, 'host': folder, 'port': _PORT})}"
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """Cut every connection. The server learns of it when it has something to say."""
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self._clients.clear()

    def close(self) -> None:
        """Let nobody in any more; what is connected stays so."""
        self._listening.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with suppress(OSError), self._listening:
            while True:
                self._connect(self._listening.accept()[0])

    def _connect(self, client: socket.socket) -> None:
        host, port = self._server
        server = socket.socket(socket.AF_UNIX if host.startswith("/") else socket.AF_INET)
        try:
            server.connect(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port))
        except OSError:
            client.close()
            server.close()
            return
        self._clients.append(client)
        threading.Thread(target=self._carry_both, args=(client, server), daemon=True).start()

    def _carry_both(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=_carry, args=(server, client, self._answered), daemon=True)
            back.start()
            _carry(client, server, self._asked)
            back.join()


def _carry(source: socket.socket, target: socket.socket, passing: Passing) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            passing(piece, target.sendall)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
