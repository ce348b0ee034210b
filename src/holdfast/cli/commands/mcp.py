"""`holdfast mcp`: commands for MCP servers. `holdfast mcp proxy` runs one behind a ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ..mcp_address import HEADER_HELP, URL_HELP, find_address
from .mcp_check import check, load_verify_functions
from .mcp_wrap import wrap

if TYPE_CHECKING:
    from ...mcp_proxy.stdio_proxy import ProxyOptions

_STORE_HELP = (
    "Where calls are on record: sqlite:PATH, dir:PATH or postgresql://…. By default HOLDFAST_STORE, or mcp.db"
    " in the data directory of this user."
)


def proxy(
    *command: Annotated[str, Parameter(help="The server's command, after --.")],
    name: Annotated[str, Parameter(help="The server's name: what has the same one shares a ledger.")],
    store: Annotated[str | None, Parameter(env_var="HOLDFAST_STORE", help=_STORE_HELP)] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file: what the server's tools do.")] = None,
    url: Annotated[str | None, Parameter(help=URL_HELP)] = None,
    header: Annotated[
        list[str] | None, Parameter(help=HEADER_HELP, negative="", consume_multiple=False)
    ] = None,
) -> int:
    """Run an MCP server behind a ledger of its calls, in the place of the server itself.

    Give this command to an MCP client instead of the server's. What the client and the server say passes
    untouched. But each call of a tool that acts is on record before the server sees it, and its outcome
    before the client does. A call that is sent again because its answer was lost is given that answer, or the
    client is told that it is in doubt, with the command that settles it.
    """
    from ...mcp_proxy.configuration import ProxyConfiguration, read_configuration
    from ...mcp_proxy.data_directory import absolute_url, default_store
    from ...mcp_proxy.stdio_proxy import ProxyOptions, check_server_name

    address = find_address(command, url, header, "holdfast mcp proxy --name git")
    check_server_name(name)
    configuration = ProxyConfiguration() if config is None else read_configuration(config)
    functions = {} if config is None else load_verify_functions(configuration, config)
    options = ProxyOptions(
        name=name,
        store=absolute_url(store) if store else default_store(),
        command=command,
        address=address,
        configuration=configuration,
        load_function=functions.__getitem__,
    )
    return _run(options)


def _run(options: ProxyOptions) -> int:
    import os
    import signal
    import sys

    import anyio

    from ...mcp_proxy.stdio_proxy import run_stdio_proxy

    # What else prints, such as a verify hook, must not print between the messages.
    sys.stdout.flush()
    sink = os.dup(1)
    os.dup2(2, 1)
    codes: list[int] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:

            async def stop_on_signal() -> None:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
                    async for one in received:
                        codes.append(128 + one)
                        tasks.cancel_scope.cancel()
                        return

            tasks.start_soon(stop_on_signal)
            codes.append(await run_stdio_proxy(options, source=0, sink=sink))
            tasks.cancel_scope.cancel()

    anyio.run(main)
    return codes[0]


COMMANDS: dict[str, Callable[..., Any]] = {"proxy": proxy, "wrap": wrap, "check": check}
"""The commands of `holdfast mcp`."""
EXAMPLES = {
    "proxy": (
        "holdfast mcp proxy --name git -- uvx mcp-server-git",
        "holdfast mcp proxy --name files -- npx -y @modelcontextprotocol/server-filesystem /srv/files",
        "holdfast mcp proxy --name crm --url https://crm.example/mcp --header Authorization=CRM_TOKEN",
    ),
    "wrap": (
        "holdfast mcp wrap claude-desktop",
        "holdfast mcp wrap .mcp.json --only git --yes",
        "holdfast mcp wrap .mcp.json --undo --yes",
    ),
    "check": ("holdfast mcp check -- uvx mcp-server-git", "holdfast mcp check --json -- uvx mcp-server-git"),
}


def make_mcp_app(flow: Callable[[str], str], **settings: Any) -> App:
    """The commands as a part of the command line. `flow` wraps their help."""
    app = App(name="mcp", help="Run MCP servers behind a ledger of their calls.", **settings)
    for place, (name, command) in enumerate(COMMANDS.items()):
        command.__doc__ = flow(command.__doc__ or "")
        lines = "\n".join(f"  {line}" for line in EXAMPLES[name])
        app.command(
            command,
            name=name,
            sort_key=place,
            help_epilogue=f"Examples:\n\n{lines}\n\nExit codes: those of the server, or holdfast --help",
        )
    return app
