"""How many bytes a subject takes: `python -m bench.disk DIRECTORY [POSTGRES_URL]`.

SQLite's write-ahead log is first copied into the database, as its next checkpoint would do, and then not
counted: it is used again and again. On PostgreSQL it is the size of the database without that of an empty
one; the server's log is everybody's, and not counted.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

LOGS = ("-wal", "-shm", "-journal")


def files_bytes(directory: Path) -> int:
    """All files below."""
    for log in directory.rglob("*-wal"):
        with closing(sqlite3.connect(str(log).removesuffix("-wal"))) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return sum(
        path.stat().st_size
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith(LOGS)
    )


def database_bytes(url: str) -> int:
    """What the database has more than a new one."""
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT pg_database_size(current_database()) - pg_database_size('template0')"
        ).fetchone()
    assert found is not None
    return int(found[0])


if __name__ == "__main__":
    place, server = sys.argv[1:3]
    print(database_bytes(server) if server else files_bytes(Path(place)))
