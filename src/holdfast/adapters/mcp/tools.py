"""The tools of MCP servers as tools of ours."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, overload

import anyio
import mcp_types as types
from mcp.client.session import ElicitationFnT, ListRootsFnT, SamplingFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...errors import BadInput, Misuse, NotFound
from ...limits import MCP_OPEN_S, MCP_REPORTS_MAX, MCP_TOOL_BYTES_MAX, MCP_TOOLS_MAX, TOOL_TIMEOUT_S
from ...messages import Json
from ...suggestions import closest
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, Hook
from ...tools.effects_by_name import (
    UNDECLARED,
    Declaration,
    EffectsByName,
    ToolEffects,
    declare,
    from_hints,
)
from ...tools.foreign_schema import ForeignArguments
from .connection import Callbacks, Connection, OnProgress
from .errors import McpToolError, ToolDidNothing
from .results import as_error_text, as_value
from .servers import AnyServer, KnownServer, as_server, name_server

log = logging.getLogger("holdfast")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NAME_CHARS_MAX: Final = 64
_DIGEST_CHARS: Final = 6
_HIDDEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
"""Characters that move a cursor, turn the direction of text, or cannot be seen."""
_REPORT_CHARS_MAX: Final = 500
KEY, FENCE, ATTEMPT = "holdfast/key", "holdfast/fence", "holdfast/attempt"
"""In `_meta` of each call: the effect's key, the fence of the session, and which attempt it is."""


def mcp_tools(
    server: AnyServer | Mapping[str, AnyServer],
    *,
    effects: Mapping[str, ToolEffects] | None = None,
    trust: bool = False,
    prefix: bool | str = False,
    timeout_s: float = TOOL_TIMEOUT_S,
    open_timeout_s: float = MCP_OPEN_S,
    protocol: str = "auto",
    on_change: Callable[[McpTools], object] | None = None,
    sampling_callback: SamplingFnT | None = None,
    elicitation_callback: ElicitationFnT | None = None,
    list_roots_callback: ListRootsFnT | None = None,
) -> McpTools:
    """Make tools of what an MCP server offers: `async with mcp_tools(["uvx", "mcp-server-git"]) as tools`.

    `server`: a command, a URL, `HttpServer`, `StdioServerParameters`, or a server in this process; or several
    of them by name. `effects`: what the tools do, by name or glob; it wins over the hints of the server.
    `trust`: believe `idempotentHint`, too. `prefix`: a text before each name; True for the server's name.
    `timeout_s`: of a call. `protocol`: "auto", "legacy" or a version. `on_change` is called when a server has
    changed its tools. The callbacks are those of the `mcp` package, for servers that ask for something.
    """
    servers = _name_servers(server)
    if isinstance(prefix, str) and len(servers) > 1:
        raise BadInput(f"prefix={prefix!r} is for one server; with several, prefix=True takes their names")
    if protocol not in ("auto", "legacy", *MODERN_PROTOCOL_VERSIONS):
        known = ", ".join(("auto", "legacy", *MODERN_PROTOCOL_VERSIONS))
        raise BadInput(f"protocol={protocol!r} is not known; there are {known}")
    for name, given in (("timeout_s", timeout_s), ("open_timeout_s", open_timeout_s)):
        if not 0 < given < math.inf:
            raise BadInput(f"{name}={given} must be positive and finite")
    prefixes = {
        name: prefix if isinstance(prefix, str) else f"{_plain(name)}_" if prefix else "" for name in servers
    }
    return McpTools(
        servers,
        prefixes=prefixes,
        effects=EffectsByName(effects),
        trust=trust,
        timeout_s=timeout_s,
        open_timeout_s=open_timeout_s,
        protocol=protocol,
        on_change=on_change,
        callbacks=Callbacks(sampling_callback, elicitation_callback, list_roots_callback),
    )


def _name_servers(given: object) -> dict[str, KnownServer]:
    if not isinstance(given, Mapping):
        found = as_server(given)
        return {name_server(found): found}
    if not given:
        raise BadInput("there is no MCP server in {}")
    return {str(name): as_server(one) for name, one in given.items()}


