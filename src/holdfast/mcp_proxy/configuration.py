"""The configuration of a proxy: a TOML file that says what the tools of its server do."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from ..errors import BadInput
from ..messages import Json
from ..suggestions import closest
from ..system import files
from ..tools.declaration import SideEffects

ProxyScope: TypeAlias = Literal["delivery", "session", "call", "global"]
"""Which calls with the same arguments are one: those up to the one whose outcome was delivered; those of one
connection; none; all that there ever are."""
_EFFECTS: Final = ("pure", "read", "write", "mutate")
_TEMPLATE: Final = re.compile(r"\{args\.([^{}]*)\}")
_FUNCTION: Final = re.compile(r"[^:]+:[\w.]+")


class LandedIf(Struct, frozen=True, kw_only=True):
    """What in the answer of a tool that looks says that the effect happened."""

    text_contains: str | None = None
    pointer: str | None = None
    """A JSON pointer into the structured content, or into the text if that is JSON."""
    equals: Json = None
    is_compared: bool = False
    """Whether the value there must equal `equals`."""
    exists: bool = True


class VerifyByTool(Struct, frozen=True, kw_only=True):
    """Ask another tool of the same server whether an effect happened."""

    tool: str
    arguments: Mapping[str, Json]
    landed_if: LandedIf


class ToolRule(Struct, frozen=True, kw_only=True):
    """What the configuration says of the tools that a name or a glob stands for."""

    glob: str = ""
    side_effects: SideEffects | None = None
    scope: ProxyScope = "delivery"
    approval: bool = False
    redact: tuple[str, ...] = ()
    """Arguments, or with dots parts of them; `*` stands for each item or member."""
    redact_results: bool = False
    verify: VerifyByTool | str | None = None
    """A tool that looks, or `module:function`."""
    verify_after_s: float = 0.0
    timeout_s: float | None = None

    @property
    def place(self) -> str:
        """Its table in the file."""
        return f"[tools.{json.dumps(self.glob)}]"

    @property
    def is_for_all(self) -> bool:
        """Whether it is for all tools there are (`*`), and says nothing about the names of some."""
        return not re.sub(r"[*?]", "", self.glob)


class ProxyConfiguration(Struct, frozen=True, kw_only=True):
    """All of it. `trust`: believe that a tool may be repeated where the server says so."""

    trust: bool = False
    rules: tuple[ToolRule, ...] = ()

    def find_rule(self, name: str) -> ToolRule:
        """The rule for a tool: of its own name, else of the glob with the most literal characters."""
        matching = [rule for rule in self.rules if rule.glob == name or fnmatchcase(name, rule.glob)]
        return max(matching, key=lambda rule: (rule.glob == name, _count_literals(rule.glob)), default=_NONE)

    def list_unmatched(self, names: Collection[str]) -> list[str]:
        """What is wrong with names and globs that no tool of the server has."""
        found: list[str] = []
        for rule in self.rules:
            if rule.is_for_all or any(name == rule.glob or fnmatchcase(name, rule.glob) for name in names):
                continue
            near = None if re.search(r"[*?\[]", rule.glob) else closest(rule.glob, names)
            meant = f"; did you mean {near!r}?" if near else f"; there are {', '.join(sorted(names))}"
            found.append(f"{rule.place} matches no tool{meant}")
        return found


_NONE: Final = ToolRule()


def _count_literals(glob: str) -> int:
    return len(re.sub(r"\[[^\]]*\]|[*?]", "", glob))


def read_configuration(path: Path) -> ProxyConfiguration:
    """Read and check a file; `BadInput` says what is wrong in it, and where."""
    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise BadInput(f"the configuration {str(path)!r} cannot be read: {error.strerror}") from error
    try:
        return parse_configuration(tomllib.loads(data.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the configuration {str(path)!r} is no TOML: {error}") from error
    except BadInput as error:
        raise BadInput(f"the configuration {str(path)!r}: {error}") from error


def parse_configuration(data: Mapping[str, Any]) -> ProxyConfiguration:
    """The configuration in what a TOML file holds."""
    _check_keys("", data, ("trust", "tools"))
    tools = _get(data, "", "tools", dict, {})
    return ProxyConfiguration(
        trust=_get(data, "", "trust", bool, default=False),
        rules=tuple(_parse_rule(glob, rule) for glob, rule in tools.items()),
    )


_RULE_KEYS: Final = (
    "side_effects",
    "scope",
    "once",
    "approval",
    "redact",
    "redact_results",
    "verify",
    "verify_after_s",
    "timeout_s",
)


def _parse_rule(glob: str, data: object) -> ToolRule:
    where = f"tools.{json.dumps(glob)}"
    if not isinstance(data, dict):
        raise BadInput(f'[{where}] is a table, such as [{where}] with side_effects = "read" in it')
    _check_keys(where, data, _RULE_KEYS)
    effects = _get(data, where, "side_effects", str, None)
    if effects is not None and effects not in _EFFECTS:
        raise BadInput(_unknown(where, "side_effects", effects, _EFFECTS))
    scope: Any = _get(data, where, "scope", str, None)
    if scope is not None and scope not in get_args(ProxyScope):
        raise BadInput(_unknown(where, "scope", scope, get_args(ProxyScope)))
    once = _get(data, where, "once", bool, default=False)
    if once and scope not in (None, "global"):
        raise BadInput(f'[{where}] once = true is the same as scope = "global", and scope = "{scope}" is not')
    approval = _get(data, where, "approval", bool, default=False)
    if approval and scope in ("session", "call"):
        raise BadInput(
            f'[{where}] approval needs scope = "delivery" or "global", not "{scope}": a call that was '
            "approved is found when it is made again, also on another connection"
        )
    redact = _get(data, where, "redact", list, [])
    if not all(isinstance(one, str) for one in redact):
        raise BadInput(f"[{where}] redact lists the names of arguments, not {redact!r}")
    verify = _parse_verify(where, data.get("verify"))
    if isinstance(verify, VerifyByTool):
        hidden = sorted(_list_names(verify) & {name for one in redact for name in (one, one.split(".")[0])})
        if hidden:
            raise BadInput(
                f"[{where}] verify asks with {{args.{hidden[0]}}}, which redact leaves out of the record"
            )
    if verify is not None and effects in ("pure", "read"):
        raise BadInput(f'[{where}] verify makes sense only for a tool that acts, not for "{effects}"')
    return ToolRule(
        glob=glob,
        side_effects=() if effects == "pure" else effects,
        scope="global" if once else scope or "delivery",
        approval=approval,
        redact=tuple(redact),
        redact_results=_get(data, where, "redact_results", bool, default=False),
        verify=verify,
        verify_after_s=_get_seconds(data, where, "verify_after_s") or 0.0,
        timeout_s=_get_seconds(data, where, "timeout_s"),
    )


def _parse_verify(where: str, data: object) -> VerifyByTool | str | None:
    if data is None:
        return None
    if isinstance(data, str):
        if not _FUNCTION.fullmatch(data):
            raise BadInput(f'[{where}] verify = {data!r} names no function; write "module:function"')
        return data
    if not isinstance(data, dict):
        raise BadInput(f'[{where}] verify is "module:function" or a table with tool, arguments and landed_if')
    where = f"{where}.verify"
    _check_keys(where, data, ("tool", "arguments", "landed_if"))
    tool = _get(data, where, "tool", str, None)
    if tool is None:
        raise BadInput(f"[{where}] lacks tool: the tool of the server that looks whether it happened")
    arguments = _get(data, where, "arguments", dict, {})
    _check_templates(where, arguments)
    landed = _get(data, where, "landed_if", dict, None)
    if landed is None:
        example = 'landed_if = { text_contains = "{args.message}" }'
        raise BadInput(f"[{where}] lacks landed_if, such as {example}")
    return VerifyByTool(tool=tool, arguments=arguments, landed_if=_parse_landed(f"{where}.landed_if", landed))


def _parse_landed(where: str, data: Mapping[str, Any]) -> LandedIf:
    _check_keys(where, data, ("text_contains", "pointer", "equals", "exists"))
    text = _get(data, where, "text_contains", str, None)
    pointer = _get(data, where, "pointer", str, None)
    exists = _get(data, where, "exists", bool, default=True)
    if (text is None) == (pointer is None):
        raise BadInput(f"[{where}] has either text_contains or pointer")
    if text is not None and ("equals" in data or "exists" in data):
        raise BadInput(f"[{where}] equals and exists are for pointer")
    if "equals" in data and "exists" in data:
        raise BadInput(f"[{where}] has either equals or exists")
    if pointer is not None and pointer and not pointer.startswith("/"):
        raise BadInput(f'[{where}] pointer = {pointer!r} is no JSON pointer; write "/{pointer}"')
    if pointer is not None and "equals" not in data and "exists" not in data:
        raise BadInput(f"[{where}] says nothing about what is at the pointer: add equals or exists")
    if text == "":
        raise BadInput(f"[{where}] every text contains an empty one")
    _check_templates(where, [text, pointer, data.get("equals")])
    return LandedIf(
        text_contains=text,
        pointer=pointer,
        equals=data.get("equals"),
        is_compared="equals" in data,
        exists=exists,
    )


def _check_templates(where: str, value: object) -> None:
    if isinstance(value, dict):
        for one in value.values():
            _check_templates(where, one)
    elif isinstance(value, list):
        for one in value:
            _check_templates(where, one)
    elif isinstance(value, str):
        left = _TEMPLATE.sub("", value)
        found = re.search(r"\{[^{}]*\}?", left)
        if found is not None or "{args.}" in value:
            raise BadInput(
                f"[{where}] {value!r}: a text may contain {{args.NAME}} and no other braces; for anything "
                'more write verify = "module:function"'
            )


def _list_names(verify: VerifyByTool) -> set[str]:
    """The arguments that the question is made of."""
    landed = verify.landed_if
    said = json.dumps([verify.arguments, landed.text_contains, landed.pointer, landed.equals], default=str)
    return set(_TEMPLATE.findall(said))


class MissingArgument(Exception):
    """A template names an argument that the call has not."""


def fill(template: Json, args: Mapping[str, Json]) -> Json:
    """The value with each `{args.x}` replaced. One that is all of a text keeps its type."""
    if isinstance(template, dict):
        return {key: fill(value, args) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(value, args) for value in template]
    if not isinstance(template, str):
        return template
    whole = _TEMPLATE.fullmatch(template)
    if whole is not None:
        return _get_argument(args, whole[1])
    return _TEMPLATE.sub(lambda found: _as_text(_get_argument(args, found[1])), template)


def _get_argument(args: Mapping[str, Json], name: str) -> Json:
    if name not in args:
        raise MissingArgument(f"the call has no argument {name!r}")
    return args[name]


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- checks ----------------------------------------------------------------------------------------------


def _check_keys(where: str, data: Mapping[str, Any], known: Collection[str]) -> None:
    for key in data:
        if key not in known:
            near = closest(key, known)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
            place = f"[{where}] " if where else ""
            raise BadInput(f"{place}unknown key {key!r}; {hint}")


def _unknown(where: str, key: str, value: str, known: Collection[str]) -> str:
    near = closest(value, known)
    hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
    return f"[{where}] {key} = {value!r} is not known; {hint}"


_WORDS: Final = {dict: "a table", bool: "true or false", str: "a text", list: "a list"}


def _get(data: Mapping[str, Any], where: str, key: str, kind: type, default: Any) -> Any:
    found = data.get(key, default)
    if found is default or type(found) is kind:
        return found
    place = f"[{where}] " if where else ""
    raise BadInput(f"{place}{key} is {_WORDS[kind]}, not {found!r}")


def _get_seconds(data: Mapping[str, Any], where: str, key: str) -> float | None:
    found = data.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e9:
        raise BadInput(f"[{where}] {key} is a number of seconds, not {found!r}")
    if key == "timeout_s" and found == 0:
        raise BadInput(f"[{where}] {key} must be positive")
    return float(found)
