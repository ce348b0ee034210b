"""The viewer in read-only mode: everything is seen, no form is drawn or taken, nothing is written."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.drivers.contract import Driver
from tests.internals import engine_of
from tests.viewer.visitors import Url, ask, kill, visiting

SESSION_PAGES = tuple(
    f"/sessions/killed{tab}"
    for tab in ("", "/transcript", "/effects", "/state", "/versions", "/entries", "/download/html")
)
WRITES = ("commit", "erase", "delete", "post", "beat", "retire", "claim")


async def test_nothing_is_written(store_url: Url) -> None:
    """Not even what any other reader would tidy up: here, the heartbeat of a process that died."""
    async with holdfast.open_store(store_url) as store:
        await ask(store, "asking", {"to": "ann", "cents": 5})
        await kill(store_url, "killed")
    async with holdfast.open_store(store_url, read_only=True) as store:
        async with visiting(store, read_only=True) as visitor:
            for path in ("/", "/needs", "/needs/list", "/needs/count", "/workers", "/stats", *SESSION_PAGES):
                assert 'method="post"' not in await visitor.get(path)
            answer = await visitor.post("/needs/answer", {"session": "asking"})
            assert answer.status_code == 403
            assert "--read-only" in answer.text


async def test_a_store_that_is_open_to_write_is_not_written_by_the_viewer(store_url: Url) -> None:
    """An application that mounts it so can be sure, whatever its own store may do."""
    async with holdfast.open_store(store_url) as store:
        await ask(store, "asking", {"to": "ann", "cents": 5})
        await kill(store_url, "killed")
        written = note_writes(store)
        async with visiting(store, read_only=True) as visitor:
            for path in ("/", "/needs", *SESSION_PAGES):
                assert "killed" in await visitor.get(path)
        assert written == []
        async with visiting(store) as visitor:
            assert "killed" in await visitor.get("/")
        assert written in (["retire"], []), "another viewer may forget the dead process"


def note_writes(store: holdfast.Store) -> list[str]:
    """Note each call of the driver that writes."""
    driver: Driver = engine_of(store).driver
    written: list[str] = []

    def noted(name: str, method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            written.append(name)
            return method(*args, **options)

        return call

    for name in WRITES:
        setattr(driver, name, noted(name, getattr(driver, name)))
    return written
