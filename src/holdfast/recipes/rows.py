"""Look for a row in a database."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from typing import Any

from ..errors import BadInput
from ..limits import SETTLED_AFTER_S
from ..redact import scrub
from ..reprs import attempt, describe_error
from ..tools.context import AnyContext
from ..tools.schema import wants_context
from .templates import CallNames, CannotTell, Template, Templates
from .verify_hook import ResultOf, Trace, VerifyHook, in_thread, make_hook


def row(
    connect: Callable[..., Any],
    query: str,
    parameters: Sequence[object] | Mapping[str, object],
    *,
    result: ResultOf = None,
    settled_after_s: float = SETTLED_AFTER_S,
) -> VerifyHook:
    """Find the row that the effect has left in a database.

        verify=recipes.row(
            lambda: sqlite3.connect("shop.db"), "SELECT id FROM orders WHERE reference = ?", ["{ctx.key}"]
        )

    `connect` gives a connection of any DB-API module, which is then closed, or one of psycopg's or
    aiosqlite's async ones, or a context manager with a connection, as pools give it. It is called with the
    context if it wants it. The query is sent as it is, and not committed; texts with names are for its
    parameters only.

    One row means that it landed, none that it did not, several are `Unsure`. An error is, too. `found` is the
    row by the names of its columns. For a file that only this machine writes, pass `settled_after_s=0`.
    """
    if isinstance(parameters, str | bytes):
        raise BadInput(f"parameters is a list: write [{parameters!r}] for one of them")
    named = Templates(parameters, "parameters") if isinstance(parameters, Mapping) else None
    listed = () if named is not None else tuple(Template(one, "parameters") for one in parameters)

    async def question(names: CallNames) -> Trace | None:
        values: Any = named.fill(names) if named is not None else [one.fill(names) for one in listed]
        try:
            rows = await _ask(connect, names.ctx, query, values)
        except Exception as error:
            if isinstance(error, CannotTell):
                raise
            raise CannotTell(f"the database answered {scrub(describe_error(error))}") from error
        if len(rows) > 1:
            raise CannotTell("the query gives more than one row")
        return Trace(rows[0]) if rows else None

    uses = listed if named is None else (named,)
    return make_hook("row", question, uses, result=result, settled_after_s=settled_after_s)


Rows = list[dict[str, Any]]
_TWO = 2
"""Rows that are read: enough to know that there is more than one."""


async def _ask(connect: Callable[..., Any], ctx: AnyContext, query: str, values: Any) -> Rows:
    if attempt(lambda: wants_context(connect), lambda: False):
        connect = partial(connect, ctx)
    if inspect.iscoroutinefunction(connect):
        return await _ask_async(await connect(), query, values)
    made = await in_thread(partial(_begin, connect, query, values))
    if isinstance(made, list):
        return made
    if inspect.isawaitable(made):
        return await _ask_async(await made, query, values)
    async with made as connection:
        return await _read_async(connection, query, values)


def _begin(connect: Callable[..., Any], query: str, values: Any) -> Any:
    """The rows; or what the caller has to await for an async connection, or to enter. All in one thread,
    because a connection may belong to it."""
    made = connect()
    if inspect.isawaitable(made) or (
        isinstance(made, AbstractAsyncContextManager) and not isinstance(made, AbstractContextManager)
    ):
        return made
    if not hasattr(made, "cursor"):
        with made as connection:
            return _read(connection, query, values)
    try:
        return _read(made, query, values)
    finally:
        made.close()


def _read(connection: Any, query: str, values: Any) -> Rows:
    cursor = connection.cursor()
    try:
        cursor.execute(query, values)
        return _by_name(cursor.description, cursor.fetchmany(_TWO))
    finally:
        cursor.close()
        with suppress(Exception):  # What was read is what counts.
            connection.rollback()


async def _ask_async(connection: Any, query: str, values: Any) -> Rows:
    try:
        return await _read_async(connection, query, values)
    finally:
        await connection.close()


async def _read_async(connection: Any, query: str, values: Any) -> Rows:
    cursor = await connection.execute(query, values)
    try:
        return _by_name(cursor.description, await cursor.fetchmany(_TWO))
    finally:
        await cursor.close()
        with suppress(Exception):  # As above.
            await connection.rollback()


def _by_name(description: Sequence[Sequence[Any]] | None, rows: Sequence[Any]) -> Rows:
    if description is None:
        raise CannotTell("the query returns no rows: it has to be a SELECT")
    names = [str(column[0]) for column in description]
    return [dict(one) if isinstance(one, Mapping) else dict(zip(names, one, strict=False)) for one in rows]
