"""Which of the combinations are run."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test of tools runs on asyncio with every store, and on trio with one in memory.

    Drivers run in threads and know nothing of event loops: the other combinations would show nothing new.
    """
    left: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        params = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        needless = params.get("anyio_backend") == "trio" and params.get("store_url", "memory") != "memory"
        (left if needless and item.path.is_relative_to(HERE) else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept
