"""`postgresql://…`: one store for many machines."""

from ...errors import MissingExtra

try:
    import psycopg as psycopg
except ImportError as error:
    raise MissingExtra("a store in PostgreSQL", "postgres") from error

from .driver import PostgresDriver

__all__ = ["PostgresDriver"]
