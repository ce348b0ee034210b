"""What large stores and long journals cost.

    python bench/scale.py [--sessions N] [--entries N] [--stores sqlite postgresql] [--directory DIR]
                          [--postgres URL] [--json FILE]

Many sessions: each is a run of an agent with two messages, but that one in a hundred waits for a person, and
one in a hundred has a message that no worker has taken yet. One long session: steps of two messages of 200
characters and a checkpoint. All are true stores: what the library writes, in larger batches.

Each question is asked in a process of its own, which has opened the store. Printed are the time that passed,
in brackets the processors' time of this process, and of the server that was started for it, and the memory
that the process needs at its peak beyond what it had when the store was open. Not a part of `make bench`:
`docs/scale.md` has the figures of one run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import anyio
import psycopg
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    # In the place of this folder: the names of its scripts are those of other people's modules.
    sys.path[0] = str(ROOT)

import holdfast  # noqa: E402
from bench.disk import database_bytes, files_bytes  # noqa: E402
from bench.figures import spoken  # noqa: E402
from bench.machine import describe  # noqa: E402
from bench.server import Server, serve  # noqa: E402
from bench.tables import markdown  # noqa: E402
from bench.texts import pairs  # noqa: E402
from holdfast.core.codec import GENESIS  # noqa: E402
from holdfast.core.entries import Entry, SessionOpened  # noqa: E402
from holdfast.core.pages import Chain  # noqa: E402
from holdfast.core.session_state import SessionState  # noqa: E402
from holdfast.drivers.contract import Append, Done  # noqa: E402
from holdfast.drivers.url import find_driver  # noqa: E402
from holdfast.engine.committer import make_append  # noqa: E402
from holdfast.engine.journal import Journal  # noqa: E402
from holdfast.ids import SessionId, fresh_uid  # noqa: E402
from holdfast.store.approvals import find_waiting  # noqa: E402
from holdfast.store.work_queue import find_due  # noqa: E402
from holdfast.system.clock import utc_now  # noqa: E402

BATCH: Final = 100
"""Sessions in one commit."""
RARE: Final = 100
"""One of so many sessions waits for a person, and one of so many is due."""
CHARACTERS: Final = 200
"""Of a message of the long session."""
LONG: Final = SessionId("long")
LIMIT_S: Final = 1800
TIMES: Final = 5
"""How often a question is asked, …"""
SLOW_S: Final = 3.0
"""… unless it takes longer than this."""


# -- many sessions -----------------------------------------------------------------------------------------


def name_of(number: int) -> str:
    """Ids of sessions are in no order, as those that applications make."""
    return f"chat-{hashlib.sha256(str(number).encode()).hexdigest()[:16]}"


@holdfast.tool(side_effects={"mutate"}, needs_approval=True)
async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return "paid back"


def answer(prompt: holdfast.agents.Prompt) -> str | holdfast.messages.ToolCall:
    """A sentence, or a call that waits for a person."""
    if "refund" in prompt.messages[0].text:
        return holdfast.messages.ToolCall(id="call_1", name="refund", args={"order": "42", "cents": 1900})
    return "It left our warehouse this morning, and should be with you by Thursday."


def make_clerk() -> holdfast.Agent:
    """An agent without a provider."""
    return holdfast.Agent(holdfast.agents.ScriptedModel(answer), name="clerk", tools=[refund])


async def record_session() -> list[Entry]:
    """The entries of one session, from its beginning to its end, as the library writes them."""
    async with holdfast.open_store("memory:") as store:
        await make_clerk().run("Where is order 42?", session="one", store=store)
        return list(Journal(store._engine.driver, SessionId("one")).entries())


def begin_session(entries: Sequence[Entry], name: str) -> Append:
    """The same in a session of its own."""
    state, now, run = SessionState(SessionId(name)), utc_now(), f"clerk-{fresh_uid()[:8]}"
    new = []
    for entry in entries:
        body = entry.body
        if isinstance(body, SessionOpened):
            body = replace(body, id=SessionId(name), uid=fresh_uid())
        content = None if entry.content is None else bytes(entry.content)
        new.append(state.append(body, now, entry.run and run, content))
    return make_append(new, after=None, head=state.facts.head)


async def make_many(url: str, count: int) -> None:
    """A store with so many sessions."""
    entries = await record_session()
    driver = find_driver(url, create=True)()
    numbers = [number for number in range(count) if number % RARE > 1]
    for first in range(0, len(numbers), BATCH):
        batch = [begin_session(entries, name_of(number)) for number in numbers[first : first + BATCH]]
        outcomes = driver.commit(batch)
        assert all(isinstance(one, Done) for one in outcomes), outcomes
    driver.close()
    clerk, limiter = make_clerk(), anyio.CapacityLimiter(BATCH)

    async def wait_for_a_person(name: str) -> None:
        async with limiter:
            outcome = await clerk.run("I want a refund.", session=name, store=store)
        assert outcome.status == "waiting", outcome

    async with holdfast.open_store(url) as store:
        async with anyio.create_task_group() as group:
            for number in range(0, count, RARE):
                group.start_soon(wait_for_a_person, name_of(number))
        for number in range(1, count, RARE):
            await store.submit(name_of(number), "Where is order 43?", agent="clerk")


# -- one long session --------------------------------------------------------------------------------------


async def make_long(url: str, entries: int) -> None:
    """A session of so many entries, three of them a step."""
    source = pairs()
    async with (
        holdfast.open_store(url) as store,
        store.session(LONG, cadence=holdfast.records.Every(steps=BATCH)) as session,
    ):
        for _ in range(entries // 3):
            first, second = (text[:CHARACTERS] for text in next(source))
            await step(session, first, second)


async def step(session: holdfast.Session, first: str, second: str) -> None:
    """Two messages and a checkpoint."""
    await session.add(first)
    await session.add(holdfast.messages.Message(role="assistant", blocks=(holdfast.messages.Text(second),)))
    await session.checkpoint()


def settle(url: str) -> None:
    """Let a server know how much there is: within minutes, it finds out by itself."""
    if url.startswith("postgresql:"):
        with psycopg.connect(url, autocommit=True) as client:
            client.execute("VACUUM ANALYZE")


def drop_keyframes(url: str) -> None:
    """They are only there to be quick: every session can be opened without."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as connection, connection:
            connection.execute("DELETE FROM keyframes")
        return
    with psycopg.connect(url) as client:
        client.execute("DELETE FROM holdfast.keyframes")


