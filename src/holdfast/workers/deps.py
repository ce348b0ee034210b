"""What the tools of a session are given, made anew for each session that a worker drives."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from ..session.session import Session

MakeDeps: TypeAlias = Callable[[Session], Any]
"""Given the open session. It returns the dependencies, an awaitable of them, or an async context manager that
is left when the session is done with."""


@asynccontextmanager
async def opened(make: MakeDeps | None, session: Session) -> AsyncIterator[Any]:
    """The dependencies of a session, for as long as they are needed."""
    made = None if make is None else make(session)
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, AbstractAsyncContextManager):
        async with made as deps:
            yield deps
    else:
        yield made
