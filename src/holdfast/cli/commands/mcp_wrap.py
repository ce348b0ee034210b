"""`holdfast mcp wrap`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import Yes

if TYPE_CHECKING:
    from pathlib import Path

    from ..mcp_clients import Rewritten, ServerChange


def wrap(
    client: Annotated[str, Parameter(help="A client or a file: see above.")],
    /,
    *,
    undo: bool = False,
    only: Annotated[tuple[str, ...], Parameter(name="--only", consume_multiple=False)] = (),
    yes: Yes = False,
    as_json: Annotated[bool, Parameter(name="--json", help="Print one JSON object.")] = False,
) -> None:
    """Put the MCP servers of a client behind the proxy. Shows the difference, and asks first.

    Known clients: claude-desktop, claude-code, cursor, vscode, windsurf, gemini-cli. Any other file that
    lists servers as they do is named by its path, such as .vscode/mcp.json or .mcp.json of a project.

    Only the commands and addresses of the servers change; everything else in the file stays as it is. A copy
    of the file as it was is kept beside it, as FILE.before-holdfast. The client must be started again.

    Parameters
    ----------
    undo
        Take it back: the servers get their own commands and addresses again, exactly as they were.
    only
        Only the server with this name; may be given several times.
    """
    from shlex import quote

    from ..console import confirm, print_json, print_text, say
    from ..edit_file import back_up, list_backups, read_file, replace_file

    path = _find_file(client)
    read = read_file(path)
    rewritten = _rewrite(read.path, read.data, undo, only)
    changed = [one for one in rewritten.changes if one.action != "left"]
    if not as_json:
        print_text(str(path))
        for one in rewritten.changes:
            print_text(_show(one), lines=True)
    elif changed and not yes:
        # What is asked about is shown all the same, beside the object.
        say("\n".join([str(path), *map(_show, rewritten.changes)]))
    backup: Path | None = None
    if changed:
        confirm(f"Write this to {path}?", yes=yes)
        backup = None if undo else back_up(read)
        replace_file(read, rewritten.text.encode("utf-8", "surrogatepass"))
    if undo:
        for copy in list_backups(read.path):
            if changed and copy.read_bytes() == rewritten.text.encode():
                copy.unlink()
                break
    if as_json:
        servers = [
            {
                "name": one.server,
                "action": one.action,
                "why": one.why,
                "before": one.before,
                "after": one.after,
            }
            for one in rewritten.changes
        ]
        print_json({"file": str(path), "backup": backup and str(backup), "servers": servers})
    elif not changed:
        say("nothing was changed")
    elif undo:
        say(f"wrote {path}. Start the client again")
    else:
        say(f"wrote {path}; as it was, it is in {backup}. Start the client again")
        say(f"to take it back: holdfast mcp wrap {quote(client)} --undo")


def _find_file(given: str) -> Path:
    import os
    import sys
    from pathlib import Path

    from ...suggestions import closest
    from ..exit_codes import Exit, Stop
    from ..mcp_clients import CLIENTS, find_client_file

    if given in CLIENTS:
        path = find_client_file(given, platform=sys.platform, environment=os.environ)
        if not path.exists():
            raise Stop(
                Exit.NOT_FOUND,
                f"{CLIENTS[given].name} has no list of servers of yours: there is no {path}. If it is "
                "elsewhere, name that file",
            )
        return path
    path = Path(given)
    if not path.is_file():
        near = closest(given, CLIENTS)
        hint = f"; did you mean {near}?" if near else f"; known clients are {', '.join(CLIENTS)}"
        raise Stop(Exit.NOT_FOUND, f"there is no file {given}, and no client of that name{hint}")
    return path


def _rewrite(path: Path, data: bytes, undo: bool, only: tuple[str, ...]) -> Rewritten:
    from ...suggestions import closest
    from ..exit_codes import Exit, Stop
    from ..json_text import BadJson
    from ..mcp_clients import find_holdfast, list_server_names, unwrap_servers, wrap_servers

    try:
        text = data.decode()
        names = list_server_names(text)
        for name in only:
            if name not in names:
                near = closest(name, names)
                hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names) or 'none'}"
                raise Stop(Exit.NOT_FOUND, f"{path} lists no server {name!r}; {hint}")
        if not names:
            raise Stop(
                Exit.NOT_FOUND, f"{path} lists no servers: it has no mcpServers (or servers) with names"
            )
        if undo:
            return unwrap_servers(text, only=only)
        is_gemini = path.parent.name == ".gemini"
        return wrap_servers(
            text, find_holdfast(), only=only, url_is_sse=is_gemini, why_no_addresses=_find_missing()
        )
    except UnicodeDecodeError as error:
        raise Stop(Exit.ERROR, f"{path} is not UTF-8 (byte {error.start}); nothing was done") from None
    except BadJson as error:
        raise Stop(
            Exit.ERROR, f"{path} is not JSON that can be changed safely: {error}; nothing was done"
        ) from None


def _find_missing() -> str:
    """Why the proxy cannot go to addresses here, or an empty text."""
    from ...errors import MissingExtra
    from ...mcp_proxy.server import check_addresses

    try:
        check_addresses()
    except MissingExtra as error:
        return str(error)
    return ""


def _show(change: ServerChange) -> str:
    from shlex import join

    from ..console import visible

    # A name or an argument with a line end in it must not look like a line of ours.
    server = visible(change.server)
    if change.action == "left":
        return f"  {server}: left as it is, because {visible(change.why)}"
    return f"  {server}\n  - {visible(join(change.before))}\n  + {visible(join(change.after))}"
