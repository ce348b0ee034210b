"""Options and arguments that many commands share. Nothing heavy is imported here: `--help` reads it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

DEFAULT_STORE = "sqlite:holdfast.db"
_SHARED = Group("Common options", sort_key=9)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """What every command understands."""

    store: Annotated[
        str,
        Parameter(
            env_var="HOLDFAST_STORE",
            group=_SHARED,
            help="Where the sessions are, sqlite:PATH or dir:PATH; sqlite:holdfast.db if you do not say. "
            "Commands that only read never make one.",
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
    json: Annotated[bool, Parameter(group=_SHARED, help="One JSON object for programs. Times are UTC.")] = (
        False
    )

    @property
    def again(self) -> str:
        """The options that name the same store and blobs in another command, if they are needed."""
        known = os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE
        from ..redact import without_password

        again = "" if self.store == known else f" --store {shlex.quote(without_password(self.store))}"
        if self.blobs and self.blobs != os.environ.get("HOLDFAST_BLOBS"):
            again += f" --blobs {shlex.quote(without_password(self.blobs))}"
        return again


DEFAULTS = Common()
COMMON_OPTIONS = {f"--{one.name}": not isinstance(one.default, bool) for one in fields(Common)}
"""The options of `Common`, and whether a value follows: they may stand before the command, too."""


def complete_session(context: CompletionContext) -> Iterable[tuple[str, str]]:
    """The ids of the store, for a shell that asks."""
    from .store_access import list_ids

    store = context.get("store")
    given = store.raw if store else None
    return list_ids(given or os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE, context.incomplete)


SessionArg: TypeAlias = Annotated[str, Parameter(completer=complete_session, help="The session's id.")]
CallArg: TypeAlias = Annotated[
    str, Parameter(help="The call's id, or @N for the one at entry N. `holdfast pending` shows both.")
]
TargetArg: TypeAlias = Annotated[
    str, Parameter(help="The agent: module:attribute, file.py:attribute, or file.py with one agent in it.")
]


def _is_no_option(type_: object, value: object) -> None:
    """A lone hyphen is stdin; anything else that begins with one was probably meant as an option."""
    if isinstance(value, str) and value.startswith("-") and value != "-":
        raise ValueError("It looks like an option. A message that begins with a hyphen comes from stdin: -.")


MessageArg: TypeAlias = Annotated[
    str,
    Parameter(allow_leading_hyphen=True, validator=_is_no_option, help="What to say. - reads it from stdin."),
]


def _is_no_debt(type_: object, value: object) -> None:
    """Nobody has fewer than none."""
    if isinstance(value, int) and value < 0:
        raise ValueError("It must not be negative.")


Number: TypeAlias = Annotated[int, Parameter(validator=_is_no_debt)]
By: TypeAlias = Annotated[
    str | None, Parameter(help="Who says so; it is on record. Your login name unless you say otherwise.")
]
Wait: TypeAlias = Annotated[
    float, Parameter(name="--wait", help="Seconds to wait for whoever holds the session.")
]
Yes: TypeAlias = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")]


def who(by: str | None) -> str:
    """Who speaks."""
    import getpass

    return by or getpass.getuser()
