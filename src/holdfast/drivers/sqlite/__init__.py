"""`sqlite:PATH`: one file, several processes, full sync."""

from .driver import SqliteDriver

__all__ = ["SqliteDriver"]
