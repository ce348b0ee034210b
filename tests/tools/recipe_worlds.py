"""What recipes look at: for each, an effect, the hook that finds it, and what really happened.

A world is named by its class and a place, so that another process can act in it.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import httpx
import psycopg

from holdfast import ToolContext, recipes
from holdfast.http import Transport
from tests.tools.http_services import TIMEOUT_S
from tests.tools.mail_server import open_mailbox

DOMAIN = "shop.example"


class World(Protocol):
    """A part of the world in which something can be done once too often."""

    def __init__(self, place: str) -> None: ...

    def prepare(self) -> None:
        """Make it ready."""

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        """Do it."""

    def hook(self) -> Any:
        """The verify hook."""

    def list_done(self) -> list[str]:
        """What was done."""


class ListedOrders:
    """Orders of a service, found by a field. `place` is its address."""

    def __init__(self, place: str) -> None:
        self.url = f"{place}/orders"

    def prepare(self) -> None:
        """There is nothing to do."""

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        order = {"what": what, "reference": ctx.key}
        made = httpx.post(self.url, json=order, timeout=TIMEOUT_S, trust_env=False).json()
        return f"order {made['id']}"

    def hook(self) -> Any:
        return recipes.find(
            self.url,
            where={"reference": "{ctx.key}", "what": "{what}"},
            result="order {found[id]}",
            settled_after_s=0,
        )

    def list_done(self) -> list[str]:
        return [one["what"] for one in httpx.get(self.url, timeout=TIMEOUT_S, trust_env=False).json()]


class OrdersByRequest(ListedOrders):
    """The same, where the service knows nothing but the `Idempotency-Key` of the tool's request."""

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        with httpx.Client(transport=Transport(), timeout=TIMEOUT_S) as client:
            return f"order {client.post(self.url, json={'what': what}).json()['id']}"

    def hook(self) -> Any:
        return recipes.get(
            self.url + "/{request[key]}",
            where={"what": "{what}"},
            result="order {found[id]}",
            settled_after_s=0,
        )


class WrittenFile:
    """A file whose content is an argument. `place` is the directory."""

    def __init__(self, place: str) -> None:
        self.folder = Path(place)

    def prepare(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        (self.folder / f"{ctx.key}.log").write_text(what)
        os.replace(self.folder / f"{ctx.key}.log", self.folder / "tea.txt")
        self._count()
        return f"wrote {what}"

    def _count(self) -> None:
        with open(self.folder / "count", "a") as count:
            count.write("tea\n")

    def hook(self) -> Any:
        return recipes.file(f"{self.folder}/{{what}}.txt", content="{what}", result="wrote {what}")

    def list_done(self) -> list[str]:
        count = self.folder / "count"
        return count.read_text().split() if count.exists() else []


class AppendedFile(WrittenFile):
    """A file that grows: a second time would be seen in it. The tool notes its digests."""

    def prepare(self) -> None:
        super().prepare()
        (self.folder / "count").write_text("")

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        path = self.folder / "count"
        grown = path.read_text() + what + "\n"
        ctx.annotate(file=recipes.before_writing(path, grown))
        (self.folder / "new").write_text(grown)
        os.replace(self.folder / "new", path)
        return f"wrote {what}"

    def hook(self) -> Any:
        return recipes.file(f"{self.folder}/count", result="wrote {what}")


class SqliteRow:
    """A row in a SQLite database. `place` is its directory."""

    def __init__(self, place: str) -> None:
        self.path = Path(place) / "orders.db"

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=TIMEOUT_S)

    def prepare(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, reference TEXT, what TEXT)")

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        with closing(self.connect()) as connection, connection:
            made = connection.execute("INSERT INTO orders VALUES (NULL, ?, ?)", (ctx.key, what))
            return f"order {made.lastrowid}"

    def hook(self) -> Any:
        return recipes.row(
            self.connect,
            "SELECT id FROM orders WHERE reference = ?",
            ["{ctx.key}"],
            result="order {found[id]}",
            settled_after_s=0,
        )

    def list_done(self) -> list[str]:
        with closing(self.connect()) as connection:
            return [row[0] for row in connection.execute("SELECT what FROM orders")]


class PostgresRow:
    """A row in a table of its own in PostgreSQL. `place` is the URL of the server, and the table's schema."""

    def __init__(self, place: str) -> None:
        self.url, _, self.schema = place.rpartition(" ")

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, options=f"-c search_path={self.schema}")

    def prepare(self) -> None:
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}".encode())
            connection.execute("CREATE TABLE orders (id serial, reference text, what text)")

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        with self.connect() as connection:
            order = connection.execute(
                "INSERT INTO orders (reference, what) VALUES (%s, %s) RETURNING id", (ctx.key, what)
            ).fetchone()
            assert order is not None
        return f"order {order[0]}"

    def hook(self) -> Any:
        return recipes.row(
            self.connect,
            "SELECT id FROM orders WHERE reference = %(key)s AND what = %(what)s",
            {"key": "{ctx.key}", "what": "{what}"},
            result=lambda found: f"order {found['id']}",
            settled_after_s=0,
        )

    def list_done(self) -> list[str]:
        with self.connect() as connection:
            return [row[0] for row in connection.execute("SELECT what FROM orders").fetchall()]


class GitCommit:
    """A commit in a repository at `place`."""

    def __init__(self, place: str) -> None:
        self.folder = place

    def git(self, *arguments: str) -> str:
        person = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgSign=false"]
        done = subprocess.run(
            ["git", "-C", self.folder, *person, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    def prepare(self) -> None:
        Path(self.folder).mkdir(exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        self.git("commit", "--quiet", "--allow-empty", "-m", what, "-m", recipes.trailer(ctx))
        return "committed " + self.git("rev-parse", "HEAD").strip()

    def hook(self) -> Any:
        return recipes.commit(self.folder, result="committed {found[commit]}", settled_after_s=0)

    def list_done(self) -> list[str]:
        return self.git("log", "--all", "--format=%s").split()


class SentMail:
    """A mail in the folder `Sent`. `place` is the port of the server."""

    def __init__(self, place: str) -> None:
        self.port = int(place)

    def prepare(self) -> None:
        """There is a folder already."""

    def act(self, ctx: ToolContext[Any], what: str) -> str:
        id = recipes.message_id(ctx, DOMAIN)
        text = f"Message-ID: {id}\r\nSubject: {what}\r\n\r\nHello.\r\n".encode()
        with open_mailbox(self.port) as box:
            status, _ = box.append('"Sent"', "", "", text)
        assert status == "OK"
        return f"sent {id}"

    def hook(self) -> Any:
        return recipes.mail(
            lambda: open_mailbox(self.port),
            domain=DOMAIN,
            folders=("INBOX", "Sent"),
            result="sent {found[message_id]}",
            settled_after_s=0,
        )

    def list_done(self) -> list[str]:
        with open_mailbox(self.port) as box:
            box.select("Sent", readonly=True)
            _, data = box.search(None, "ALL")
            return ["tea" for _ in data[0].split()]

    def clear(self) -> None:
        """Remove all mails."""
        with open_mailbox(self.port) as box:
            box.select("Sent")
            for number in box.search(None, "ALL")[1][0].split():
                box.store(number.decode(), "+FLAGS", r"(\Deleted)")
            box.expunge()


WORLDS: dict[str, type[World]] = {
    one.__name__: one
    for one in (
        ListedOrders,
        OrdersByRequest,
        WrittenFile,
        AppendedFile,
        SqliteRow,
        PostgresRow,
        GitCommit,
        SentMail,
    )
}
