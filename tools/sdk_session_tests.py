"""Run the session tests of the OpenAI Agents SDK with `HoldfastSession` in the place of `SQLiteSession`.

    make sdk-sessions
    python tools/sdk_session_tests.py FOLDER [ARGUMENT …] its source distribution, and arguments of pytest

Their tests are not in wheels and no part of this project, and need packages that it does not: so they have an
environment of their own. Each file of their tests that mentions `SQLiteSession` is run, but for those about
other classes. What looks inside of a `SQLiteSession` is skipped; `DIFFERENCES` says what else must fail.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import agents
import agents.memory
import pytest

from holdfast.adapters.openai_agents import HoldfastSession

OTHERS: Final = ("advanced_sqlite", "async_sqlite", "sandbox", "tracing")
"""Files about sessions that are classes of their own, and about what has nothing to do with sessions."""

INSIDES: Final = re.compile(
    r"\._(connections|connections_lock|locked_connection|insert_items|lock|get_connection|shared_connection"
    r"|get_compaction_snapshot)\b|\.db_path\b|agent_messages|agent_sessions|sqlite3\."
)
"""What tests reach for that look at the connections and the tables of a `SQLiteSession`. They are skipped."""

_PART: Final = (
    "compacting a part of the history takes a private method of SQLiteSession; of other sessions, the SDK "
    "compacts all or nothing"
)
_WRONG_KEY: Final = (
    "an encrypted session checks an item before it takes it away by a private method of SQLiteSession"
)
_NOT_REPLACED: Final = "[async-sqlite"
"""Tests with another session class of theirs."""

DIFFERENCES: Final = {
    "test_sqlite_session_closed_rejects_empty_add_items": "a closed session raises holdfast.errors.Closed",
    "test_encrypted_compaction_skips_unencrypted_stored_history": _PART,
    "test_expired_prefix_does_not_block_full_live_window": _PART,
    "test_new_backend_write_invalidates_snapshot": _PART,
    "test_repeated_ttl_bursts_do_not_accumulate_expired_rows": _PART,
    "test_prefix_cleanup_stops_before_retained_history": _PART,
    "test_partial_compaction_does_not_split_tool_call_and_output": _PART,
    "test_partial_compaction_preserves_reasoning_and_its_follower": _PART,
    "test_unverifiable_rows_inside_snapshot_are_retained": _PART,
    "test_backend_read_limit_cannot_hide_retained_history_from_compaction": _PART,
    "test_expired_read_overhead_does_not_authorize_hidden_history": _PART,
    "test_automatic_compaction_rollback_budget[True]": _PART,
    "test_encrypted_pop_wrong_key_preserves_recoverable_history": _WRONG_KEY,
    "test_encrypted_pop_rechecks_authentication_after_expired_tail": _WRONG_KEY,
    "test_encrypted_pop_cancellation_waits_for_authentication_rollback": _WRONG_KEY,
}


class StandIn(HoldfastSession):
    """Made as a `SQLiteSession` is, with a store beside the file it would have."""

    def __init__(self, session_id: str, db_path: str | Path = ":memory:", **options: Any) -> None:
        url = "memory:" if str(db_path) == ":memory:" else f"sqlite:{db_path}.holdfast"
        super().__init__(session_id, url, session_settings=options.get("session_settings"))


def pytest_configure() -> None:
    """Before their tests are imported."""
    for module in (agents, agents.memory):
        setattr(module, "SQLiteSession", StandIn)  # noqa: B010


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is about insides, and expect the differences."""
    for item in items:
        test = getattr(item, "function", None)
        assert test is not None
        if INSIDES.search(inspect.getsource(test)):
            item.add_marker(pytest.mark.skip("it looks inside of SQLiteSession"))
            continue
        why = DIFFERENCES.get(item.name) or DIFFERENCES.get(test.__name__)
        if why is not None and _NOT_REPLACED not in item.name:
            item.add_marker(pytest.mark.xfail(reason=why, strict=True))


def main() -> int:
    """Run them; the exit code of pytest."""
    folder = Path(sys.argv[1]).resolve()
    chosen = [
        str(path)
        for path in sorted((folder / "tests").rglob("test_*.py"))
        if "SQLiteSession" in path.read_text() and not any(name in str(path) for name in OTHERS)
    ]
    here = Path(__file__).resolve()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(folder)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", here.stem, *sys.argv[2:], *chosen]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
