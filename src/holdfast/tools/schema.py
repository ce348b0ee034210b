"""From a function's signature, hints and docstring to a JSON Schema and a check of arguments."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from ..errors import BadInput
from ..messages import Json
from .canonical import NotCanonical, normalise
from .context import ToolContext
from .names import closest

if TYPE_CHECKING:
    from pydantic import BaseModel

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
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    named = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    origin = getattr(annotation, "__origin__", annotation)
    return parameters[0].name == "ctx" or origin is ToolContext or "ToolContext" in named


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
        self._model = _model_of(name, function, described)
        self.names = tuple(self._model.model_fields)
        self._validate = self._model.__pydantic_validator__.validate_json
        self._dump = self._model.__pydantic_serializer__.to_python
        self.schema = self._model.model_json_schema()
        self.schema.pop("title", None)

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        from pydantic_core import ValidationError

        plain = _as_object(args)
        try:
            model = self._validate(json.dumps(plain, allow_nan=False).encode(), strict=True)
        except ValidationError as error:
            raise BadArguments([self._problem(one) for one in error.errors(include_url=False)]) from None
        values = {name: getattr(model, name) for name in self.names}
        return values, normalise(self._dump(model, mode="json", by_alias=True))

    def _problem(self, error: Any) -> str:
        path = _path(error["loc"])
        if error["type"] == "extra_forbidden":
            return _unknown(path, str(error["loc"][-1]), self.names if len(error["loc"]) == 1 else ())
        return f"{path}: {error['msg']}"


class SchemaArguments:
    """Arguments of a tool with an explicit JSON Schema."""

    def __init__(self, name: str, schema: Mapping[str, Json]) -> None:
        import jsonschema_rs

        self.schema = dict(schema)
        properties: dict[str, Json] = self.schema.get("properties", {})
        self.names = tuple(properties)
        self._closed = "additionalProperties" not in self.schema and "patternProperties" not in self.schema
        self._defaults = {key: one["default"] for key, one in properties.items() if "default" in one}
        try:
            self._validator = jsonschema_rs.validator_for(self.schema)
        except ValueError as error:
            raise BadInput(f"tool {name!r}: not a JSON Schema: {error}") from error

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
        whole = normalise({**self._defaults, **plain})
        return whole, whole


def _as_object(args: Json) -> dict[str, Json]:
    """Arguments as an object; a string is taken for JSON, as some providers send it."""
    if isinstance(args, str):
        try:
            args = json.loads(args) if args.strip() else {}
        except ValueError as error:
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
    from pydantic.fields import FieldInfo

    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadInput(f"tool {name!r}: a type hint cannot be resolved: {error}") from error
    fields: dict[str, Any] = {}
    for parameter in parameters_of(function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadInput(f"tool {name!r}: parameter {parameter.name!r} cannot be given by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        text = described.get(parameter.name)
        if text and not isinstance(default, FieldInfo):
            default = Field(default, description=text)
        fields[parameter.name] = (hints.get(parameter.name, Any), default)
    try:
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
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise BadInput(f"tool {name!r}: its parameters have no JSON Schema: {error}") from error
