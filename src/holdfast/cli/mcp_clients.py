"""The files in which clients of MCP list their servers, and how servers are put behind the proxy there.

Only the command and the arguments of a server are changed, or its address. Everything else in the file
stays, byte for byte, and `unwrap_servers` takes back exactly what `wrap_servers` did.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Final, Literal, NamedTuple

from ..redact import show_address
from .json_text import Edit, Members, Value, apply_edits, has_comment, parse_text, skip_blank
from .mcp_addresses import ListedAddress, read_address, restore

_PROXY: Final = ("mcp", "proxy")
_HOLDFAST: Final = re.compile(r"holdfast(\[[\w,-]*\])?(\.exe)?")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,39}")
_NAME_CHARS_MAX: Final = 40
_DIGEST_CHARS: Final = 6
_SECTIONS: Final = ("mcpServers", "servers")
"""The keys under which files list servers; VS Code has the second."""


class Client(NamedTuple):
    """A program that starts MCP servers, and its file, by platform. Relative to the home directory."""

    name: str
    on_linux: str
    on_macos: str


_MACOS: Final = "Library/Application Support"
CLIENTS: Final[Mapping[str, Client]] = {
    "claude-desktop": Client(
        "Claude Desktop",
        ".config/Claude/claude_desktop_config.json",
        f"{_MACOS}/Claude/claude_desktop_config.json",
    ),
    "claude-code": Client("Claude Code", ".claude.json", ".claude.json"),
    "cursor": Client("Cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
    "vscode": Client("VS Code", ".config/Code/User/mcp.json", f"{_MACOS}/Code/User/mcp.json"),
    "windsurf": Client("Windsurf", ".codeium/windsurf/mcp_config.json", ".codeium/windsurf/mcp_config.json"),
    "gemini-cli": Client("Gemini CLI", ".gemini/settings.json", ".gemini/settings.json"),
}
"""By the name on the command line. The file of a project is named by its path."""


def find_client_file(client: str, *, platform: str, environment: Mapping[str, str]) -> Path:
    """Where a client has the servers of this user."""
    known, home = CLIENTS[client], Path(environment.get("HOME") or Path.home())
    if platform == "darwin":
        return home / known.on_macos
    first, _, rest = known.on_linux.partition("/")
    if first == ".config" and os.path.isabs(environment.get("XDG_CONFIG_HOME", "")):
        return Path(environment["XDG_CONFIG_HOME"]) / rest
    return home / known.on_linux


def find_holdfast() -> list[str]:
    """The command that starts holdfast with any working directory and PATH."""
    script = Path(sys.executable).with_name("holdfast")
    return [str(script)] if script.exists() else [sys.executable, "-m", "holdfast"]


def name_for_proxy(server: str) -> str:
    """The name of a server in its ledger: its own, or one like it where the proxy does not take that."""
    if _NAME.fullmatch(server):
        return server
    digest = sha256(server.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARS]
    kept = re.sub(r"[^A-Za-z0-9_-]", "_", server).lstrip("-_") or "server"
    return _end_with(kept, digest)


def _end_with(name: str, digest: str) -> str:
    return f"{name[: _NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest}"


class ServerChange(NamedTuple):
    """What is done about one server of a file."""

    server: str
    action: Literal["wrapped", "unwrapped", "left"]
    why: str = ""
    """Why it is left as it is."""
    before: Sequence[str] = ()
    after: Sequence[str] = ()


class Rewritten(NamedTuple):
    """A file's text, and what was changed in it."""

    text: str
    changes: list[ServerChange]


def wrap_servers(
    text: str,
    holdfast: Sequence[str],
    *,
    only: Collection[str] = (),
    url_is_sse: bool = False,
    why_no_addresses: str = "",
) -> Rewritten:
    """Put the servers that a file lists behind the proxy; all of them, or `only` these.

    Those that are behind it already are left, and so are those that the proxy cannot speak to, such as a
    `url` where the client takes it for one of the older transport (`url_is_sse`). `why_no_addresses`: why
    none with an address can be. `BadJson` if the text is not JSON, with or without comments.
    """
    edits: list[Edit] = []
    changes: list[ServerChange] = []
    servers = list(_list_servers(text))
    for server in servers:
        if only and server.name not in only:
            continue
        why = server.why_not_wrapped()
        address = None if why or server.command else read_address(text, server.value, url_is_sse=url_is_sse)
        if isinstance(address, ListedAddress) and why_no_addresses:
            address = why_no_addresses
        if why or isinstance(address, str):
            changes.append(ServerChange(server.name, "left", why or str(address)))
            continue
        name = server.choose_name(servers)
        if address is not None:
            edits.append(Edit(server.value.start, server.value.end, address.wrap(holdfast, name)))
            after = [*holdfast, *address.show_args(name)]
            changes.append(ServerChange(server.name, "wrapped", "", [show_address(address.url)], after))
            continue
        before = [server.command, *server.args]
        proxy = [*holdfast[1:], *_PROXY, "--name", name, "--"]
        edits += server.wrap(holdfast[0], proxy)
        changes.append(ServerChange(server.name, "wrapped", "", before, [holdfast[0], *proxy, *before]))
    return Rewritten(apply_edits(text, edits), changes)


