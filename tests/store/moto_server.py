"""moto's server, one request at a time: S3's conditional writes are atomic, and moto's threads would let two
of them see the same object and both succeed."""

from __future__ import annotations

import threading
from typing import Any

from moto import server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

_one = threading.Lock()


class OneAtATime(DomainDispatcherApplication):
    """The application."""

    def __call__(self, environ: Any, start_response: Any) -> Any:
        """Answer a request, while no other one is being answered."""
        with _one:
            return super().__call__(environ, start_response)


if __name__ == "__main__":
    vars(server)["DomainDispatcherApplication"] = OneAtATime
    server.main()
