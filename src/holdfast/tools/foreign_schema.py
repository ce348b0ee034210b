"""Arguments by a JSON Schema that another party wrote: an MCP server, for example.

The model is shown the schema as it was given. A schema that could do harm is refused before it is used: one
that never ends, that takes a validator hours, or that names another document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from ..errors import BadInput
from ..limits import FOREIGN_SCHEMA_STEPS_MAX
from ..messages import Json
from .schema import BadArguments, SchemaWords, as_object, close_arguments

_HERE: Final = ("not", "if", "then", "else")
_HERE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_HERE_NAMED: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_META_SCHEMAS: Final = ("https://json-schema.org/", "http://json-schema.org/")


class ForeignArguments:
    """Arguments of a tool whose schema another party wrote.

    Names that the schema does not list are refused, unless it lists none or allows others. Defaults are left
    to the other party, which may not accept its own.
    """

    def __init__(self, name: str, schema: Mapping[str, Json], *, bytes_max: int) -> None:
        self._name, self._bytes_max = name, bytes_max
        self.replace(schema)

    def replace(self, schema: Mapping[str, Json]) -> None:
        """Check by this schema from now on; `BadInput` if it is not usable, and nothing changes."""
        name = self._name
        try:
            _check(schema, self._bytes_max)
            properties = schema.get("properties", {})
            if not isinstance(properties, Mapping):
                raise ValueError("its properties are no object")
            listed = bool(properties) or any(key in schema for key in (*_HERE_LISTS, "$ref"))
            words = SchemaWords(close_arguments(name, schema) if listed else schema)
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInput(f"tool {name!r}: its JSON Schema cannot be used: {str(error)[:200]}") from error
        self.schema: dict[str, Json] = dict(schema)
        self.names: tuple[str, ...] = tuple(properties)
        self._words = words

    def check(self, args: Json) -> tuple[dict[str, Any], Json]:
        """What the body is called with, twice: it is its own canonical form."""
        plain = as_object(args)
        problems = self._words.find_problems(plain)
        if problems:
            raise BadArguments(problems)
        return plain, plain


def _check(schema: Mapping[str, Json], bytes_max: int) -> None:
    """Raise `ValueError` if the schema is large, never ends, or takes long to apply."""
    size = len(msgspec.json.encode(schema))
    if size > bytes_max:
        raise ValueError(f"it is {size:,} bytes; at most {bytes_max:,} are accepted")
    anchors: dict[str, Any] = {"#": schema}
    for one in _iter_schemas(schema):
        if one is not schema and isinstance(one.get("$id"), str):
            raise ValueError("a part of it has an $id of its own")
        for key in ("$anchor", "$dynamicAnchor"):
            name = one.get(key)
            if isinstance(name, str) and anchors.setdefault(f"#{name}", one) is not one:
                raise ValueError(f"two parts of it have the anchor {name[:80]!r}")
    steps = _Steps(schema, anchors)
    for one in _iter_schemas(schema):
        steps.count(one)


class _Steps:
    """Counts the schemas that apply to one and the same value."""

    def __init__(self, root: Any, anchors: Mapping[str, Any]) -> None:
        self._root, self._anchors = root, anchors
        self._counted: dict[int, int] = {}

    def count(self, schema: Any) -> int:
        """How many there are; `ValueError` if they are too many, or have no end."""
        if not isinstance(schema, Mapping):
            return 1
        known = self._counted.get(id(schema))
        if known == 0:
            raise ValueError("it refers to itself without an end")
        if known is not None:
            return known
        self._counted[id(schema)] = 0  # Under way.
        steps = 1 + sum(map(self.count, self._iter_here(schema)))
        if steps > FOREIGN_SCHEMA_STEPS_MAX:
            raise ValueError("it applies too many schemas to one value")
        self._counted[id(schema)] = steps
        return steps

    def _iter_here(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for key in _REFERENCES:
            if isinstance(schema.get(key), str):
                yield self._find(schema[key])
        for key in _HERE:
            yield schema.get(key)
        for key in _HERE_LISTS:
            yield from schema[key] if isinstance(schema.get(key), list) else ()
        for key in _HERE_NAMED:
            yield from schema[key].values() if isinstance(schema.get(key), Mapping) else ()

    def _find(self, reference: str) -> Any:
        if reference in self._anchors:
            return self._anchors[reference]
        if not reference.startswith("#"):
            if reference.startswith(_META_SCHEMAS):
                return None
            raise ValueError(f"it refers to another document, {reference[:80]!r}")
        node: Any = self._root
        for part in unquote(reference[1:]).strip("/").split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                node = node[int(key)] if key.isdigit() and int(key) < len(node) else None
            else:
                node = node.get(key) if isinstance(node, Mapping) else None
        return node


def _iter_schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in it, in whatever place: a reference may point at any of them."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