def unwrap_servers(text: str, *, only: Collection[str] = ()) -> Rewritten:
    """Take back `wrap_servers`, also if the file was changed elsewhere since then."""
    edits: list[Edit] = []
    changes: list[ServerChange] = []
    for server in _list_servers(text):
        if only and server.name not in only:
            continue
        why = server.why_not_unwrapped()
        if why:
            changes.append(ServerChange(server.name, "left", why))
            continue
        if (was := server.find_address()) is not None:
            edits.append(Edit(server.value.start, server.value.end, was))
            shown = [show_address(one) if "://" in one else one for one in server.args]
            changes.append(
                ServerChange(server.name, "unwrapped", "", [server.command, *shown], ["its address"])
            )
            continue
        count = server.count_proxy_args()
        assert count is not None, "a server without them is left"
        edits += server.unwrap(count)
        before = [server.command, *server.args]
        changes.append(ServerChange(server.name, "unwrapped", "", before, before[count + 1 :]))
    return Rewritten(apply_edits(text, edits), changes)


def list_server_names(text: str) -> list[str]:
    """The servers that a file lists, behind the proxy or not."""
    return [one.name for one in _list_servers(text)]


# -- one server of a file ------------------------------------------------------------------------------


class _Server(NamedTuple):
    name: str
    text: str
    value: Value
    command_value: Value | None
    args_value: Value | None

    @property
    def command(self) -> str:
        return (
            self.command_value.data if self.command_value and isinstance(self.command_value.data, str) else ""
        )

    @property
    def args(self) -> list[str]:
        return (self.args_value.texts if self.args_value else None) or []

    def choose_name(self, servers: Sequence[_Server]) -> str:
        """The name in the ledger. If another server of the file has the same one, such as in another project,
        it ends with a digest of what starts this one: two servers must not share a ledger."""
        name = name_for_proxy(self.name)
        if all(one.identity == self.identity for one in servers if name_for_proxy(one.name) == name):
            return name
        digest = sha256("\0".join(self.identity).encode(errors="backslashreplace")).hexdigest()
        return _end_with(name, digest[:_DIGEST_CHARS])

    @property
    def identity(self) -> tuple[str, ...]:
        """What makes it the server that it is, behind the proxy or not: its command and environment, or its
        address."""
        count, start = self.count_proxy_args(), self._find_proxy()
        if start is not None and "--url" in self.args[start:-1]:
            return ("", self.args[self.args.index("--url", start) + 1])
        if not self.command:
            address = read_address(self.text, self.value)
            return ("", address.url if isinstance(address, ListedAddress) else self.name)
        words = [self.command, *self.args]
        environment = self.value.get("env")
        given = "" if environment is None else self.text[environment.start : environment.end]
        return (*(words if count is None else words[count + 1 :]), given)

    def why_not_wrapped(self) -> str:
        """Why it cannot be put behind the proxy, or an empty text."""
        if why := self._why_unknown():
            return why
        if self.count_proxy_args() is not None:
            return "it is behind the proxy already"
        if self._find_proxy() is not None:
            return "it is behind the proxy already, with its address"
        return ""

    def why_not_unwrapped(self) -> str:
        """Why there is nothing to take back, or an empty text."""
        if why := self._why_unknown():
            return why
        count = self.count_proxy_args()
        if count is None and self._find_proxy() is not None:
            changed = (
                "it was written by hand, or changed since it was put behind the proxy: take it back by hand"
            )
            return "" if self.find_address() is not None else changed
        if count is None:
            return "it is not behind the proxy"
        if any(has_comment(part) for part in self._split_removed(count)):
            return "a comment among the arguments of the proxy would be lost; remove it first"
        return ""

    def _why_unknown(self) -> str:
        if not isinstance(self.value.data, Members):
            return "it is no object"
        if self.command_value is None:
            return ""
        if not self.command:
            return "its command is no text"
        if self.args_value is not None and self.args_value.texts is None:
            return "its arguments are no list of texts"
        return ""

    def find_address(self) -> str | None:
        """The server as it was, if it had an address before it was put behind the proxy."""
        start = self._find_proxy()
        if start is None:
            return None
        name, names = name_for_proxy(self.name), self.args[start:]
        given = names[names.index("--name") + 1] if "--name" in names[:-1] else name
        if re.fullmatch(re.escape(_end_with(name, "")) + f"[0-9a-f]{{{_DIGEST_CHARS}}}", given):
            name = given
        return restore(self.text, self.value, [self.command, *self.args[:start]], name)

    def _find_proxy(self) -> int | None:
        """Where the arguments of holdfast begin, if it is holdfast that is started."""
        words = [self.command, *self.args]
        for at, word in enumerate(words):
            if _HOLDFAST.fullmatch(PurePath(word).name) and tuple(words[at + 1 : at + 3]) == _PROXY:
                return at
        return None

    def count_proxy_args(self) -> int | None:
        """How many arguments stand before the server's own command; None if it is not behind the proxy."""
        start = self._find_proxy()
        if start is None or "--" not in self.args[start:]:
            return None
        count = self.args.index("--", start) + 1
        return count if count < len(self.args) else None

    def wrap(self, holdfast: str, proxy: Sequence[str]) -> list[Edit]:
        """The server's own command becomes the first argument after those of the proxy, as it is written."""
        command = self.command_value
        assert command is not None
        written = ", ".join([*map(_write, proxy), self.text[command.start : command.end]])
        edits = [Edit(command.start, command.end, _write(holdfast))]
        if self.args_value is None:
            # Right behind the command: nothing can be between the two.
            edits[0] = edits[0]._replace(text=f"{edits[0].text}{_NEW_ARGS}{written}]")
        elif self._arguments:
            first = self._arguments[0].start
            edits.append(Edit(first, first, f"{written}, "))
        else:
            # The space says that there was a list, and it was empty.
            edits.append(Edit(self.args_value.start + 1, self.args_value.start + 1, f"{written} "))
        return edits

    def unwrap(self, count: int) -> list[Edit]:
        """The reverse of `wrap`."""
        command, args, own = self.command_value, self.args_value, self._arguments[count]
        assert command is not None
        assert args is not None
        restored = Edit(command.start, command.end, self.text[own.start : own.end])
        was_missing = (
            self.text[command.end : self._arguments[0].start] == _NEW_ARGS
            and own.end + 1 == args.end
            and len(self._arguments) == count + 1
        )
        if was_missing:
            return [restored._replace(end=args.end)]
        return [restored, Edit(self._arguments[0].start, self._find_removed_end(count), "")]

    @property
    def _arguments(self) -> list[Value]:
        data = self.args_value.data if self.args_value else None
        return data if isinstance(data, list) else []

    def _find_removed_end(self, count: int) -> int:
        """Where the part ends that `unwrap` removes from the arguments."""
        if len(self._arguments) > count + 1:
            return self._arguments[count + 1].start
        end = self._arguments[count].end
        comma = skip_blank(self.text, end)
        if self.text.startswith(",", comma):
            return comma + 1
        return end + self.text.startswith(" ", end)

    def _split_removed(self, count: int) -> Iterator[str]:
        """What stands between the values in that part."""
        values = self._arguments[: count + 1]
        for value, following in pairwise(values):
            yield self.text[value.end : following.start]
        yield self.text[values[-1].end : self._find_removed_end(count)]


_NEW_ARGS: Final = ', "args": ['
"""What is put between the command and the first argument of a server that had none."""


def _write(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _list_servers(text: str) -> Iterator[_Server]:
    for section in _list_sections(parse_text(text)):
        if not isinstance(section.data, Members):
            continue
        for name, _ in section.data.members:
            value = section.get(name)
            assert value is not None
            yield _Server(name, text, value, value.get("command"), value.get("args"))


def _list_sections(root: Value) -> Iterator[Value]:
    """The objects that list servers: of the user, and of each project in the file of Claude Code."""
    for key in _SECTIONS:
        if (section := root.get(key)) is not None:
            yield section
    projects = root.get("projects")
    if projects is not None and isinstance(projects.data, Members):
        for _, project in projects.data.members:
            if (section := project.get(_SECTIONS[0])) is not None:
                yield section
