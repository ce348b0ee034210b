"""Why another one is ahead, and why an aim was missed: what figures do not say. Written by hand after a run.

The page prints a text only where the figures of its run call for it, and counts the cells without one.
"""

from __future__ import annotations

from typing import Final

_WITH_EACH_STEP: Final = (
    "it keeps the messages and nothing else. A step of a journal also has the times of its entries, a "
    "checkpoint, a digest of the messages, and one of all that came before."
)

_MORE_THAN_LOADING: Final = (
    "it decodes the items, and no more. Loading a session folds the facts of every entry (roles, calls, "
    "costs, versions) into its state, checks the chain, and makes typed messages with ids and times: of 81 "
    "thousand instructions a step, counted by callgrind, 52 % are the interpreter's, 29 % decode JSON, 12 % "
    "allocate and copy memory, and 6 % are SQLite's. Messages are decoded a page at a time, and a keyframe "
    "spares what came before it; *Growth* shows that opening without a look at them takes a fraction"
)
_MORE_THAN_OPENING: Final = (
    "opening a store takes 3 to 4 ms longer than opening their connection or file, and the first load of a "
    "process takes about twice as long as the next ones, which are faster than theirs"
)

WHY_AHEAD: Final[dict[tuple[str, str], str]] = {
    ("strands FileSessionManager", "faster"): "it never waits for the disk. *Crashes* shows what a power cut "
    "leaves of its steps.",
    ("strands FileSessionManager", "smaller"): _WITH_EACH_STEP,
    ("OpenAI SQLiteSession", "smaller"): _WITH_EACH_STEP,
    ("OpenAI SQLAlchemySession", "smaller"): _WITH_EACH_STEP,
    **{
        (peer, column): _MORE_THAN_LOADING
        for peer in (
            "OpenAI SQLiteSession",
            "OpenAI SQLAlchemySession",
            "OpenAI SQLAlchemySession PostgreSQL",
            "DBOS SQLite",
            "DBOS PostgreSQL",
        )
        for column in ("opens faster", "loads faster")
    },
    **{
        (peer, "opens faster"): _MORE_THAN_OPENING
        for peer in (
            "AsyncSqliteSaver",
            "AsyncPostgresSaver",
            "graph, AsyncSqliteSaver",
            "graph, AsyncSqliteSaver, DeltaChannel",
            "graph, AsyncPostgresSaver, DeltaChannel",
            "FileStepStore",
        )
    },
}
"""By the name of the other one and the column of *In short*."""

_A_STEP: Final = (
    "a step is 769 thousand instructions, counted by callgrind, which lacks those for SHA-256 and is so slow "
    "that commits go to a thread: 57 % are the interpreter's, 11 % compute digests, 10 % are SQLite's with "
    "its checksums, 8 % allocate and copy memory, and 4 % encode JSON. With a row for each entry it was 879 "
    "thousand. Done so far: one statement for a commit, one chain digest for a chunk, a head that is copied "
    "once. Not tried yet: a path of its own for a single session"
)

WHY_MISSED: Final[dict[str, str]] = {
    "a step on SQLite / a raw transaction": _A_STEP,
    "a step on SQLite / OpenAI `SQLiteSession.add_items`": _A_STEP,
    "a step on PostgreSQL / a raw insert": _A_STEP,
}
"""By the aim, in the words of `verdicts.py`: where the time goes, and what was tried."""