class McpTools(Sequence[AnyTool]):
    """The tools of MCP servers, for `Agent(tools=…)` and `Registry`. Made by `mcp_tools`.

    Tools that a server adds later are added here; those that it drops are removed. A tool keeps its name, and
    is what the server lists now: schema, description and hints.
    """

    def __init__(
        self,
        servers: Mapping[str, KnownServer],
        *,
        prefixes: Mapping[str, str],
        effects: EffectsByName,
        trust: bool,
        timeout_s: float,
        open_timeout_s: float,
        protocol: str,
        on_change: Callable[[McpTools], object] | None,
        callbacks: Callbacks,
    ) -> None:
        self._prefixes, self._effects, self._trust, self._timeout_s = prefixes, effects, trust, timeout_s
        self._on_change = on_change
        self._names: dict[tuple[str, str], str] = {}
        """The names of tools by their server and their name there; also of tools that are gone."""
        self._made: dict[str, AnyTool] = {}
        """Every tool that there was, by its name."""
        self._specs: dict[str, types.Tool] = {}
        """What each of them was made of, last."""
        self._offered: dict[str, tuple[AnyTool, ...]] = {}
        """The tools of each server as it is now."""
        self._is_open = False
        self._connections = [
            Connection(
                name,
                server,
                protocol=protocol,
                open_timeout_s=open_timeout_s,
                callbacks=callbacks,
                on_change=self._take_in_change,
            )
            for name, server in servers.items()
        ]

    async def __aenter__(self) -> McpTools:
        if self._is_open:
            raise Misuse("these tools are open already; call mcp_tools again for others")
        self._is_open = True
        try:
            errors: list[Exception] = []

            async def open_one(connection: Connection) -> None:
                try:
                    await connection.open()
                except Exception as error:
                    errors.append(error)

            async with anyio.create_task_group() as tasks:
                for one in self._connections:
                    tasks.start_soon(open_one, one)
            if errors:
                raise errors[0]
            # In the order of the servers, whichever came first: names depend on it.
            for one in self._connections:
                self._take_in(one)
            self._effects.check_names([one.name for one in self])
            self._effects.warn_of_covered()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for one in self._connections:
                    tasks.start_soon(one.close)

    @overload
    def __getitem__(self, index: int) -> AnyTool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnyTool]: ...
    def __getitem__(self, index: int | slice) -> AnyTool | Sequence[AnyTool]:
        return self._list()[index]

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._list())

    def __repr__(self) -> str:
        return f"<tools {', '.join(one.name for one in self)}>"

    def get_tool(self, name: str) -> AnyTool:
        """The tool with this name, or `NotFound`. Calling it calls the server, past all gates."""
        for one in self:
            if one.name == name:
                return one
        known = [one.name for one in self]
        near = closest(name, known)
        raise NotFound(
            f"there is no tool {name!r}" + (f"; did you mean {near!r}?" if near else f"; there are {known}")
        )

    def _list(self) -> list[AnyTool]:
        return [one for tools in self._offered.values() for one in tools]

    # -- from what a server lists to tools -------------------------------------------------------------

    def _take_in_change(self, connection: Connection) -> None:
        before = [(one.name, self._specs[one.name]) for one in self._list()]
        self._take_in(connection)
        self._effects.warn_of_covered()
        after = [(one.name, self._specs[one.name]) for one in self._list()]
        if self._on_change is not None and before != after:
            self._on_change(self)

    def _take_in(self, connection: Connection) -> None:
        """Make tools of what the server listed last; those that are known stay the same objects."""
        listed = connection.listed or []
        if len(listed) > MCP_TOOLS_MAX:
            log.warning(
                "the MCP server %r lists %d tools; the first %d are used",
                connection.name,
                len(listed),
                MCP_TOOLS_MAX,
            )
        found: dict[str, AnyTool] = {}
        silent: list[str] = []
        for spec in listed[:MCP_TOOLS_MAX]:
            name = self._choose_name(connection.name, spec.name)
            if name in found:
                continue  # Listed twice: the first one counts.
            try:
                tool, is_silent = self._take_in_tool(connection, name, spec)
            except _Unusable as error:
                log.warning("a tool of the MCP server %r is left out: %s", connection.name, error)
                continue
            found[name] = tool
            if is_silent:
                silent.append(name)
        self._offered[connection.name] = tuple(found.values())
        if silent:
            log.warning(
                "tools of the MCP server %r do not say what they do to the world: %s. They are treated as "
                "side_effects='mutate', scope='call'. If one only reads, write "
                'mcp_tools(…, effects={%r: "read"}).',
                connection.name,
                ", ".join(silent),
                silent[0],
            )

    def _take_in_tool(self, connection: Connection, name: str, spec: types.Tool) -> tuple[AnyTool, bool]:
        """The tool, and whether nothing says any more, or from the beginning, what it does."""
        known = self._made.get(name)
        if known is not None and self._specs[name] == spec:
            return known, False
        description = _HIDDEN.sub("", spec.description or spec.title or "").encode(errors="replace").decode()
        if len(description.encode()) + len(spec.name.encode(errors="replace")) > MCP_TOOL_BYTES_MAX:
            raise _Unusable(f"tool {name!r}: its description is longer than {MCP_TOOL_BYTES_MAX:,} bytes")
        declaration = self._find_declaration(name, spec)
        options = {"timeout_s": self._timeout_s, **_set_options(declaration)}
        try:
            given = ForeignArguments(name, spec.input_schema, bytes_max=MCP_TOOL_BYTES_MAX)
        except BadInput as error:
            raise _Unusable(str(error)) from error
        try:
            made = declare(name, given.names, options)
        except BadInput as error:
            if known is None:
                raise
            raise _Unusable(str(error)) from error
        believes_errors = made.verify is None
        made = made.with_body(Hook(_make_body(connection, spec.name, believes_errors), True, True), given)
        made.function, made.description = _make_function(connection, spec.name), description
        made.is_declared = declaration is not UNDECLARED
        was_silent = known is not None and not known.is_declared
        if known is None:
            known = self._made[name] = made
            made.may_change = True
        else:
            arguments: Any = known.arguments
            arguments.replace(spec.input_schema)  # Tools that were declared anew elsewhere share it.
            made.arguments = arguments
            known.become(made)
        self._specs[name] = spec
        return known, declaration is UNDECLARED and not was_silent

    def _find_declaration(self, name: str, spec: types.Tool) -> Declaration:
        hints = spec.annotations or types.ToolAnnotations()
        hinted = from_hints(
            reads_only=hints.read_only_hint,
            is_idempotent=hints.idempotent_hint,
            is_destructive=hints.destructive_hint,
            trust=self._trust,
        )
        return self._effects.find(name, is_declared=hinted is not None) or hinted or UNDECLARED

    def _choose_name(self, server: str, theirs: str) -> str:
        """The name of a tool here: that of the server, where it can be one and is free.

        It depends on nothing that a restart changes, so that the calls on record keep their tool.
        """
        known = self._names.get((server, theirs))
        if known is not None:
            return known
        name = _fit(f"{self._prefixes[server]}{theirs}")
        taken = {name for (other, _), name in self._names.items() if other != server}
        if name in taken:
            name = _fit(f"{_plain(server)}_{theirs}")
        if name in taken:
            name = _with_digest(name, f"{server}\0{theirs}")
        self._names[server, theirs] = name
        return name


