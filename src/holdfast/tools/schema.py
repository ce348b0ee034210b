"""From a function's signature, hints and docstring to a JSON Schema and a check of arguments.

Objects are closed at every depth: a name that the schema does not list is refused, unless the schema says
that others are allowed (`additionalProperties`, `patternProperties`, `extra="allow"` of a model). Otherwise
a misspelt name would be dropped, and the body entered with a default that the model did not choose.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from ..errors import BadInput
from ..limits import ASKED_SCHEMA_BYTES_MAX
from ..messages import Json
from ..suggestions import closest
from .canonical import NotCanonical, canonical, fingerprint, normalise, to_json
from .context import ToolContext

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_SECTIONS = re.compile(r"^\s*(Args|Arguments|Parameters|Params)\s*:?\s*$|^\s*:param", re.MULTILINE)


class BadArguments(Exception):
    """All problems at once, one line each."""

    def __init__(self, problems: Sequence[str | ArgumentProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Arguments(Protocol):
    """Checks arguments against a schema."""

    schema: dict[str, Json]
    names: tuple[str, ...]

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        """What the body is called with, and the same in canonical form; or `BadArguments`."""


class PartlyRecorded(ABC):
    """Arguments of which the record shows only a part. Calls are told apart by all of them."""

    @abstractmethod
    def check_whole(self, args: Json) -> Json:
        """The arguments in canonical form, with nothing left out; or `BadArguments`."""


def fingerprint_of(tool: str, arguments: Arguments, args: Json, canonical: Json) -> str:
    """The digest that tells calls of a tool apart; `canonical` is what is on record of the arguments."""
    whole = arguments.check_whole(args) if isinstance(arguments, PartlyRecorded) else canonical
    return fingerprint(tool, whole)


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
        schema = self._model.model_json_schema()
        schema.pop("title", None)
        text = json.dumps(schema)
        if '"writeOnly": true' in text:
            raise BadInput(
                f"tool {name!r}: a secret is no argument for a model to give; hand it over in deps"
            )
        self.schema = close(schema)
        # Pydantic forbids extras everywhere or as each model says. If one keeps them, the schema tells where.
        self._keeps_extras = any("properties" in one and _is_open(one) for one in _subschemas(schema))
        self._extra: Any = None if self._keeps_extras else "forbid"
        self._words: SchemaWords | None = None
        self._has_sets = '"uniqueItems": true' in text
        self._is_flat = all(map(_is_flat, self._model.model_fields.values()))

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        plain = as_object(args)
        try:
            model = self._validate(to_json(plain), strict=True, extra=self._extra)
        except self._invalid as error:
            raise BadArguments(self._explain(plain, error.errors(include_url=False))) from None
        if self._keeps_extras:
            unknown = [one for one in self._find_problems(plain) if one.is_unknown]
            if unknown:
                raise BadArguments([str(one) for one in unknown])
        # The model was made this moment and has no other reference.
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

    def _explain(self, plain: Json, errors: Sequence[Any]) -> list[str]:
        """Problems in the words of the schema, and in pydantic's where the schema does not say it: validators
        of a type's own, and formats."""
        found = self._find_problems(plain)
        sure = [one for one in found if one.keyword != "format"]
        others: dict[tuple[str | int, ...], Any] = {}
        for error in errors:
            if sure and error["type"] in _NAMES:
                continue  # The schema knows all names, and does not ask for those of every member of a union.
            location = tuple(_inside(plain, error["loc"], missing=error["type"] == "missing"))
            if not any(_is_same_place(location, one.location) for one in sure):
                others.setdefault(location, error)
        kept = [one for one in found if one.keyword != "format" or one.location in others]
        said = {one.location: str(one) for one in kept}
        for location, error in others.items():
            said.setdefault(location, _explain_pydantic(location, error))
        # In the order of the parameters; what is none of them comes last.
        places = {name: place for place, name in enumerate(self.schema.get("properties", ()))}
        return [
            said[one] for one in sorted(said, key=lambda one: places.get(next(iter(one), ""), len(places)))
        ]

    def _find_problems(self, plain: Json) -> list[ArgumentProblem]:
        if self._words is None:
            try:
                self._words = SchemaWords(self.schema, formats=True)
            except ValueError:  # A pattern, perhaps, that only Python understands.
                return []
        return self._words.find_problems(plain)


_NAMES: Final = ("missing", "extra_forbidden", "unexpected_keyword_argument")
"""Pydantic's error types for a missing or an unknown name."""


def _is_same_place(a: Sequence[str | int], b: Sequence[str | int]) -> bool:
    """Whether the places are the same, or one is inside of the other."""
    return all(x == y for x, y in zip(a, b, strict=False))


