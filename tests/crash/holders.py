"""Processes that hold a session, do what they are told, and can be stopped at a chosen moment."""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from holdfast import HoldfastError, LeaseHeld, Session, Store, open_store
from holdfast.drivers.contract import Append, Driver, Outcome
from holdfast.engine import heartbeat
from holdfast.ids import SessionId
from holdfast.system.clock import boot_s
from tests.internals import engine_of
from tests.stores import open_driver

from .acknowledged import Acks
from .fork_server import Line, die_with_parent

SESSION = SessionId("fought-over")
_CLONE_NEWPID = 0x20000000


class StoppingDriver:
    """A driver that stops its process right before or right after a commit, when asked to.

    Never in the middle of a heartbeat: a process that is stopped while it has the database locked makes
    everybody wait for it, whoever it is.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._beating = threading.Lock()
        self.stop_before_commit = self.stop_after_commit = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        if self.stop_before_commit:
            self.stop_before_commit = False
            self.stop()
        outcomes = self._driver.commit(batch, wait=wait)
        if self.stop_after_commit:
            self.stop_after_commit = False
            self.stop()
        return outcomes

    def beat(self, *args: Any) -> Any:
        with self._beating:
            return self._driver.beat(*args)

    def stop(self) -> None:
        """Stop here, until somebody continues this process."""
        with self._beating:
            # Sent to this very thread, so that it does not get one step further.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class Holder:
    """Holds the session and obeys."""

    def __init__(self, line: Line, driver: StoppingDriver, acks: Acks) -> None:
        self._line, self._driver, self._acks = line, driver, acks

    async def obey(self, store: Store, session: Session) -> None:
        self._acks.lines(session)
        self._line.say({"fence": session.fence, "name": engine_of(store).heartbeat.name})
        while (order := await anyio.to_thread.run_sync(self._line.hear)) != "leave":
            try:
                await self._do(order, store, session)
                self._line.say("done")
            except HoldfastError as error:
                self._line.say(type(error).__name__)

    async def _do(self, order: str, store: Store, session: Session) -> None:
        match order:
            case "stop":
                self._driver.stop()
            case "stop before a commit":
                self._driver.stop_before_commit = True
            case "stop after a commit":
                self._driver.stop_after_commit = True
            case "fork":
                self._line.say(_fork_and_stay(self._line))
            case "write":
                await session.add("from the holder")
                await session.flush()
            case "checkpoint":
                await session.set("n", session.state.seq)
                await session.checkpoint("here")
            case "rewind":
                await session.rewind(version=session.checkpoints[0].version)
            case "drop":
                await session.drop(session.checkpoints[0].version)
            case "run":
                async with session.run(agent="a") as run, run.request(reserve_usd=0.01) as request:
                    await request.reply("hello")
            case "run by name":
                async with session.run(run_id=f"run-{os.urandom(4).hex()}"):
                    pass
            case "close":
                await session.close("completed")
            case "erase":
                await store.clean(session.id, checkpoints=False)
            case _:
                raise AssertionError(order)
        if not session.is_lost:
            self._acks.lines(session)


WRITING = ("write", "checkpoint", "rewind", "drop", "run", "run by name", "close")
"""Orders that write to the journal."""


def _fork_and_stay(line: Line) -> int:
    """A child, as a program may have some, that outlives its parent."""
    pid = os.fork()
    if pid:
        return pid
    line.wait_for_the_end()


# -- in children --------------------------------------------------------------------------------------


def hold(
    line: Line,
    url: str,
    acks: str,
    *,
    lease_s: float = 30.0,
    wait_s: float = 0.0,
    boot: str | None = None,
    lock: bool = True,
    temporary: str | None = None,
    namespace: bool = False,
) -> float:
    """Hold the session and obey; how long it took to get it.

    `boot` fakes another machine, `lock=False` one where no lock can be had, `temporary` a container with
    temporary files of its own, `namespace` one with process ids of its own.
    """
    if boot is not None:
        setattr(heartbeat, "boot_id", lambda: boot)  # noqa: B010
    if not lock:
        # Where there is no lock is for the system to say; this process says it in its place.
        setattr(heartbeat._KernelLock, "take", lambda holder: None)  # noqa: B010
    if temporary is not None:
        Path(temporary).mkdir(exist_ok=True)
        tempfile.tempdir = temporary

    def act() -> float:
        return anyio.run(_hold, line, url, Acks(Path(acks)), lease_s, wait_s)

    return _in_namespace(act) if namespace else act()


async def _hold(line: Line, url: str, acks: Acks, lease_s: float, wait_s: float) -> float:
    began_s = boot_s()
    driver: Any = StoppingDriver(await anyio.to_thread.run_sync(open_driver, url))
    async with open_store(driver, lease_s=lease_s) as store:
        async with store.session(SESSION, wait_s=wait_s) as session:
            took_s = boot_s() - began_s
            await Holder(line, driver, acks).obey(store, session)
        return took_s


def _in_namespace(act: Callable[[], float]) -> float:
    """Do it in a process that is number 1 of its own namespace. Never returns there: it is killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWPID):
        raise PermissionError(ctypes.get_errno(), "unshare")
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        return act()
    os.waitpid(pid, 0)
    os._exit(0)


def take(line: Line, url: str, lease_s: float = 60.0) -> dict[str, Any]:
    """Try to take the session once, at a moment that the test chooses; keep it until told to go on."""
    return anyio.run(_take, line, url, lease_s)


async def _take(line: Line, url: str, lease_s: float) -> dict[str, Any]:
    driver = await anyio.to_thread.run_sync(open_driver, url)
    async with open_store(driver, lease_s=lease_s) as store:
        # Alive and beating before the race begins.
        async with store.session(f"of-{os.getpid()}"):
            line.say("ready")
            await anyio.to_thread.run_sync(line.hear)
        began_s = boot_s()
        try:
            async with store.session(SESSION) as session:
                line.say({"fence": session.fence, "took_s": boot_s() - began_s})
                await anyio.to_thread.run_sync(line.hear)
        except LeaseHeld as held:
            line.say({"held": str(held)})
            await anyio.to_thread.run_sync(line.hear)
    return {}


def find_life(line: Line, url: str) -> dict[str, Any]:
    """Who holds the session, and whether it counts as alive, as seen by somebody who just came."""
    return anyio.run(_find_life, url)


async def _find_life(url: str) -> dict[str, Any]:
    async with open_store(await anyio.to_thread.run_sync(open_driver, url)) as store:
        lease = (await store.load(SESSION)).facts.head.lease
        if lease is None:
            return {"alive": False}
        life = await anyio.to_thread.run_sync(engine_of(store).heartbeat.judge, lease.holder)
        return {"alive": life.alive, "left_s": life.left_s, "fence": lease.fence, "holder": lease.holder}


def read_journal(line: Line, url: str) -> list[str]:
    """The facts of the journal's chunks."""
    driver = open_driver(url)
    try:
        return driver.read(SESSION, 0, 10_000, said=False).facts.decode().split("\n")
    finally:
        driver.close()
