"""LangGraph's own conformance suite, in full, on every kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from langgraph.checkpoint.conformance import checkpointer_test, validate

from holdfast.adapters.langgraph import HoldfastSaver

from .conftest import on_every_store

EIGHT = {
    "put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune",
}  # fmt: skip


@on_every_store
async def test_all_eight_capabilities_pass_the_public_suite(url: str) -> None:
    """Every test of every capability; none is skipped because it was not detected."""

    @checkpointer_test(name=f"holdfast on {url}")
    async def make() -> AsyncIterator[HoldfastSaver]:
        async with HoldfastSaver.from_url(url) as saver:
            yield saver

    report = await validate(make)
    assert {name for name, result in report.results.items() if result.detected} == EIGHT
    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert sum(result.tests_passed for result in report.results.values()) >= 81