# -- questions ---------------------------------------------------------------------------------------------


async def list_page(store: holdfast.Store, count: int) -> None:
    """50 sessions, in the order of ids."""
    found = 0
    async for _ in store.sessions():
        found += 1
        if found == 50:
            return


async def list_newest(store: holdfast.Store, count: int) -> None:
    """50 sessions, the newest first, as `holdfast sessions` lists them."""
    heads = [head async for head in store.sessions()]
    heads.sort(key=lambda head: head.updated_at, reverse=True)
    assert len(heads) == count


async def list_status(store: holdfast.Store, count: int) -> None:
    """The heads of all sessions that wait for a person."""
    assert len([head async for head in store.sessions(status="waiting")]) == count // RARE


async def list_pending(store: holdfast.Store, count: int) -> None:
    """The questions of all these sessions, as `holdfast pending` lists them."""
    assert len(await find_waiting(store)) == count // RARE


async def list_due(store: holdfast.Store, count: int) -> None:
    """What a worker asks for several times a second."""
    engine = store._engine
    found = await engine.call(lambda: find_due(engine, ["clerk"], {}, 10, orphans=True))
    assert len(found) == min(10, count // RARE)


async def load_one(store: holdfast.Store, count: int) -> None:
    """The state of any session, and its messages."""
    number = random.randrange(count // RARE) * RARE + 2
    found = await store.load(name_of(number))
    assert len([message for message in found.transcript if message.text]) == 2


async def write_one(store: holdfast.Store, count: int) -> None:
    """Any session: take its lease, and release it."""
    number = random.randrange(count // RARE) * RARE + 3
    async with store.session(name_of(number), create=False) as session:
        assert session.id


async def open_long(store: holdfast.Store, count: int) -> None:
    """The state, without a look at the messages."""
    found = await store.load(LONG)
    assert found.version >= count // 3
    assert found.status == "active"


async def read_last(store: holdfast.Store, count: int) -> None:
    """The state, and the last message."""
    assert (await store.load(LONG)).transcript[-1].text


async def read_all(store: holdfast.Store, count: int) -> None:
    """The state, and every message."""
    found = await store.load(LONG)
    assert sum(1 for message in found.transcript if message.text) >= count // 3 * 2


async def overlook(store: holdfast.Store, count: int) -> None:
    """The state and the last messages, as `holdfast show --brief` shows them."""
    assert (await store.overview(LONG)).history


async def go_on(store: holdfast.Store, count: int) -> None:
    """Take the lease, take a step, release the lease."""
    async with store.session(LONG, create=False) as session:
        await step(session, "Where is order 42?", "On its way.")


async def fork_latest(store: holdfast.Store, count: int) -> None:
    """A fork of the latest version."""
    await store.fork(LONG)


async def fork_middle(store: holdfast.Store, count: int) -> None:
    """A fork of the version in the middle."""
    await store.fork(LONG, version=count // 6)


async def verify(store: holdfast.Store, count: int) -> None:
    """Compare every chunk, and everything that was said, with the chain of digests."""

    def check() -> int:
        journal = Journal(store._engine.driver, LONG)
        chain = Chain("long", 0, GENESIS)
        for page in journal.pages(said=True):
            for _ in chain.open(page):
                pass
        return chain.seq

    assert await store._engine.call(check) >= count // 3 * 3


Question = Callable[[holdfast.Store, int], Awaitable[None]]

MANY: Final[dict[str, Question]] = {
    "list 50 sessions, by id": list_page,
    "list the newest 50": list_newest,
    "find the sessions that wait for a person": list_status,
    "list what they wait for": list_pending,
    "find 10 sessions that are due": list_due,
    "open one, with its messages": load_one,
    "open one to write: take the lease, release it": write_one,
}
LENGTHY: Final[dict[str, Question]] = {
    "open": open_long,
    "open, and read the last message": read_last,
    "open, and read all messages": read_all,
    "overview with the last 20 messages": overlook,
    "open to write, a step, close": go_on,
    "fork the latest version": fork_latest,
    "fork the version in the middle": fork_middle,
    "verify the whole chain, with all contents": verify,
}
BARE: Final[dict[str, Question]] = {
    "open": open_long,
    "open, and read all messages": read_all,
    "fork the latest version": fork_latest,
}


class Found(NamedTuple):
    """How long something took, and how much memory."""

    what: str
    times_s: list[float]
    worked_s: list[float]
    """Of the processors, in this process: on a busy machine, less than what passed."""
    peak_mb: float
    server_s: float | None = None
    """Of the processors, in the server: for each time, with what it does beside."""


def memory_mb(field: str) -> float:
    """Of this process: `VmRSS` is what it has, `VmHWM` the most that it had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def reset_peak() -> None:
    """Let `VmHWM` begin at what the process has now."""
    Path("/proc/self/clear_refs").write_text("5")


async def ask_here(question: Question, url: str, count: int) -> dict[str, Any]:
    """In a process of its own: ask, several times if it is quick."""
    times: list[float] = []
    worked: list[float] = []
    async with holdfast.open_store(url, create=False) as store:
        reset_peak()
        before = memory_mb("VmRSS")
        while not times or (len(times) < TIMES and times[0] < SLOW_S):
            began, busy = time.perf_counter(), time.process_time()
            await question(store, count)
            times.append(time.perf_counter() - began)
            worked.append(time.process_time() - busy)
    return {"times_s": times, "worked_s": worked, "peak_mb": memory_mb("VmHWM") - before}


async def make_here(make: Callable[[str, int], Awaitable[None]], url: str, count: int) -> dict[str, Any]:
    """In a process of its own: make a store."""
    before, began, busy = memory_mb("VmRSS"), time.perf_counter(), time.process_time()
    await make(url, count)
    passed, worked = time.perf_counter() - began, time.process_time() - busy
    return {"times_s": [passed], "worked_s": [worked], "peak_mb": memory_mb("VmHWM") - before}


def worked_by(pid: int) -> float:
    """The processors' time of a process and all its children, also of those that have ended."""
    ticks, found = os.sysconf("SC_CLK_TCK"), 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue  # It has ended.
        fields = rest.split()
        if int(path.parent.name) == pid:
            found += sum(map(int, fields[11:15])) / ticks
        elif int(fields[1]) == pid:
            found += sum(map(int, fields[11:13])) / ticks
    return found


def in_child(what: str, part: str, url: str, count: int, server: Server | None = None) -> Found:
    """The figures of a process."""
    pid = server.pid if server is not None else None
    before = worked_by(pid) if pid is not None else 0.0
    command = [sys.executable, __file__, "--child", part, what, url, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    found = Found(what, **json.loads(done.stdout))
    if pid is None:
        return found
    return found._replace(server_s=(worked_by(pid) - before) / len(found.times_s))


PARTS: Final = {"many": MANY, "long": LENGTHY, "bare": BARE}


def run_child(part: str, what: str, url: str, count: int) -> None:
    """What a child does."""
    if part == "make":
        make = make_many if what == "many" else make_long
        found = anyio.run(make_here, make, url, count)
    else:
        found = anyio.run(ask_here, PARTS[part][what], url, count)
    print(json.dumps(found))


# -- the run -----------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """Everything that was found out about one store."""

    title: str
    store: str
    disk_mb: float
    found: list[Found]


def measure(store: str, folder: Path, options: argparse.Namespace) -> Iterator[Table]:
    """Both parts on one store, each in a place of its own."""

    def size_mb(url: str, place: Path) -> float:
        return (database_bytes(url) if url.startswith("postgresql") else files_bytes(place)) / 1e6

    for part, count, title in (
        ("many", options.sessions, f"{options.sessions:,} sessions"),
        ("long", options.entries, f"a journal of {options.entries:,} entries"),
    ):
        if not count:
            continue
        place = folder / f"{store}-{part}"
        place.mkdir()
        with ExitStack() as opened:
            where, server = f"sqlite:{place}/agents.db", None
            if store == "postgresql":
                server = options.server
                where = opened.enter_context(server.database())
            found = [in_child(part, "make", where, count, server)._replace(what="make it")]
            note(store, found[-1])
            disk_mb = size_mb(where, place)
            settle(where)
            for what in PARTS[part]:
                found.append(in_child(what, part, where, count, server))
                note(store, found[-1])
            yield Table(title, store, disk_mb, found)
            if part == "long":
                bare = []
                for what in BARE:
                    drop_keyframes(where)
                    bare.append(in_child(what, "bare", where, count, server))
                    note(store, bare[-1])
                yield Table(f"{title}, without its keyframe", store, disk_mb, bare)


def note(store: str, found: Found) -> None:
    """Tell how far it has come."""
    print(f"{store}: {found.what}: {shown(found)}", file=sys.stderr, flush=True)


def shown(found: Found) -> str:
    """Medians of what passed and of the processors' time, and the memory."""
    passed, worked = (_time(median(times)) for times in (found.times_s, found.worked_s))
    server = "" if found.server_s is None else f" + {_time(found.server_s)}"
    return f"{passed} ({worked}{server}), {found.peak_mb:.0f} MB"


def _time(seconds: float) -> str:
    return f"{spoken(seconds)} s" if seconds >= 1 else f"{spoken(seconds * 1000)} ms"


def print_tables(tables: Sequence[Table]) -> None:
    """Stores side by side."""
    for title in dict.fromkeys(one.title for one in tables):
        sides = [one for one in tables if one.title == title]
        rows = [["bytes on disk", *(f"{spoken(one.disk_mb)} MB" for one in sides)]]
        for number, found in enumerate(sides[0].found):
            cells = [one.found[number] for one in sides]
            rows.append([found.what, *map(shown, cells)])
        print("\n".join([f"\n{title}\n", *markdown(["", *(one.store for one in sides)], rows)]))


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sessions", type=int, default=100_000, help="0 leaves them out")
    parser.add_argument("--entries", type=int, default=1_000_000, help="0 leaves them out")
    parser.add_argument(
        "--stores", nargs="+", choices=("sqlite", "postgresql"), default=("sqlite", "postgresql")
    )
    parser.add_argument("--postgres", help="a server to measure, in place of one that is started")
    parser.add_argument("--directory", type=Path, help="where to write (the temporary directory)")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        part, what, url, count = options.child
        run_child(part, what, url, int(count))
        return
    with ExitStack() as opened:
        folder = Path(
            opened.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-scale-", dir=options.directory))
        )
        folder.chmod(0o755)
        about = describe(folder, " ".join(["python bench/scale.py", *sys.argv[1:]]))
        options.server = None
        if "postgresql" in options.stores:
            options.server = opened.enter_context(serve(options.postgres, options.directory))
            about["PostgreSQL"] = options.server.version
        tables: list[Table] = []
        for store in options.stores:
            tables += measure(store, folder, options)
    print("\n".join(markdown(["", ""], [[name, what] for name, what in about.items()])))
    print_tables(tables)
    if options.json:
        options.json.write_text(json.dumps({"about": about, "tables": tables}, indent=1))


if __name__ == "__main__":
    # Children are the same code.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    main()
