"""From a function's signature, hints and docstring to a JSON Schema and a check of arguments."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints

from ..errors import BadInput
from ..messages import Json
from .canonical import NotCanonical, canonical, normalise, to_json
from .context import ToolContext
from .names import closest

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_SECTIONS = re.compile(r"^\s*(Args|Arguments|Parameters|Params)\s*:?\s*$|^\s*:param", re.MULTILINE)


class BadArguments(Exception):
    """All problems at once, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Arguments(Protocol):
    """Checks arguments against a schema."""

    schema: dict[str, Json]
    names: tuple[str, ...]

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        """What the body is called with, and the same in canonical form; or `BadArguments`."""


def wants_context(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is the context: by its name, or by its type."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.name == "ctx":
        return first is not None
    kind = first.annotation
    if isinstance(kind, str):
        try:
            kind = get_type_hints(function).get(first.name)
        except NameError:  # Said again, and clearly, when the schema is made.
            return False
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and issubclass(kind, ToolContext)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that the caller gives, the context left out."""
    parameters = list(inspect.signature(function).parameters.values())
    return parameters[1:] if wants_context(function) else parameters


def describe(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description, and that of each parameter, from the docstring."""
    doc = inspect.getdoc(function) or ""
    if not _SECTIONS.search(doc):
        return doc.strip(), {}
    from griffe import Docstring, DocstringSectionKind  # only where there is something to parse

    text: list[str] = []
    parameters: dict[str, str] = {}
    quiet = {"warnings": False}
    styles = {"google": quiet, "numpy": quiet, "sphinx": quiet}
    for section in Docstring(doc).parse("auto", per_style_options=styles):
        if section.kind is DocstringSectionKind.text:
            text.append(section.value)
        elif section.kind is DocstringSectionKind.parameters:
            parameters.update((one.name, one.description) for one in section.value)
    return "\n\n".join(text).strip(), parameters


class FunctionArguments:
    """Arguments of a plain function, checked by pydantic in the strict JSON sense."""

    def __init__(self, name: str, function: Callable[..., Any], described: Mapping[str, str]) -> None:
        from pydantic_core import ValidationError  # only where there are tools: it takes a while

        self._model = _model_of(name, function, described)
        self.names = tuple(self._model.model_fields)
        self._validate, self._invalid = self._model.__pydantic_validator__.validate_json, ValidationError
        self._dump = self._model.__pydantic_serializer__.to_python
        self.schema = self._model.model_json_schema()
        self.schema.pop("title", None)
        self._known: tuple[str, ...] = tuple(self.schema.get("properties", ()))
        text = json.dumps(self.schema)
        if '"writeOnly": true' in text:
            raise BadInput(
                f"tool {name!r}: a secret is no argument for a model to give; hand it over in deps"
            )
        self._has_sets = '"uniqueItems": true' in text
        self._is_flat = all(map(_is_flat, self._model.model_fields.values()))

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        plain = _as_object(args)
        try:
            model = self._validate(to_json(plain), strict=True)
        except self._invalid as error:
            raise BadArguments(
                [self._problem(one, plain) for one in error.errors(include_url=False)]
            ) from None
        # The model was made this moment and nobody else has it.
        values: dict[str, Any] = model.__dict__
        if self._is_flat:
            return values, values.copy()
        dumped = self._dump(model, mode="json", by_alias=True)
        if self._has_sets:
            dumped = _order_sets(self._dump(model, by_alias=True), dumped)
        try:
            return values, normalise(dumped)
        except NotCanonical as error:
            raise BadArguments([str(error)]) from None

    def _problem(self, error: Any, plain: Json) -> str:
        location = _inside(plain, error["loc"], missing=error["type"] == "missing")
        path = _path(location)
        if error["type"] == "extra_forbidden":
            return _unknown(path, str(location[-1]), self._known if len(location) == 1 else ())
        return f"{path}: {error['msg']}"


_FLAT = (str, int, bool, type(None))


def _is_flat(field: FieldInfo) -> bool:
    """Whether every value of this field is its own canonical form, once it came from normalised JSON."""
    hint = field.annotation
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    default = None if field.is_required() else field.default
    return (
        all(kind in _FLAT for kind in kinds)
        and not field.metadata
        and field.serialization_alias is None
        and field.default_factory is None
        and default.__class__ in _FLAT
        and _is_canonical(default)
    )


def _is_canonical(value: Json) -> bool:
    try:
        normalise(value)
    except NotCanonical:
        return False
    return True


def _order_sets(live: Any, dumped: Json) -> Json:
    """A set has no order of its own, and Python gives it another one in every process."""
    if isinstance(live, set | frozenset):
        return sorted(dumped, key=canonical)
    if isinstance(live, dict) and isinstance(dumped, dict):
        pairs = zip(live.values(), dumped.items(), strict=True)
        return {key: _order_sets(part, item) for part, (key, item) in pairs}
    if isinstance(live, list | tuple) and isinstance(dumped, list):
        return [_order_sets(part, item) for part, item in zip(live, dumped, strict=True)]
    return dumped


def _inside(value: Json, location: Any, *, missing: bool) -> list[str | int]:
    """The parts of a location that lead through the value: pydantic names the members of a union, too."""
    found: list[str | int] = []
    for part in location:
        try:
            value = value[part]
        except (LookupError, TypeError):
            continue
        found.append(part)
    return [*found, location[-1]] if missing else found


class SchemaArguments:
    """Arguments of a tool with an explicit JSON Schema."""

    def __init__(self, name: str, schema: Mapping[str, Json], function: Callable[..., Any]) -> None:
        import jsonschema_rs

        self.schema = dict(schema)
        properties: dict[str, Json] = self.schema.get("properties", {})
        self.names = tuple(properties)
        # Unknown arguments are told by us, who can say what was meant.
        closed = self.schema.get("additionalProperties", False) is False
        self._closed = closed and "patternProperties" not in self.schema
        checked = {key: one for key, one in self.schema.items() if key != "additionalProperties"}
        defaults = {
            key: one["default"]
            for key, one in properties.items()
            if isinstance(one, Mapping) and "default" in one
        }
        try:
            self._defaults: dict[str, Json] = normalise(defaults)
            self._validator = jsonschema_rs.validator_for(checked if self._closed else self.schema)
        except ValueError as error:
            raise BadInput(f"tool {name!r}: not a JSON Schema: {error}") from error
        self._check_function(name, function)

    def _check_function(self, name: str, function: Callable[..., Any]) -> None:
        """A body that cannot be called would be found out only when it is too late."""
        parameters = {one.name: one for one in parameters_of(function)}
        open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        given = {*self.schema.get("required", ()), *self._defaults}
        unknown = [] if open_ended else [one for one in self.names if one not in parameters]
        missing = [
            one.name
            for one in parameters.values()
            if one.default is one.empty
            and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
            and one.name not in given
        ]
        if unknown or missing:
            what = f"has no parameter {unknown[0]!r}" if unknown else f"always needs {missing[0]!r}"
            raise BadInput(f"tool {name!r}: the function {what}, and the schema says otherwise")

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        plain = _as_object(args)
        problems = [
            _unknown(f"args.{key}", key, self.names)
            for key in plain
            if self._closed and key not in self.names
        ]
        problems += [
            f"{_path(error.instance_path)}: {error.message}" for error in self._validator.iter_errors(plain)
        ]
        if problems:
            raise BadArguments(problems)
        whole = {**self._defaults, **plain}
        return whole, whole


def _as_object(args: Json) -> dict[str, Json]:
    """Arguments as an object; a string is taken for JSON, as some providers send it."""
    if isinstance(args, str):
        try:
            args = json.loads(args) if args.strip() else {}
        except (ValueError, RecursionError) as error:
            raise BadArguments([f"args: not valid JSON ({error})"]) from None
    if not isinstance(args, dict):
        raise BadArguments([f"args: expected an object, got {type(args).__name__}"])
    try:
        found: dict[str, Json] = normalise(args)
    except NotCanonical as error:
        raise BadArguments([str(error)]) from None
    return found


def _path(location: Any) -> str:
    return "args" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _unknown(path: str, name: str, known: tuple[str, ...]) -> str:
    meant = closest(name, known)
    if meant is not None:
        return f"{path}: unknown argument; did you mean {meant!r}?"
    return f"{path}: unknown argument" + (f"; known are {', '.join(known)}" if known else "")


def _model_of(name: str, function: Callable[..., Any], described: Mapping[str, str]) -> type[BaseModel]:
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadInput(f"tool {name!r}: a type hint cannot be resolved: {error}") from error
    fields: dict[str, Any] = {}
    for parameter in parameters_of(function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadInput(f"tool {name!r}: parameter {parameter.name!r} cannot be given by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints.get(parameter.name, Any)
        if parameter.name in described:
            # First, so that a description in the hint itself wins.
            base, *extra = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            hint = Annotated[(base, Field(description=described[parameter.name]), *extra)]
        fields[parameter.name] = (hint, default)
    try:
        with warnings.catch_warnings():
            # A parameter may well be called `json` or `copy`: nobody else uses this model.
            warnings.simplefilter("ignore", UserWarning)
            return create_model(
                name,
                __config__=ConfigDict(
                    extra="forbid",
                    arbitrary_types_allowed=False,
                    ser_json_bytes="base64",
                    val_json_bytes="base64",
                ),
                **fields,
            )
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError, ValueError) as error:
        raise BadInput(f"tool {name!r}: its parameters have no JSON Schema: {error}") from error
