"""The tools of the server behind the proxy: what each does to the world, and why that is assumed."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..limits import MCP_CALL_S, MCP_TOOL_BYTES_MAX, MCP_TOOLS_MAX
from ..messages import Json
from ..suggestions import closest
from ..tools.declaration import AnyTool, SideEffects
from ..tools.effects_by_name import declare, from_hints
from ..tools.foreign_schema import ForeignArguments
from ..tools.retry import Retry
from ..tools.schema import ArgumentProblem, Arguments, BadArguments, PartlyRecorded, as_object
from .configuration import ProxyConfiguration, ProxyScope, ToolRule, VerifyByTool

log = logging.getLogger("holdfast")
MakeVerify = Callable[[ToolRule], "Callable[..., Any] | None"]
REDACTED: Final = "[redacted]"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_OPEN: Final = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if")
"""Members of a schema that allow more arguments than it lists under `properties`."""
_NAME_CHARS_MAX: Final = 64
_DIGEST_CHARS: Final = 6


class ProxyTool(Struct, frozen=True, kw_only=True):
    """One tool of the server, as the proxy treats it."""

    name: str
    """Its name on the wire."""
    tool: AnyTool
    """The same for the ledger, without a body: each call brings one."""
    scope: ProxyScope
    why: str
    """Why it is treated so, for people."""
    has_output_schema: bool = False
    keeps_results: bool = True
    """Whether its results and errors may be on record."""


class AnyArguments:
    """Arguments that only the server can check: any object."""

    def __init__(self) -> None:
        self.schema: dict[str, Json] = {"type": "object"}
        self.names: tuple[str, ...] = ()

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        """What the body is called with, and the same in canonical form."""
        plain = as_object(args)
        return plain, plain


class RedactedArguments(PartlyRecorded):
    """Arguments of which the record shows some as redacted. The server gets all of them."""

    def __init__(self, inner: Arguments, hidden: tuple[str, ...]) -> None:
        self._inner, self._hidden = inner, hidden
        self.schema, self.names = inner.schema, inner.names

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        """What the body is called with, and what is on record of it."""
        values, canonical = self._check(args)
        shown: Json = canonical
        for name in self._hidden:
            shown = _redact(shown, [name] if name in canonical else name.split("."))
        return values, shown

    def check_whole(self, args: Json) -> Json:
        """The arguments in canonical form, with nothing redacted."""
        return self._check(args)[1]

    def _check(self, args: Json) -> tuple[dict[str, Any], Json]:
        try:
            return self._inner.check(args)
        except BadArguments as bad:
            # What is wrong is on record, and messages quote the value.
            raise BadArguments([self._hide(one) for one in bad.problems]) from None

    def _hide(self, problem: str | ArgumentProblem) -> str:
        """What is wrong, without a value of which the record shows nothing."""
        if isinstance(problem, str):
            return problem  # The arguments cannot be kept as JSON: that names places, and quotes nothing.
        first = problem.location[0] if problem.location else None
        only_names = problem.is_unknown or problem.keyword == "required"
        is_hidden = first is None or any(first in (one, one.split(".")[0], "*") for one in self._hidden)
        if not is_hidden or (len(problem.location) == 1 and only_names):
            return problem.text
        where = "args" if first is None else f"args.{first}"
        return f"{where}: is not what the schema of the tool asks for ({problem.keyword})"


def _redact(value: Json, path: Sequence[str]) -> Json:
    """The value without what is at the path, if anything is. `*` stands for each item or member."""
    if not path:
        return REDACTED
    first, *rest = path
    if isinstance(value, dict):
        return {key: _redact(one, rest) if first in (key, "*") else one for key, one in value.items()}
    if isinstance(value, list):
        return [_redact(one, rest) if first in (str(at), "*") else one for at, one in enumerate(value)]
    return value


class ArgumentsAsMade(PartlyRecorded):
    """Arguments of one call that was made before, as its body got them: the record may show less."""

    def __init__(self, inner: Arguments, made: Json) -> None:
        self.schema, self.names = inner.schema, inner.names
        self._values, shown = inner.check(made)
        self._whole = inner.check_whole(made) if isinstance(inner, PartlyRecorded) else shown

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        """What the call was made with, and what is on record of it."""
        return self._values, args

    def check_whole(self, args: Json) -> Json:
        """What the call was made with, in canonical form."""
        return self._whole


class ToolCatalogue:
    """The tools that the server has listed, as far as they went through the proxy."""

    def __init__(self, configuration: ProxyConfiguration, make_verify: MakeVerify) -> None:
        self._configuration, self._make_verify = configuration, make_verify
        self._specs: dict[str, Mapping[str, Any]] = {}
        self._made: dict[str, ProxyTool] = {}
        self._misfits: dict[str, str] = {}
        """What is wrong with the verify functions of tools, by the names of these."""
        self._has_checked = False
        """Whether the configuration was compared with the names of the tools."""
        self.is_stale = False
        """Whether the server says that its list has changed."""

    def learn(self, listed: Json) -> None:
        """Take in the result of a `tools/list`. What is no tool is left out: the client is shown it all the
        same."""
        tools = listed.get("tools") if isinstance(listed, dict) else None
        for spec in tools if isinstance(tools, list) else ():
            name = spec.get("name") if isinstance(spec, dict) else None
            if not isinstance(name, str):
                continue
            if name not in self._specs and len(self._specs) >= MCP_TOOLS_MAX:
                log.warning(
                    "the MCP server lists more than %d tools; the others count as unknown", MCP_TOOLS_MAX
                )
                return
            if self._specs.get(name) != spec:
                self._specs[name] = spec
                self._made.pop(name, None)
        if isinstance(tools, list) and not listed.get("nextCursor") and not self._has_checked:
            self._has_checked = True
            for problem in self.list_unmatched():
                log.warning("the configuration of the MCP proxy: %s", problem)

    def knows(self, name: str) -> bool:
        """Whether the server has listed it."""
        return name in self._specs

    def list_names(self) -> list[str]:
        """The tools that the server has listed."""
        return list(self._specs)

    def list_unmatched(self) -> list[str]:
        """What the configuration names, of tools and of their arguments, that the server does not have."""
        found = self._configuration.list_unmatched(self._specs)
        for rule in self._configuration.rules:
            names = [name for name in self._specs if self._configuration.find_rule(name) is rule]
            tools = [self.get_tool(name) for name in names]
            if not tools or rule.is_for_all:
                continue
            for argument in rule.redact:
                if not any(_takes(tool, argument) for tool in tools):
                    known = sorted({name for tool in tools for name in tool.tool.arguments.names})
                    near = closest(argument, known)
                    meant = f"; did you mean {near!r}?" if near else f"; there are {', '.join(known)}"
                    found.append(f"{rule.place} redact: no tool has an argument {argument!r}{meant}")
            if isinstance(rule.verify, VerifyByTool) and rule.verify.tool not in self._specs:
                near = closest(rule.verify.tool, self._specs)
                meant = f"; did you mean {near!r}?" if near else ""
                found.append(f"{rule.place} verify: the server has no tool {rule.verify.tool!r}{meant}")
        return [*found, *self._misfits.values()]

    def get_tool(self, name: str) -> ProxyTool:
        """How to treat the tool. One that the server has not listed counts as one that acts."""
        if name not in self._made:
            made = self._make(name, self._specs.get(name))
            if name not in self._specs:
                return made
            self._made[name] = made
        return self._made[name]

    def _make(self, name: str, spec: Mapping[str, Any] | None) -> ProxyTool:
        rule = self._configuration.find_rule(name)
        effects, why = self._judge(name, spec, rule)
        if rule.approval and effects not in ("write", "mutate"):
            effects, why = "mutate", f"{why}, and what a person must approve counts as an act"
        arguments = _make_arguments(name, spec)
        names = arguments.names
        if rule.redact:
            arguments = RedactedArguments(arguments, rule.redact)
        scope: ProxyScope = rule.scope if effects in ("write", "mutate") else "call"
        changes = effects in ("write", "mutate")
        options = {
            "side_effects": effects,
            "scope": "session" if scope == "session" else "call",
            "verify": self._make_verify(rule) if changes else None,
            "verify_after_s": rule.verify_after_s if changes else None,
            "timeout_s": rule.timeout_s or (MCP_CALL_S if changes else None),
            "needs_approval": rule.approval,
            "retry": Retry(attempts=1),  # The client decides about that.
            "pollable": True,  # … and about loops.
        }
        self._misfits.pop(name, None)
        try:
            made = declare(fit_name(name), names, options)
        except BadInput as error:
            # Without the function, a call that is cut off is in doubt, which is safe.
            self._misfits[name] = f"{rule.place} {error}"
            made = declare(fit_name(name), names, {**options, "verify": None})
        made.arguments = arguments
        has_output = spec is not None and isinstance(spec.get("outputSchema"), dict)
        return ProxyTool(
            name=name,
            tool=made,
            scope=scope,
            why=why,
            has_output_schema=has_output,
            keeps_results=not rule.redact_results,
        )

    def _judge(self, name: str, spec: Mapping[str, Any] | None, rule: ToolRule) -> tuple[SideEffects, str]:
        """What the tool does to the world, and why that is assumed."""
        hints = spec.get("annotations") if spec is not None else None
        said = hints if isinstance(hints, dict) else {}
        hinted = from_hints(
            reads_only=_as_hint(said.get("readOnlyHint")),
            is_idempotent=_as_hint(said.get("idempotentHint")),
            is_destructive=_as_hint(said.get("destructiveHint")),
            trust=self._configuration.trust,
        )
        if rule.side_effects is not None and not (rule.is_for_all and hinted is not None):
            return rule.side_effects, f"the configuration says so ([tools.{rule.glob!r}])"
        if spec is None:
            return "mutate", "the server has not listed it"
        if hinted is None:
            return "mutate", "the server does not say what it does to the world"
        effects: SideEffects = hinted.options["side_effects"]
        if effects == "read":
            return effects, "the server says that it only reads (readOnlyHint)"
        if effects == "write":
            return effects, "the server says that it may be repeated (idempotentHint), and is trusted"
        if said.get("idempotentHint") is True:
            why = "the server says that it may be repeated (idempotentHint)"
            return effects, f"{why}, which is believed with trust = true"
        return effects, "the server says that it acts (readOnlyHint is not true)"


def _takes(tool: ProxyTool, argument: str) -> bool:
    """Whether a tool may have an argument of that name, as far as its schema says. Of parts of one, only the
    argument is looked at."""
    arguments = tool.tool.arguments
    if {argument, argument.split(".")[0]} & {*arguments.names, "*"} or not arguments.names:
        return True
    return any(arguments.schema.get(key, False) is not False for key in _OPEN)


def _as_hint(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _make_arguments(name: str, spec: Mapping[str, Any] | None) -> Arguments:
    schema = spec.get("inputSchema") if spec is not None else None
    if not isinstance(schema, dict):
        return AnyArguments()
    try:
        return ForeignArguments(name, schema, bytes_max=MCP_TOOL_BYTES_MAX)
    except (BadInput, msgspec.MsgspecError) as error:
        log.warning("%s. The arguments of its calls are left to the server to check", error)
        return AnyArguments()


def fit_name(name: str) -> str:
    """The name of a tool as the ledger shows it: the server's own, where it is short and plain."""
    if _NAME.fullmatch(name):
        return name
    digest = sha256(name.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARS]
    kept = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    kept = kept if kept[:1].isalpha() or kept[:1] == "_" else f"t_{kept}"
    return f"{kept[: _NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest}"
