"""Behind a pooler that hands every transaction to another connection: the same promises, without LISTEN."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import holdfast
from holdfast.drivers.contract import Driver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.testing import DriverSuite
from holdfast.testing.conformance.author import Author
from tests.server import NOBODY
from tests.stores import drop, schema_of

_PORT = 6432
_START_S = 30.0


def _find_pgbouncer() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        why = "PgBouncer is missing: apt-get install pgbouncer"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return found


@pytest.fixture(scope="module")
def bouncer(postgres: str) -> Iterator[str]:
    """The URL of a pooler in transaction mode, with fewer connections than its clients have."""
    program = _find_pgbouncer()
    given = conninfo_to_dict(postgres)
    wanted = ("host", "port", "user", "password")
    server = " ".join(f"{key}={given[key]}" for key in wanted if given.get(key))
    with tempfile.TemporaryDirectory(prefix="hf-pgb-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = {server}\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n"
            f"listen_port = {_PORT}\nunix_socket_dir = {folder}\ndefault_pool_size = 3\n"
            "server_reset_query =\nmax_client_conn = 200\n"
        )
        owner = pwd.getpwnam(NOBODY) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        for path in (folder, folder / "pgbouncer.ini"):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [program, str(folder / "pgbouncer.ini")],
                stdout=log,
                stderr=log,
                user=owner.pw_uid if os.geteuid() == 0 else None,
            )
        try:
            url = f"postgresql://{given.get('user', 'postgres')}@/{given.get('dbname', 'postgres')}"
            url += f"?host={folder}&port={_PORT}"
            _wait_for(url, process, folder / "log")
            yield url
        finally:
            process.kill()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"PgBouncer does not start: {error}\n{log.read_text()}") from error
            time.sleep(0.02)


@pytest.mark.long
class TestPgBouncer(DriverSuite):
    @pytest.fixture(autouse=True)
    def _pooler(self, bouncer: str, tmp_path: Path) -> Iterator[None]:
        self._url = bouncer
        yield
        drop([schema_of(tmp_path)])

    def make_driver(self, tmp_path: Path) -> Driver:
        return PostgresDriver(self._url, schema=schema_of(tmp_path))


async def test_a_store_works_behind_a_pooler(bouncer: str, tmp_path: Path) -> None:
    """Sessions, tools and forks; nothing is left on the pooler's connections."""
    schema = schema_of(tmp_path)
    try:
        async with holdfast.open_store(bouncer, schema=schema) as store:
            for name in ("a", "b", "c"):
                async with store.session(name) as session:
                    await session.add("hello")
                    await session.checkpoint()
            await store.fork("a", into="d")
            await store.delete("a")
            assert [head.session async for head in store.sessions()] == ["b", "c", "d"]
        with psycopg.connect(bouncer) as connection:
            assert connection.execute("SELECT name FROM pg_prepared_statements").fetchall() == []
    finally:
        drop([schema])


def test_the_driver_does_not_listen_through_a_pooler(bouncer: str, tmp_path: Path) -> None:
    """The connection that would listen is shared. A wait ends at its timeout."""
    driver = PostgresDriver(bouncer, schema=schema_of(tmp_path))
    try:
        author = Author("a")
        author.begin(driver)
        for _ in range(3):
            driver.wait_for_work(0.01)
        with psycopg.connect(bouncer) as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN holdfast%'"
            before = connection.execute(query.encode()).fetchone()
            driver.wait_for_work(0.01)
            assert connection.execute(query.encode()).fetchone() == before
        # Other stores may listen on this server, which does not say through what they do.
        assert driver._listener._connection is None
        driver.post(author.session, b"{}")
    finally:
        driver.close()
        drop([schema_of(tmp_path)])