class _Unusable(Exception):
    """A tool cannot be offered; the text says why."""


def _set_options(declaration: Declaration) -> dict[str, Any]:
    return {key: value for key, value in declaration.options.items() if value is not None}


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def _fit(name: str) -> str:
    """The name, or one like it where it has characters that ours have not, or too many of them."""
    return name if _NAME.fullmatch(name) else _with_digest(name, name)


def _with_digest(name: str, of: str) -> str:
    digest = sha256(of.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARS]
    kept = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    kept = kept if kept[:1].isalpha() or kept[:1] == "_" else f"t_{kept}"
    return f"{kept[: _NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest}"


# -- calls ---------------------------------------------------------------------------------------------


def _make_body(connection: Connection, tool: str, believes_errors: bool) -> Callable[..., Any]:
    async def call(ctx: AnyContext, /, **arguments: Any) -> Json:
        meta: dict[str, Json] = {}
        if ctx.fence:  # Without a session, a key says nothing but what the arguments are.
            meta = {KEY: ctx.key, FENCE: ctx.fence, ATTEMPT: ctx.attempt}
        return await _call(connection, tool, arguments, meta, _reporter(ctx), believes_errors)

    return call


def _make_function(connection: Connection, tool: str) -> Callable[..., Any]:
    async def call(**arguments: Any) -> Json:
        return await _call(connection, tool, arguments, {}, None, True)

    return call


async def _call(
    connection: Connection,
    tool: str,
    arguments: Mapping[str, Json],
    meta: Mapping[str, Json],
    on_progress: OnProgress | None,
    believes_errors: bool,
) -> Json:
    result = await connection.call(tool, arguments, meta=meta, on_progress=on_progress)
    if result.is_error:
        # A tool that can be asked is asked: some fail after they have acted.
        raise (ToolDidNothing if believes_errors else McpToolError)(as_error_text(result))
    return as_value(result)


def _reporter(ctx: AnyContext) -> OnProgress:
    """Record how far a call is."""
    count = 0

    async def report(progress: float, total: float | None, message: str | None) -> None:
        nonlocal count
        count += 1
        if count <= MCP_REPORTS_MAX:
            done = f"{progress:g}" + (f"/{total:g}" if total is not None else "")
            ctx.report(f"{done} {message}"[:_REPORT_CHARS_MAX] if message else done)

    return report
