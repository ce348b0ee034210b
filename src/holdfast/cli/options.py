"""Options and arguments that several commands share.

`--help` reads this module, so nothing heavy is imported here. An option without a help text here has it in
the docstring of each command that takes it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Group, Parameter

from .exit_codes import Exit, Stop

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

DEFAULT_STORE = "sqlite:holdfast.db"
_SHARED = Group("Common options", sort_key=9)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """The options of every command that opens a store."""

    store: Annotated[
        str,
        Parameter(
            env_var="HOLDFAST_STORE",
            group=_SHARED,
            help="Where the sessions are: sqlite:PATH, dir:PATH or postgresql://…; sqlite:holdfast.db by "
            "default. Commands that only read never create it.",
        ),
    ] = DEFAULT_STORE
    blobs: Annotated[
        str | None,
        Parameter(
            env_var="HOLDFAST_BLOBS",
            group=_SHARED,
            help="Where large content is kept, if not in the store itself: dir:PATH, s3://bucket/prefix …",
        ),
    ] = None
    json: Annotated[bool, Parameter(group=_SHARED, help="Print one JSON object. Times are UTC.")] = False

    @property
    def store_options(self) -> str:
        """The options that name the same store and blobs in another command, if they are needed."""
        known = os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE
        return _name_store(
            None if self.store == known else self.store,
            None if self.blobs == os.environ.get("HOLDFAST_BLOBS") else self.blobs,
        )

    @property
    def explicit_options(self) -> str:
        """The same, needed or not: for a page that is read elsewhere and later."""
        return _name_store(self.store, self.blobs)


def _name_store(store: str | None, blobs: str | None) -> str:
    from ..redact import without_password

    named = (("--store", store), ("--blobs", blobs))
    return "".join(f" {option} {shlex.quote(without_password(url))}" for option, url in named if url)


DEFAULTS = Common()
COMMON_OPTIONS = {f"--{each.name}": not isinstance(each.default, bool) for each in fields(Common)}
"""The options of `Common`, and whether a value follows: they may also stand before the command."""


# -- sessions, calls, agents --------------------------------------------------------------------------


def complete_session(context: CompletionContext) -> Iterable[tuple[str, str]]:
    """The session ids of the store, for the shell's completion."""
    from .store_access import list_ids

    store = context.get("store")
    given = store.raw if store else None
    return list_ids(given or os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE, context.incomplete)


SessionArg: TypeAlias = Annotated[str, Parameter(completer=complete_session, help="The session's id.")]
OptionalSession: TypeAlias = Annotated[str | None, Parameter(completer=complete_session)]
CallArg: TypeAlias = Annotated[
    str, Parameter(help="The call's id, or @N for the one at entry N. `holdfast pending` shows both.")
]
TargetArg: TypeAlias = Annotated[
    str, Parameter(help="The agent: module:attribute, file.py:attribute, or file.py with one agent in it.")
]
Deps: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="What its tools get as ctx.deps: module:attribute or file.py:attribute; a function is called."
    ),
]


# -- messages and labels ------------------------------------------------------------------------------


def _reject_option(type_: object, value: object) -> None:
    """A lone hyphen is stdin; anything else that begins with one was probably meant as an option."""
    if isinstance(value, str) and value.startswith("-") and value != "-":
        raise ValueError("It looks like an option. Pass a message that begins with a hyphen on stdin: -.")


MessageArg: TypeAlias = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True, validator=_reject_option, help="The message. - reads it from stdin."
    ),
]


def read_message(message: str) -> str:
    """The text of a `MessageArg`."""
    return sys.stdin.read() if message == "-" else message


Labels: TypeAlias = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]


def parse_labels(given: Iterable[str]) -> dict[str, str]:
    """The names and values of `Labels`."""
    found: dict[str, str] = {}
    for label in given:
        name, equals, value = label.partition("=")
        if not (name and equals and value):
            raise Stop(Exit.USAGE, f"a label is written name=value, not {label!r}")
        found[name] = value
    return found


# -- the rest -----------------------------------------------------------------------------------------


def _reject_negative(type_: object, value: object) -> None:
    if isinstance(value, int) and value < 0:
        raise ValueError("It must not be negative.")


Number: TypeAlias = Annotated[int, Parameter(validator=_reject_negative)]
Quiet: TypeAlias = Annotated[bool, Parameter(name=["--quiet", "-q"], help="Show no progress.")]
Wait: TypeAlias = Annotated[
    float, Parameter(name="--wait", help="Seconds to wait while another process holds the session.")
]
Yes: TypeAlias = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")]
By: TypeAlias = Annotated[
    str | None, Parameter(help="The person who answers, for the record; your login name by default.")
]


def user_name(by: str | None) -> str:
    """The value of `By`, or the login name."""
    import getpass

    return by or getpass.getuser()
