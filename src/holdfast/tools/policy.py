"""Policies: allow, deny or ask, by the name of a tool, its side effects and its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..errors import BadInput
from ..messages import Json
from ..system import files
from .declaration import AnyTool, SideEffects, check_side_effects

PolicyDecision: TypeAlias = Literal["allow", "deny", "ask"]
Condition: TypeAlias = Callable[[Mapping[str, Json]], bool]


class Rule(Struct, frozen=True, kw_only=True):
    """A decision for the calls that it matches: by a pattern of tool names, by any of the side effects, by a
    condition on the arguments."""

    decision: PolicyDecision
    tool: str = "*"
    side_effects: frozenset[str] = frozenset()
    when: Condition | None = None
    why: str = ""

    def matches(self, tool: AnyTool, args: Mapping[str, Json]) -> bool:
        """Whether this rule decides about the call."""
        return (
            fnmatchcase(tool.name, self.tool)
            and (not self.side_effects or bool(self.side_effects & tool.side_effects))
            and (self.when is None or self.when(args))
        )


def _rule(
    decision: PolicyDecision, tool: str, side_effects: SideEffects, when: Condition | None, why: str
) -> Rule:
    effects = check_side_effects("a rule", side_effects)
    return Rule(decision=decision, tool=tool, side_effects=effects, when=when, why=why)


def allow(
    tool: str = "*",
    *,
    side_effects: SideEffects = (),
    when: Condition | None = None,
    why: str = "",
) -> Rule:
    """Allow these calls."""
    return _rule("allow", tool, side_effects, when, why)


def deny(
    tool: str = "*",
    *,
    side_effects: SideEffects = (),
    when: Condition | None = None,
    why: str = "",
) -> Rule:
    """Refuse these calls; the model is told why."""
    return _rule("deny", tool, side_effects, when, why)


def ask(
    tool: str = "*",
    *,
    side_effects: SideEffects = (),
    when: Condition | None = None,
    why: str = "",
) -> Rule:
    """Let these calls wait for a person's approval."""
    return _rule("ask", tool, side_effects, when, why)


def paths_inside(root: str | Path, *arguments: str, tool: str = "*") -> Rule:
    """Refuse calls in which one of these arguments is a path outside `root`.

    Symbolic links and `..` are followed first, and a relative path begins in the working directory, as it
    will when the tool opens it. A link that changes between this check and the tool's
    own use of the path is not noticed.
    """
    if not arguments or not all(isinstance(one, str) for one in arguments):
        raise BadInput("paths_inside() needs the names of the arguments that are paths")
    base = files.real_path(Path(root).expanduser())

    def outside(args: Mapping[str, Json]) -> bool:
        return any(not _is_inside(base, value) for name in arguments for value in _paths(args.get(name)))

    return deny(tool, when=outside, why=f"only paths inside {base} are allowed")


def _paths(value: Json) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_inside(base: str, path: object) -> bool:
    if not isinstance(path, str) or "\0" in path:
        return False
    # As the tool will open it: relative to the working directory.
    real = files.real_path(os.path.expanduser(path))
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


class Policy:
    """Rules in order: the first that matches decides, else `default`."""

    def __init__(self, *rules: Rule, default: PolicyDecision = "allow") -> None:
        if default not in ("allow", "deny", "ask"):
            raise BadInput(f"a policy's default is allow, deny or ask, not {default!r}")
        self.rules, self.default = rules, default

    def decide(self, tool: AnyTool, args: Mapping[str, Json]) -> tuple[PolicyDecision, str]:
        """What to do with the call, and why."""
        for rule in self.rules:
            if rule.matches(tool, args):
                return rule.decision, rule.why or _because(rule.decision, tool)
        return self.default, "" if self.default == "allow" else _because(self.default, tool)


def _because(decision: PolicyDecision, tool: AnyTool) -> str:
    return f"{tool.name} needs approval here" if decision == "ask" else f"{tool.name} is not allowed here"
