"""`holdfast mcp check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ...redact import show_address
from ..mcp_address import HEADER_HELP, URL_HELP, find_address

if TYPE_CHECKING:
    from ...mcp_proxy.configuration import ProxyConfiguration, ToolRule
    from ...mcp_proxy.server_address import ServerAddress
    from ...mcp_proxy.tool_catalogue import ProxyTool


def check(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True, help="What starts the server, after --.")],
    config: Path | None = None,
    url: Annotated[str | None, Parameter(help=URL_HELP)] = None,
    header: Annotated[
        list[str] | None, Parameter(help=HEADER_HELP, negative="", consume_multiple=False)
    ] = None,
    as_json: Annotated[bool, Parameter(name="--json", help="Print one JSON object.")] = False,
) -> None:
    """Ask an MCP server for its tools, and say what the proxy would treat each of its tools as, and why.

    No tool is called. A tool that only reads runs again after a crash. One that acts is in doubt, unless the
    configuration says how to find out what happened (verify).

    Parameters
    ----------
    config
        The configuration of the proxy, in TOML. A name in it that no tool has is an error, and so is a
        function that cannot be loaded, or does not take the arguments of the tool.
    """
    import anyio

    from ...mcp_proxy.configuration import ProxyConfiguration, read_configuration
    from ..exit_codes import Exit, Stop

    address = find_address(command, url, header, "holdfast mcp check")
    configuration = ProxyConfiguration() if config is None else read_configuration(config)
    functions = {} if config is None else load_verify_functions(configuration, config)
    tools, unmatched = anyio.run(_ask, command, address, configuration, functions)
    if as_json:
        _print_json(
            {"command": command} if address is None else {"url": show_address(address.url)}, tools, unmatched
        )
    else:
        _print_table(tools)
    if unmatched:
        raise Stop(Exit.ERROR, f"{config}: {'; '.join(unmatched)}")


def load_verify_functions(configuration: ProxyConfiguration, path: Path) -> dict[str, Callable[..., Any]]:
    """What `verify = "module:function"` names in a configuration. Modules and files are looked up in its
    folder: clients start the proxy in any directory."""
    from ..load_agent import load_function

    named = [rule.verify for rule in configuration.rules if isinstance(rule.verify, str)]
    return {target: load_function(target, folder=path.parent) for target in named}


async def _ask(
    command: tuple[str, ...],
    address: ServerAddress | None,
    configuration: ProxyConfiguration,
    functions: Mapping[str, Callable[..., Any]],
) -> tuple[list[ProxyTool], list[str]]:
    from ...mcp_proxy.server_listing import list_tools
    from ...mcp_proxy.tool_catalogue import ToolCatalogue

    def find_verify(rule: ToolRule) -> Callable[..., Any] | None:
        if isinstance(rule.verify, str):
            return functions[rule.verify]
        return None if rule.verify is None else _never_asked

    catalogue = ToolCatalogue(configuration, find_verify)
    catalogue.learn({"tools": list(await list_tools(command, address))})
    names = catalogue.list_names()
    return [catalogue.get_tool(name) for name in names], catalogue.list_unmatched()


async def _never_asked(**args: object) -> None:
    """Stand for the verify hook of a tool: nothing is settled here."""


def _after_a_crash(tool: ProxyTool) -> str:
    if "mutate" not in tool.tool.side_effects or tool.tool.idempotent_s is not None:
        return "runs again"
    return "verify is asked" if tool.tool.verify is not None else "in doubt"


def _print_table(tools: list[ProxyTool]) -> None:
    from ..console import make_table, say, stdout

    if not tools:
        say("the server has no tools")
        return
    table = make_table("tool", "counts as", "cut off by a crash", "why…")
    for tool in tools:
        table.add_row(tool.name, _name_effects(tool), _after_a_crash(tool), tool.why)
    stdout().print(table)


def _name_effects(tool: ProxyTool) -> str:
    return "/".join(sorted(tool.tool.side_effects)) or "pure"


def _print_json(server: dict[str, object], tools: list[ProxyTool], unmatched: list[str]) -> None:
    from ..console import print_json

    shown = [
        {
            "name": tool.name,
            "side_effects": _name_effects(tool),
            "scope": tool.scope,
            "after_a_crash": _after_a_crash(tool),
            "why": tool.why,
        }
        for tool in tools
    ]
    print_json({**server, "tools": shown, "unmatched": unmatched})
