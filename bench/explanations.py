"""Why another one is ahead, and why an aim was missed: what figures do not say. Written by hand after a run.

The page prints a text only where the figures of its run call for it, and counts the cells without one.
"""

from __future__ import annotations

from typing import Final

_WITH_EACH_STEP: Final = (
    "it keeps the messages and nothing else. A step of a journal also has the times of its entries, a "
    "checkpoint, a digest of the messages, and one of all that came before."
)

_MORE_THAN_INSERTING: Final = (
    "a step hands over three entries in three calls, folds them, and seals them with digests; theirs "
    "inserts two rows in a thread. When both take single steps in turns, each takes about as long (the "
    "table below); of the rounds of many steps here, theirs gain more from warm caches. Keyframes are not "
    "the cause: a session that writes none is as fast"
)
_MORE_THAN_LOADING: Final = (
    "it decodes the items, and no more. Loading a session folds the facts of every entry (roles, calls, "
    "costs, versions) into its state, checks the chain, and makes typed messages with ids and times. Of "
    "70 ms of processor time for 3,000 steps, SQLite takes 16, decoding messages 14, decoding facts 5, "
    "folding them into a transcript 15, and naming the messages and looking at them 7. Messages are "
    "decoded a page at a time, while a thread reads the next page, and a keyframe spares what came before "
    "it; *Growth* shows that opening without a look at them takes a fraction. Tried with little gain: "
    "other sizes of pages, no garbage collection. Reading a row for each chunk takes SQLite half of the "
    "time, but asks for the interpreter with every row, for which a busy event loop lets it wait"
)
_GET_ITEMS: Final = f"`get_items` is quick: {_MORE_THAN_LOADING}"
_MORE_THAN_OPENING: Final = (
    "a store makes two connections, and on SQLite each of them parses the schema with its views for "
    "people (0.6 ms, and up to three times as long in a thread), and the files that they have open are "
    "compared with those at the paths. The first load of a process takes about twice as long as the next "
    "ones, which are faster than theirs. Opening no longer imports what reads the resources of packages, "
    "which took half of its time in a new process"
)

WHY_AHEAD: Final[dict[tuple[str, str], str]] = {
    ("strands FileSessionManager", "faster"): "it never waits for the disk. *Crashes* shows what a power cut "
    "leaves of its steps.",
    ("strands FileSessionManager", "smaller"): _WITH_EACH_STEP,
    ("OpenAI SQLiteSession", "faster"): _MORE_THAN_INSERTING,
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
    "a step was 769 thousand instructions, counted by callgrind, which lacks those for SHA-256 and is so "
    "slow that commits go to a thread: 57 % are the interpreter's, 11 % compute digests, 10 % are "
    "SQLite's with its checksums, 8 % allocate and copy memory, and 4 % encode JSON. With a row for each "
    "entry it was 879 thousand. Done so far: one statement for a commit, one chain digest for a chunk, a "
    "head that is copied once; a path of its own for a single session, without batches, waiters and "
    "futures; no decoding of what the library has just encoded; fewer looks at the files and at the "
    "length of SQLite's log. The last three took a sixth of the processor time of a step on SQLite, and "
    "13 % of its bytecodes (5,130 to 4,440). Of what is left, half is the interpreter's on the way from "
    "`add` to the driver, a sixth makes the chunk, and a third is the driver's: SQLite writes three to "
    "five pages of 8 KB to its log"
)
_A_DISPATCH: Final = (
    "it is 2,540 bytecodes in 106 calls, none of which stands out: two fifths record and fold the entry, "
    "a fifth checks and encodes arguments and result, the rest finds the tool, passes the gates and "
    "enters the body. A seventh of the time is its share of a commit in the thread. On this machine, "
    "35 µs are about a thousand bytecodes"
)
_TWO_COMMITS: Final = (
    "it is 9,450 bytecodes: the two commits with four turns of the event loop are two fifths of them, a "
    "task of its own for the body with its timeout and its grace is less than a tenth; gates, ledger and "
    "the fold of two entries are the rest. Both commits go the way of a single session. Not tried: to begin "
    "the body without a task, which would help only bodies that never wait"
)
_MANY: Final = (
    "everything but the transaction is a session's own, and costs as much as with one session: three "
    "entries that are encoded and folded, a chunk with its digests, and a task that waits and is woken "
    "up. A raw batch is one statement for all. What was saved on a step is saved here as well, but for "
    "the path of a single session"
)
_EMPTY_PAGES: Final = (
    "each of 19 tables and indices has at least one page of 8 KB, and 15 of them have next to nothing on "
    "it: 0.06 of the bytes of 1,000 steps, and 0.006 of those of 10,000. A keyframe is another 0.03"
)

WHY_MISSED: Final[dict[str, str]] = {
    "a step on SQLite / a raw transaction": _A_STEP,
    "a step on SQLite / OpenAI `SQLiteSession.add_items`": _A_STEP,
    "a step on PostgreSQL / a raw insert": _A_STEP,
    "bytes per byte, SQLite, after 1,000 steps": _EMPTY_PAGES,
    **{
        f"opening {steps:,} steps with all messages / `get_items`, {where}": _GET_ITEMS
        for steps in (3000, 10_000)
        for where in ("in a new process", "from an open store")
    },
    "1,000 sessions at once below raw batches, SQLite": _MANY,
    "a mutating dispatch / its two raw commits": _TWO_COMMITS,
    "a pure dispatch beyond pydantic's validation": _A_DISPATCH,
    "a read dispatch beyond pydantic's validation": _A_DISPATCH,
    **{
        f"a fresh saver's first `get_tuple` after 1,000 steps / {saver}'s": _MORE_THAN_OPENING
        for saver in ("AsyncSqliteSaver", "AsyncPostgresSaver")
    },
}
"""By the aim, in the words of `verdicts.py`: where the time goes, and what was tried."""
