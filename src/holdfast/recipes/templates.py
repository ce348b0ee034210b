"""Texts of recipes in which `{…}` stands for what is known of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from string import Formatter
from typing import Any, Final
from urllib.parse import quote

from ..core.effects import REQUESTS
from ..errors import BadInput
from ..redact import scrub
from ..tools.context import AnyContext
from ..tools.schema import parameters_of, wants_context

_OWN: Final = frozenset({"ctx", "request", "found"})
"""Names that have a meaning of their own in a text."""


class CannotTell(Exception):
    """The question cannot be asked, or its answer does not say what became of the effect."""


class NotBegun(Exception):
    """What the body records before it acts is not on record: it has not acted."""


class CallNames(Mapping[str, Any]):
    """The names that a text may contain, with their values for one call. `found` is what was found, if the
    text is for the result."""

    def __init__(self, ctx: AnyContext, args: Mapping[str, Any], **found: Any) -> None:
        self.ctx, self.args, self._found = ctx, args, found

    def __getitem__(self, name: str) -> Any:
        if name in self.args and name in _OWN:
            raise CannotTell(f"{{{name}}} may mean the argument: use a function in place of the text")
        if name == "request":
            return find_request(self.ctx.notes)
        return {"ctx": self.ctx, **self.args, **self._found}[name]

    def __iter__(self) -> Iterator[str]:
        return iter({*self.args, *_OWN})

    def __len__(self) -> int:
        return len({*self.args, *_OWN})


def find_request(notes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request that the tool made, from the notes of the call. `NotBegun` if it surely made none."""
    noted = notes.get(REQUESTS)
    requests = [one for one in noted if isinstance(one, Mapping)] if isinstance(noted, list) else []
    sent = {str(one.get("key")): one for one in requests if one.get("sent") is not False}
    if len(sent) > 1:
        raise CannotTell(f"the tool made {len(sent)} requests: use a function that says which one is meant")
    if not sent:
        raise NotBegun
    return next(iter(sent.values()))


class Template:
    """A text with names in `{…}`, a function of the context and the tool's arguments, or a plain value."""

    def __init__(self, source: object, what: str) -> None:
        self._source, self._what = source, what
        self.names: frozenset[str] = frozenset()
        """The arguments of the tool that it needs."""
        if isinstance(source, str):
            self.names = _names_in(source, what) - _OWN
        elif callable(source):
            parameters = parameters_of(source)
            self.names = frozenset(one.name for one in parameters if one.kind is not one.VAR_KEYWORD)
            self._takes_context = wants_context(source)
            self._takes_any = len(self.names) < len(parameters)

    def fill(self, names: CallNames, *, in_url: bool = False) -> Any:
        """The text for a call. A text that is nothing but one name has that value's own type.

        `in_url`: values are quoted, and one that would change the path is refused.
        """
        source = self._source
        if callable(source):
            args = {key: value for key, value in names.args.items() if self._takes_any or key in self.names}
            return source(*((names.ctx,) if self._takes_context else ()), **args)
        if not isinstance(source, str):
            return source
        try:
            if in_url:
                return _InUrl().vformat(source, (), names)
            parts = list(Formatter().parse(source))
            if len(parts) == 1 and parts[0][0] == "" and not parts[0][2] and not parts[0][3]:
                return Formatter().get_field(str(parts[0][1]), (), names)[0]
            return Formatter().vformat(source, (), names)
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise CannotTell(f"{self._what}={scrub(source)!r} cannot be filled in ({why})") from error


class Templates:
    """A mapping of templates, or a function that returns a mapping."""

    def __init__(self, source: Mapping[str, object] | Callable[..., Mapping[str, object]], what: str) -> None:
        self._what = what
        self._all = Template(source, what) if callable(source) else None
        if self._all is None and not isinstance(source, Mapping):
            raise BadInput(f"{what} is a mapping, or a function that returns one; not {source!r}")
        given = {} if callable(source) else source
        self._each = {name: Template(value, f"{what}[{name!r}]") for name, value in given.items()}
        inner = self._each.values() if self._all is None else (self._all,)
        self.names = frozenset(name for one in inner for name in one.names)

    def fill(self, names: CallNames) -> dict[str, Any]:
        """The mapping for a call."""
        if self._all is None:
            return {name: one.fill(names) for name, one in self._each.items()}
        made = self._all.fill(names)
        if not isinstance(made, Mapping):
            raise CannotTell(f"{self._what} returned no mapping")
        return dict(made)


class _InUrl(Formatter):
    """Quotes each value, so that it stays one part of the URL."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        text = format(value, format_spec)
        if text in ("", ".", ".."):
            raise ValueError(f"{text!r} in an address would name another one")
        return quote(text, safe="")


def _names_in(text: str, what: str) -> frozenset[str]:
    try:
        fields = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
        names = frozenset(str(Formatter().get_field(field, (), _AnyName())[0]) for field in fields)
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise BadInput(f"{what}={scrub(text)!r} is not a text with names in {{…}}: {error}") from error
    if any(not name.isidentifier() for name in names):
        raise BadInput(f"{what}={scrub(text)!r}: between braces belongs the name of an argument, or ctx.key")
    return names


class _AnyName(Mapping[str, Any]):
    """Gives each name as itself, whatever is asked of it."""

    def __getitem__(self, name: str) -> Any:
        return _Name(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Name:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> _Name:
        return self

    def __getitem__(self, name: object) -> _Name:
        return self

    def __str__(self) -> str:
        return self._name
