"""A measurement that fails says why, in one line."""

from pathlib import Path

import pytest

from bench.figures import Turns
from bench.runner import Failed, last_error, run_module

PLAIN = """\
Traceback (most recent call last):
  File "/srv/agents/pool.py", line 3, in connect
    raise Locked
sqlite3.OperationalError: database is locked

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/agents/pool.py", line 5, in execute
    raise error
sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) /srv/agents/agents.db is locked
[SQL: INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)]
HINT: the line above is the statement
(Background on this error at: https://sqlalche.me/e/20/e3q8)
"""

GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/srv/agents/child.py", line 9, in take
  |     async with asyncio.TaskGroup() as group:
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/srv/agents/child.py", line 5, in step
    |     raise ValueError("first")
    | ValueError: first
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/srv/agents/child.py", line 6, in step
    |     pool.connect()
    |     ^^^^^^^^^^^^^^
    | sqlalchemy.exc.TimeoutError: QueuePool limit of size 5 reached
More of the message: groups put no bar before it.
    +------------------------------------
"""

BOX = """\
╭──────────── Traceback (most recent call last) ────────────╮
│ /srv/agents/child.py:9 in                               │
│ run_until_complete                                        │
│   8 async def main():                                     │
│ ❱ 9 │   assert step.done                                  │
╰───────────────────────────────────────────────────────────╯
AssertionError
"""


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (PLAIN, "sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) …/agents.db is locked"),
        (GROUP, "sqlalchemy.exc.TimeoutError: QueuePool limit of size 5 reached"),
        (BOX, "AssertionError"),
        ("usage: bench [-h]\nbench: error: no such section\n\n", "bench: error: no such section"),
        ("", ""),
    ],
    ids=["plain", "group", "box", "no traceback", "nothing"],
)
def test_what_failed_is_said_in_one_line(errors: str, said: str) -> None:
    """What was raised, whatever is drawn around it or follows, and no folders of this machine."""
    assert last_error(errors.encode()) == said


def test_a_module_that_fails_says_why(quick_path: Path) -> None:
    """There is no such subject."""
    given = ("1", str(quick_path), "", "nobody")
    with pytest.raises(Failed, match=r"^RuntimeError: .* StopIteration$"):
        run_module("bench.sections.turns", given, Turns, limit_s=60)
    with pytest.raises(Failed, match=r"^ended after 0.01 s$"):
        run_module("bench.sections.turns", given, Turns, limit_s=0.01)