def _explain_pydantic(location: Sequence[str | int], error: Any) -> str:
    if error["type"] == "missing":
        return _required(location[:-1], str(location[-1]))
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown(_path(location), str(location[-1]), ())
    return f"{_path(location)}: {error['msg']}"


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
    """Sort what came from sets: Python orders them differently in every process."""
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


class ArgumentProblem(NamedTuple):
    """What is wrong with one part of the arguments, in the words of the schema."""

    location: tuple[str | int, ...]
    keyword: str
    text: str

    @property
    def is_unknown(self) -> bool:
        """Whether there is a name that the schema does not list."""
        return self.keyword in _UNKNOWN

    def __str__(self) -> str:
        return self.text


_UNKNOWN: Final = ("additionalProperties", "unevaluatedProperties")
_MESSAGE_CHARS: Final = 500
"""Longer messages are cut: they may quote a whole value."""


class SchemaWords:
    """Finds what is wrong with arguments by their schema, and says it in the schema's words."""

    def __init__(self, schema: Mapping[str, Json], *, formats: bool = False) -> None:
        import jsonschema_rs  # only where arguments are wrong, or a schema was given

        self._schema = schema
        self._validator = jsonschema_rs.validator_for(
            dict(schema), validate_formats=formats, retriever=_refuse_to_fetch
        )

    def find_problems(self, value: Json) -> list[ArgumentProblem]:
        """All of them; unknown names first."""
        found = [one for error in self._validator.iter_errors(value) for one in self._explain(error)]
        return sorted(found, key=lambda one: not one.is_unknown)

    def _explain(self, error: Any) -> Iterator[ArgumentProblem]:
        kind, place, keyword = error.kind, tuple(error.instance_path), _keyword(error)
        if keyword in _UNKNOWN and hasattr(kind, "unexpected"):
            known = self._known_at(error.schema_path[:-1])
            for name in kind.unexpected:
                yield ArgumentProblem((*place, name), keyword, _unknown(_path((*place, name)), name, known))
        elif keyword == "required" and hasattr(kind, "property"):
            yield ArgumentProblem((*place, kind.property), keyword, _required(place, kind.property))
        elif keyword in ("anyOf", "oneOf") and any(getattr(kind, "context", ())):
            yield from self._explain_union(error, place)
        else:
            message = error.message
            if len(message) > _MESSAGE_CHARS:
                half = _MESSAGE_CHARS // 2
                message = f"{message[:half]} … {message[-half:]}"
            yield ArgumentProblem(place, keyword, f"{_path(place)}: {message}")

    def _explain_union(self, error: Any, place: tuple[str | int, ...]) -> Iterator[ArgumentProblem]:
        """Explain by the member that was probably meant: of the right type, with the fewest problems."""
        members = error.kind.context
        fitting = [one for one in members if not any(_is_other_kind(part, place) for part in one)]
        if fitting:
            explained = [[one for part in member for one in self._explain(part)] for member in fitting]
            yield from min(explained, key=_distance)
            return
        types = [name for one in members for part in one for name in getattr(part.kind, "types", ())]
        wanted = " or ".join(f'"{name}"' for name in dict.fromkeys(types))
        shown = f"{json.dumps(error.instance, ensure_ascii=False)[:80]} " if wanted else ""
        text = f"is not of type {wanted}" if wanted else error.message[-_MESSAGE_CHARS:]
        yield ArgumentProblem(place, _keyword(error), f"{_path(place)}: {shown}{text}")

    def _known_at(self, path: Sequence[str | int]) -> tuple[str, ...]:
        """The names that an object lists, by its path in the schema, through references or straight."""
        node: Any = self._schema
        try:
            for part in path:
                node = node[part]
                if part == "$ref":
                    keys = node.removeprefix("#").strip("/").split("/")
                    node = self._schema
                    for key in keys:
                        node = node[key.replace("~1", "/").replace("~0", "~")]
            return tuple(node.get("properties", ()))
        except (LookupError, TypeError, AttributeError):
            return ()  # A reference to elsewhere. The names are only for the suggestion.


def _refuse_to_fetch(uri: str) -> NoReturn:
    """A schema names no address that this process would open, and no file that it would read."""
    raise ValueError("a $ref to elsewhere is not followed")


def _keyword(error: Any) -> str:
    return str(error.schema_path[-1]) if error.schema_path else ""


def _is_other_kind(error: Any, place: tuple[str | int, ...]) -> bool:
    """Whether a value is of another type altogether, or says itself that it is another member."""
    if _keyword(error) == "type":
        return tuple(error.instance_path) == place
    return _keyword(error) == "const" and len(error.instance_path) == len(place) + 1


