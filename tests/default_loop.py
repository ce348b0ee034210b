"""The event loop that frameworks make for sync code, and leave to the thread."""

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def closed_after() -> Iterator[None]:
    """Close it after the block. Else the garbage collector finds it, and fails whichever test runs then."""
    try:
        yield
    finally:
        with warnings.catch_warnings(), suppress(RuntimeError):  # There is none.
            warnings.simplefilter("ignore", DeprecationWarning)
            asyncio.get_event_loop().close()
        asyncio.set_event_loop(None)
