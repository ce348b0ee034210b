"""An IMAP server on this machine, with its mail in memory."""

from __future__ import annotations

import asyncio
import imaplib
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager

from proxyprotocol.reader import ProxyProtocolReader
from pymap.backend.dict import DictBackend
from pymap.imap import IMAPServer
from pymap.service import services
from pysasl.hashing import BuiltinHash

USER, PASSWORD = "clerk", "s3cret"
_START_S = 120


@contextmanager
def serve_mail() -> Iterator[int]:
    """Its port on loopback, for the length of the block. It has a folder `Sent`."""
    started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        try:
            async with AsyncExitStack() as stack:
                port = await _start(stack)
                ended = asyncio.Event()
                started.set_result((port, asyncio.get_running_loop(), ended))
                await ended.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    port, loop, ended = started.result(_START_S)
    try:
        with open_mailbox(port) as box:
            box.create("Sent")
        yield port
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(_START_S)


async def _start(stack: AsyncExitStack) -> int:
    parser = ArgumentParser()
    for service in services.values():
        service.add_arguments(parser)
    DictBackend.add_subparser("dict", parser.add_subparsers())
    parser.set_defaults(debug=False, passlib_cfg=None)
    args = parser.parse_args(["--no-tls", "dict", "--demo-user", USER, "--demo-password", PASSWORD])
    quick = BuiltinHash(rounds=1)
    backend, config = await DictBackend.init(args, hash_context=quick, invalid_user_sleep=0.0)
    config.apply_context()
    await backend.start(stack)
    callback = ProxyProtocolReader(config.proxy_protocol).get_callback(IMAPServer(backend.login, config))
    server = await asyncio.start_server(callback, "127.0.0.1", 0)
    await stack.enter_async_context(server)
    port: int = server.sockets[0].getsockname()[1]
    return port


def open_mailbox(port: int, password: str = PASSWORD) -> imaplib.IMAP4:
    """A connection that is logged in."""
    box = imaplib.IMAP4("127.0.0.1", port, timeout=_START_S)
    try:
        box.login(USER, password)
    except imaplib.IMAP4.error:
        box.shutdown()
        raise
    return box
