"""The proxy as a program: a relay between this process's stdin and stdout and a server that it starts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
from msgspec import Struct

from ..errors import BadInput
from ..store.store import open_store
from ..tools.canonical import digest
from .configuration import ProxyConfiguration, ToolRule, VerifyByTool
from .pipes import OwnPipes
from .proxy_ledger import ProxyLedger
from .relay import Relay
from .server import find_server
from .server_address import ServerAddress
from .tool_catalogue import ToolCatalogue
from .verify_by_tool import make_verify

log = logging.getLogger("holdfast")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,39}")


class ProxyOptions(Struct, frozen=True, kw_only=True):
    """What a proxy is started with. `load_function` gives what `verify = "module:function"` names."""

    name: str
    store: str
    command: Sequence[str] = ()
    address: ServerAddress | None = None
    """Where the server is, if no command starts it."""
    configuration: ProxyConfiguration = ProxyConfiguration()
    load_function: Callable[[str], Callable[..., Any]]

    def __post_init__(self) -> None:
        check_server_name(self.name)


def check_server_name(name: str) -> str:
    """The name of a server, or `BadInput`: it is a part of the ids of sessions."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"--name {name!r} is no name for a server: up to 40 letters, digits, _ and -")
    return name


async def run_stdio_proxy(options: ProxyOptions, *, source: int, sink: int) -> int:
    """Relay between a client and the server until one of them is gone; the exit code of the server.

    `source` and `sink` are the descriptors that the client writes to and reads from. Cancelled, it records
    calls under way as in doubt, and ends the server.
    """
    async with open_store(options.store) as store, find_server(options.command, options.address) as server:
        relay = make_relay(options, client=OwnPipes(source, sink), server=server.pipes)
        where = options.command if options.address is None else (options.address.url,)
        ledger = ProxyLedger(
            store,
            url=options.store,
            name=options.name,
            sign=digest(*where),
            make_body=relay.make_body,
            elicit=relay.elicit,
        )
        try:
            await relay.run(ledger)
            await server.let_end()
        finally:
            with anyio.CancelScope(shield=True):
                code = await server.end()
                await ledger.aclose()
        return code


def make_relay(options: ProxyOptions, *, client: Any, server: Any) -> Relay:
    """The relay between two pipes."""

    def find_verify(rule: ToolRule) -> Callable[..., Any] | None:
        if isinstance(rule.verify, VerifyByTool):
            return make_verify(rule.verify, lambda name, args: relay.ask_tool(name, args))
        return None if rule.verify is None else options.load_function(rule.verify)

    relay = Relay(client, server, ToolCatalogue(options.configuration, find_verify))
    return relay
