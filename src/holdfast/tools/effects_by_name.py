"""`effects={…}`: declare tools by their names, for tools that cannot be decorated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from re import sub
from typing import Any, Final, Literal, TypeAlias, Unpack

from msgspec import Struct

from ..errors import BadInput
from ..messages import Json
from ..suggestions import closest
from .declaration import (
    AnyTool,
    CallOptions,
    EffectOptions,
    SideEffects,
    Tool,
    check_side_effects,
    tool,
    warn_undeclared,
)
from .schema import parameters_of

log = logging.getLogger("holdfast")


class Declaration(Struct, frozen=True):
    """What a tool does to the world, said apart from the tool. Made by `pure`, `read`, `write`, `mutate`."""

    options: Mapping[str, Any]
    """Those of `holdfast.tool`."""

    @property
    def runs_again(self) -> bool:
        """Whether a call that a crash cut off is made again without a question."""
        effects = check_side_effects("a declaration", self.options["side_effects"])
        return "mutate" not in effects or bool(self.options.get("idempotent"))


ToolEffects: TypeAlias = SideEffects | Literal["pure"] | Declaration
"""What a name or a glob in `effects={…}` may be given."""
UNDECLARED: Final = Declaration({"side_effects": "mutate", "scope": "call"})
"""What a tool without a declaration counts as."""


def from_hints(
    *,
    reads_only: bool | None,
    is_idempotent: bool | None,
    is_destructive: bool | None,
    trust: bool,
) -> Declaration | None:
    """What the hints of an MCP server say of a tool; None if they say nothing.

    That it only reads is believed of any server that was configured: at worst it runs again, as without us.
    That it may run again is believed only if the server is trusted.
    """
    if reads_only:
        return Declaration({"side_effects": "read"})
    if is_idempotent and trust:
        return Declaration({"side_effects": "write", "scope": "call"})
    if reads_only is None and is_idempotent is None and is_destructive is None:
        return None
    return Declaration({"side_effects": "mutate", "scope": "call"})


def pure(**options: Unpack[CallOptions]) -> Declaration:
    """Declare a tool that only computes: `effects={"add": pure(timeout_s=5)}`.

    Options: `retry`, `timeout_s`, `needs_approval` and `pollable`, as of `holdfast.tool`.
    """
    return Declaration(make_options("pure", (), options, CallOptions))


def read(**options: Unpack[CallOptions]) -> Declaration:
    """Declare a tool that only reads: `effects={"search_*": read(pollable=True)}`.

    Options: `retry`, `timeout_s`, `needs_approval` and `pollable`, as of `holdfast.tool`.
    """
    return Declaration(make_options("read", "read", options, CallOptions))


def write(**options: Unpack[EffectOptions]) -> Declaration:
    """Declare a tool that sets something: `effects={"save_*": write(undo=…)}`.

    Options: `scope`, `verify`, `verify_after_s`, `undo`, `idempotent`, `harmless`, `retry`, `timeout_s`,
    `needs_approval` and `pollable`, as of `holdfast.tool`.
    """
    return Declaration(make_options("write", "write", options))


def mutate(**options: Unpack[EffectOptions]) -> Declaration:
    """Declare a tool that acts, and acts again when it is run again: `effects={"pay": mutate(verify=…)}`.

    Options: `scope`, `verify`, `verify_after_s`, `undo`, `idempotent`, `harmless`, `retry`, `timeout_s`,
    `needs_approval` and `pollable`, as of `holdfast.tool`.
    """
    return Declaration(make_options("mutate", "mutate", options))


def make_options(
    function: str, side_effects: SideEffects, options: Mapping[str, Any], known: type = EffectOptions
) -> dict[str, Any]:
    """The options of `holdfast.tool` that `function(…)` was given, checked before there is a tool."""
    names = known.__annotations__
    for name in options:
        if name not in names:
            near = closest(name, names)
            hint = f"; did you mean {near}=?" if near else f"; there are {', '.join(sorted(names))}"
            raise TypeError(f"{function}() got an unexpected option {name}={hint}")
    made = {key: value for key, value in options.items() if value is not None}
    if "harmless" in made:
        made["harmless"] = tuple(made["harmless"])  # It may be read only once.
    made["side_effects"] = side_effects
    declare("tool", list_parameters(made), made)
    return made


def list_parameters(options: Mapping[str, Any]) -> list[str]:
    """The parameters that a tool must have for its hooks."""
    hooks = [hook for hook in (options.get("verify"), options.get("undo")) if hook is not None]
    listed = [[one.name for one in parameters_of(hook) if one.kind is not one.VAR_KEYWORD] for hook in hooks]
    # One that takes any argument lists none.
    return max(listed, key=lambda names: len(names), default=[])


def declare(
    name: str,
    parameters: Iterable[str],
    options: Mapping[str, Any],
    *,
    schema: Mapping[str, Json] | None = None,
    description: str = "",
) -> AnyTool:
    """A tool without a body: each call brings one. Its name may have characters that ours have not.

    `schema` says more than `parameters`, and stands in their place.
    """

    def body(**args: Any) -> None:
        raise AssertionError("each call brings its own body")

    plain: dict[str, Json] = {"type": "object", "properties": {one: {} for one in parameters}}
    given = {key: value for key, value in options.items() if value is not None}
    declare_body = tool(
        name=_plain(name), description=description, schema=plain if schema is None else schema, **given
    )
    made: AnyTool = declare_body(body)
    made.name = name
    return made


def _plain(name: str) -> str:
    kept = sub(r"[^A-Za-z0-9_.-]", "_", name)
    return (kept if kept[:1].isalpha() or kept[:1] == "_" else f"t_{kept}")[:64]


class EffectsByName:
    """Declarations by the names of tools, or by globs (`search_*`).

    A tool's own name wins. Of several globs that match, the one with the most literal characters wins, and of
    equal ones the first. Both win over what the tool itself declares. A glob without a literal character,
    such as `*`, is for the tools that declare nothing.
    """

    def __init__(self, given: Mapping[str, object] | None) -> None:
        if not isinstance(given, Mapping | None):
            raise BadInput(
                f'effects={given!r}: it has the names of tools and what they do, as {{"search_*": "read"}}'
            )
        self._declared = {name: as_declaration(name, value) for name, value in (given or {}).items()}
        # Sorting keeps the order of equal ones.
        self._globs = sorted(filter(_is_glob, self._declared), key=_count_literals, reverse=True)
        self._warned: set[str] = set()
        self._covered: dict[str, list[str]] = {}
        """Tools that a glob such as `*` covers, as long as no warning has named them."""

    def find(self, name: str, *, is_declared: bool) -> Declaration | None:
        """The declaration for a tool, which may have one of its own."""
        key = self._find_key(name, is_declared)
        if key is None:
            return None
        found = self._declared[key]
        if key != name and _is_bare(key) and found.runs_again and name not in self._warned:
            self._warned.add(name)
            self._covered.setdefault(key, []).append(name)
        return found

    def _find_key(self, name: str, is_declared: bool) -> str | None:
        if name in self._declared:
            return name
        globs = (one for one in self._globs if not (is_declared and _is_bare(one)))
        return next((glob for glob in globs if fnmatchcase(name, glob)), None)

    def get_undeclared(self, name: str, how: str, tools: Collection[str] | None = None) -> Declaration:
        """What a tool that declares nothing counts as, with a warning; `how` says what to write for it.

        If there are only these `tools`, the warning also has a name in `effects` that may mean this one.
        """
        unmatched = [] if tools is None else self._list_unmatched(tools)
        near = closest(name, (one for one in unmatched if not _is_glob(one)))
        hint = "" if near is None else f" effects={{…}} has {near!r}: did you mean {name!r}?"
        warn_undeclared(name, UNDECLARED.options["scope"], f"{how}.{hint}")
        return UNDECLARED

    def apply(self, given: Callable[..., Any] | AnyTool, how: str) -> AnyTool:
        """One of our tools, or a function as one, with the declaration that is here for it."""
        if isinstance(given, Tool):
            found = self.find(given.name, is_declared=given.is_declared)
            return given if found is None else _redeclare(given, found)
        if not callable(given):
            raise BadInput(f"{given!r} is not a tool: tools are functions, declared with @tool or plain")
        name = str(getattr(given, "__name__", ""))
        found = self.find(name, is_declared=False)
        if found is None:
            found = self.get_undeclared(name, how) if name else UNDECLARED
        made: AnyTool = tool(**found.options)(given)
        made.is_declared = found is not UNDECLARED
        return made

    def warn_of_covered(self) -> None:
        """Warn of tools that only `*` covers, if it says that they may run again; of each tool once."""
        covered, self._covered = self._covered, {}
        for glob, names in covered.items():
            log.warning(
                "effects={%r: …} covers %s: they are run again after a crash. "
                'Give those that act a "mutate" of their own.',
                glob,
                ", ".join(sorted(names)),
            )

    def check_names(self, tools: Collection[str]) -> None:
        """Refuse names that no tool has, and warn of globs that match none; `tools` are all there are."""
        for name in self._list_unmatched(tools):
            if not _is_glob(name):
                raise BadInput(self._explain(name, tools))
        self.warn_of_unmatched(tools)

    def warn_of_unmatched(self, tools: Collection[str]) -> None:
        """Warn of names and globs that no tool has; there may be other tools at other times."""
        for name in self._list_unmatched(tools):
            log.warning("%s", self._explain(name, tools))

    def _list_unmatched(self, tools: Collection[str]) -> list[str]:
        return [
            name
            for name in self._declared
            if name not in tools
            and not (_is_glob(name) and any(fnmatchcase(one, name) for one in tools))
            and not _is_bare(name)  # That all tools declare something is no mistake.
        ]

    def _explain(self, name: str, tools: Collection[str]) -> str:
        near = None if _is_glob(name) else closest(name, tools)
        what = f"matches no tool; there are {sorted(tools)}"
        return f"effects={{{name!r}: …}} {what}" + ("" if near is None else f". Did you mean {near!r}?")


def as_declaration(name: object, value: object) -> Declaration:
    """What `effects={name: value}` says."""
    if isinstance(name, str) and isinstance(value, Declaration):
        return value
    if not isinstance(name, str) or isinstance(value, Mapping | bytes) or not isinstance(value, Collection):
        raise BadInput(
            f'effects={{{name!r}: {value!r}}}: give a name or a glob one of "pure", "read", "write" and '
            '"mutate", or what the functions of these names return, as in {"pay": mutate(verify=…)}'
        )
    words = () if value == "pure" else value
    return Declaration({"side_effects": check_side_effects(f"effects={{{name!r}: …}}", words)})


def _redeclare(given: AnyTool, declaration: Declaration) -> AnyTool:
    declared = declare(given.name, given.arguments.names, declaration.options)
    made = declared.with_body(given.body, given.arguments)
    made.function, made.description = given.function, given.description
    return made


def _is_glob(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _count_literals(glob: str) -> int:
    """How many characters of a glob stand for themselves."""
    return len(sub(r"\[[^\]]*\]|[*?]", "", glob))


def _is_bare(glob: str) -> bool:
    """True for `*` and the like: they say nothing about the names that they match."""
    return _is_glob(glob) and not _count_literals(glob)