def _distance(problems: Sequence[ArgumentProblem]) -> tuple[int, int]:
    """How far a value is from a member of a union. A misspelt name is nearer than a foreign one."""
    return len(problems), sum(one.is_unknown and "did you mean" not in one.text for one in problems)


_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions")
_SINGLE: Final = ("items", "additionalProperties", "contains", "propertyNames", "unevaluatedItems")
_COMPOSING: Final = ("not", "if", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef")


def _subschemas(schema: Mapping[str, Json]) -> Iterator[Mapping[str, Any]]:
    """The schema, and all those in it."""
    yield schema
    inside: list[Any] = [schema.get(key) for key in _SINGLE]
    for key in _LISTS:
        inside += schema[key] if isinstance(schema.get(key), list) else ()
    for key in _NAMED:
        inside += schema[key].values() if isinstance(schema.get(key), Mapping) else ()
    for one in inside:
        if isinstance(one, Mapping):
            yield from _subschemas(one)


def _is_open(schema: Mapping[str, Json]) -> bool:
    """Whether an object's schema says which other names are allowed."""
    return schema.get("additionalProperties", False) is not False or any(
        key in schema for key in ("patternProperties", "unevaluatedProperties")
    )


def _composes(schema: Mapping[str, Json]) -> bool:
    """Whether the names of one object are listed in several places, so that none of them can be closed."""
    if any(key in schema for key in _COMPOSING) or len(schema.get("allOf", ())) > 1:
        return True
    return "properties" in schema and any(key in schema for key in ("allOf", "anyOf", "oneOf", "$ref"))


def close(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema with `additionalProperties: false` for every object that lists its properties and does not
    say what else may be in it. A schema that composes objects from several is left as it is."""
    if any(_composes(one) for one in _subschemas(schema)):
        return dict(schema)
    return _close(schema)


def _close(schema: Mapping[str, Json]) -> dict[str, Json]:
    closed: dict[str, Json] = dict(schema)
    for key in _SINGLE:
        if isinstance(closed.get(key), Mapping):
            closed[key] = _close(closed[key])
    for key in _LISTS:
        if isinstance(closed.get(key), list):
            closed[key] = [_close(one) if isinstance(one, Mapping) else one for one in closed[key]]
    for key in _NAMED:
        if isinstance(closed.get(key), Mapping):
            closed[key] = {
                name: _close(one) if isinstance(one, Mapping) else one for name, one in closed[key].items()
            }
    if "properties" in closed and not _is_open(closed):
        closed["additionalProperties"] = False
    return closed


def close_arguments(name: str, schema: Mapping[str, Json]) -> dict[str, Json]:
    """As `close`, for the arguments of a tool: they are closed however the schema is put together."""
    try:
        closed = close(schema)
    except (AttributeError, TypeError, RecursionError) as error:
        raise BadInput(f"tool {name!r}: not a JSON Schema: {error}") from error
    if not _is_open(closed):
        closed["unevaluatedProperties" if _composes(schema) else "additionalProperties"] = False
    return closed


class SchemaArguments:
    """Arguments of a tool with an explicit JSON Schema."""

    def __init__(self, name: str, schema: Mapping[str, Json], function: Callable[..., Any]) -> None:
        self.schema = close_arguments(name, schema)
        properties: dict[str, Json] = self.schema.get("properties", {})
        self.names = tuple(properties)
        defaults = {
            key: one["default"]
            for key, one in properties.items()
            if isinstance(one, Mapping) and "default" in one
        }
        try:
            self._defaults: dict[str, Json] = normalise(defaults)
            self._words = SchemaWords(self.schema)
        except ValueError as error:
            raise BadInput(f"tool {name!r}: not a JSON Schema: {error}") from error
        self._check_function(name, function)

    def _check_function(self, name: str, function: Callable[..., Any]) -> None:
        """Refuse a body that cannot be called with these arguments, before there is a call."""
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
        plain = as_object(args)
        problems = self._words.find_problems(plain)
        if problems:
            raise BadArguments([str(one) for one in problems])
        whole = {**self._defaults, **plain}
        return whole, whole


def keep_schema(schema: Mapping[str, Json]) -> Json:
    """The schema as it is recorded with a question; None if it is too large, or no JSON."""
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError):
        return None
    return dict(schema) if len(encoded) <= ASKED_SCHEMA_BYTES_MAX else None


def as_object(args: Json) -> dict[str, Json]:
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


def _required(location: Sequence[str | int], name: str) -> str:
    return f"{_path(location)}: {name!r} is a required property"


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
            # A parameter may well be called `json` or `copy`: no other code uses this model.
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
