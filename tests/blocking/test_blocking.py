"""The same store and sessions for code without an event loop."""

import contextvars
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

import holdfast
from holdfast import Budget, LeaseHeld, blocking
from holdfast.agents import ScriptedModel
from holdfast.drivers.contract import Append, ClaimChange, Driver, Outcome
from holdfast.drivers.memory import MemoryDriver
from holdfast.drivers.url import find_driver
from holdfast.engine.journal import Journal
from holdfast.errors import BadId, BadInput, BadUrl, BudgetSpent, Closed, Fenced, NotFound, RunExists
from holdfast.records import Codec, Every, Parent, Plan, Usage
from holdfast.store import store as async_store
from tests.drivers import in_thread
from tests.interrupts import one_interrupt
from tests.session.example_sessions import StoreUrl, calling, results, texts


def step(session: blocking.Session, text: str) -> int:
    session.add(text)
    return session.checkpoint()


def test_a_session_is_written_and_found_again(store_url: StoreUrl, tmp_path: Path) -> None:
    """Everything that a session holds, without an event loop in sight."""
    with blocking.open_store(store_url) as store, store.session("s", labels={"tenant": "a"}) as session:
        session.add("hello")
        session.add({"role": "user", "content": "foreign"}, format="openai")
        session.set("k", {"n": {1, 2}})
        session.set("gone", 1)
        session.unset("gone")
        session.set_plan(Plan(goal="g"))
        session.set_summary("so far")
        session.set_budget(Budget(usd=3))
        root = session.set_scratchpad(tmp_path / "pad")
        session.label(team="blue", tenant=None)
        session.flush()
        assert session.checkpoint("first") == 1
        session.close("waiting", "for you")
    assert session.is_lost
    with blocking.open_store(store_url) as store, store.session("s", wait_s=1, cadence="call") as session:
        assert session.id == "s"
        assert texts(session.transcript) == ["hello", "foreign"]
        assert (session.get("k"), session.get("k", dict), session.keys) == (
            {"n": {1, 2}},
            {"n": {1, 2}},
            ("k",),
        )
        assert (session.plan, session.summary, session.budget.caps) == (
            Plan(goal="g"),
            "so far",
            Budget(usd=3),
        )
        assert (session.scratchpad, session.labels) == (root, {"team": "blue"})
        assert (session.version, session.status, session.state.version) == (1, "waiting", 1)
        assert [one.name for one in session.checkpoints] == ["first"]
        assert (session.problems, session.continuable, session.in_doubt) == ((), True, [])
        assert session.left_behind(1) == []
        assert (session.cancel_requested, session.is_lost, session.fence > 1) == (None, False, True)


def test_versions_are_dropped_rewound_and_gone_on_from(store_url: StoreUrl) -> None:
    """As in the async session."""
    with blocking.open_store(store_url) as store:
        with store.session("s", cadence=Every(steps=2)) as session:
            assert [step(session, text) for text in "abc"] == [1, 2, 3]
            session.drop(2)
            assert session.rewind(steps=1).version == 1
            assert session.rewind(version=3).version == 3
            session.add(calling("x"))
            assert session.continue_() == 3
            session.add(calling("x"))
            session.add(results("x"))
            assert session.checkpoint() == 4
        assert [one.version for one in store.checkpoints("s")] == [1, 3, 4]
        assert texts(store.load("s", 3).transcript) == ["a", "b", "c"]
        assert texts(store.load("s").transcript)[-2:] == ["let me see", ""]
        assert texts(store.diff("s", 1, 3).messages_added) == ["b", "c"]
        store.drop("s", 3)
        assert [one.version for one in store.checkpoints("s")] == [1, 4]
        assert store.overview("s").tool_calls.total == 2
        assert store.fork("s", version=1, into="f", labels={"a": "b"}) == "f"
        assert texts(store.load("f").transcript) == ["a"]


def test_a_run_inside_another_finds_its_parent(store_url: StoreUrl) -> None:
    """In the same thread, in the same session or another one; entries carry the run they were made in."""
    with blocking.open_store(store_url) as store:
        with store.session("one") as one, store.session("two") as two:
            with one.run(run_id="a", agent="outer") as run:
                assert run.id == "a"
                one.add("in a")
                with two.run(run_id="b"):
                    two.add("in b")
                    with one.run(run_id="c"):
                        one.add("in c")
                    two.add("in b again")
                one.add("in a again")
                with pytest.raises(RunExists), one.run(run_id="a"):
                    pytest.fail("started twice")
                one.add("still in a")
                with two.run(run_id="d", parent="elsewhere"):
                    pass
            one.add("in none")
            with two.run(run_id="e"):
                pass
        parents = {run.run: run.parent for run in store.runs()}
        said = {
            name: [entry.run for entry in store.tail(name, follow=False) if entry.kind == "message.added"]
            for name in ("one", "two")
        }
        assert [run.run for run in store.runs(session="two", parent="a")] == ["b"]
    assert parents == {
        "a": None,
        "b": Parent(session="one", run="a"),
        "c": Parent(session="two", run="b"),
        "d": Parent(run="elsewhere"),
        "e": None,
    }
    assert said == {"one": ["a", "c", "a", "a", None], "two": ["b", "b"]}


def test_every_entry_of_a_run_is_marked_as_its_own(store_url: StoreUrl) -> None:
    """From its first line to its last, requests included."""
    with blocking.open_store(store_url) as store:
        with store.session("s") as session, session.run(run_id="r") as run:
            with run.request(model="m") as request:
                request.reply("hi", usage=Usage(output_tokens=2), cost_usd=0.5, latency_ms=1.0)
            session.checkpoint()
        journal = list(store.tail("s", follow=False))
    kinds = ["run.started", "model.requested", "model.replied", "checkpoint.taken", "run.completed"]
    assert [(entry.kind, entry.run) for entry in journal[2:-1]] == [(kind, "r") for kind in kinds]


def test_the_end_of_a_run_is_what_it_was_told_or_what_happened(store_url: StoreUrl) -> None:
    """Completed, failed, cancelled, paused, an exception, Ctrl-C."""
    with blocking.open_store(store_url) as store:
        with store.session("s") as session:
            with session.run() as run:
                run.complete({"answer": 42})
            with session.run() as run:
                run.fail("step_limit")
            with session.run() as run:
                run.cancel("enough")
            with session.run() as run:
                run.pause("approval")
            with pytest.raises(ZeroDivisionError), session.run():
                raise ZeroDivisionError
            with pytest.raises(KeyboardInterrupt), session.run():
                raise KeyboardInterrupt
            assert session.status == "cancelled"
        found = [(run.status, run.reason) for run in store.runs()]
    assert found == [
        ("completed", ""),
        ("failed", "step_limit"),
        ("cancelled", "enough"),
        ("paused", "approval"),
        ("failed", "error"),
        ("cancelled", "KeyboardInterrupt"),
    ]


def test_a_budget_is_enforced_before_the_request(store_url: StoreUrl) -> None:
    """Reserved while it is under way; freed by an error; refused beyond the cap."""
    with blocking.open_store(store_url) as store, store.session("s") as session, session.run() as run:
        session.set_budget(Budget(usd=1))
        with run.request(reserve_usd=0.6, reserve_tokens=5) as request:
            assert session.budget.reserved.usd == 0.6
            request.reply(calling("x"), cost_usd=0.25)
        with pytest.raises(ConnectionError), run.request(reserve_usd=0.6):
            raise ConnectionError
        assert (session.budget.usd, session.budget.reserved.usd) == (0.25, 0)
        with pytest.raises(BudgetSpent), run.request(reserve_usd=0.8):
            pytest.fail("asked")


def test_others_send_and_follow(store_url: StoreUrl) -> None:
    """From another store object, while a session is held; the follower gets entries as they come."""
    with blocking.open_store(store_url) as holder, blocking.open_store(store_url) as other:
        with holder.session("s") as session:
            assert other.submit("s", "hello?", key="k") == 1
            assert other.submit("s", {"role": "user", "content": "hi"}, format="openai") == 2
            assert other.cancel("s", by="ann", reason="stop") == 3
            session.add("mine")
            session.flush()
            assert texts(session.transcript) == ["mine", "hello?", "hi"]
            assert session.cancel_requested == "stop"
            assert session.take_in() == 0
            tail = other.tail("s", after=2)
            assert next(tail).kind == "message.added"
            step(session, "more")
            assert "checkpoint.taken" in [entry.kind for entry in islice(tail, 7)]
            with pytest.raises(LeaseHeld), other.session("s"):
                pytest.fail("two holders")
        assert [entry.seq for entry in other.tail("s", follow=False)] == list(range(1, 12))


def test_a_follower_waits_for_the_next_entry(store_url: StoreUrl) -> None:
    """In a thread of its own, like any code without an event loop."""
    with (
        blocking.open_store(store_url) as writer,
        blocking.open_store(store_url) as reader,
        writer.session("s") as session,
        ThreadPoolExecutor() as pool,
    ):
        waiting = pool.submit(lambda: next(reader.tail("s", after=2)))
        session.add("at last")
        assert waiting.result(timeout=20).kind == "message.added"


def test_sessions_and_runs_are_listed(store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """As plain iterators that page by themselves, with the same filters."""
    monkeypatch.setattr("holdfast.store.store.PAGE_ROWS", 2)
    with blocking.open_store(store_url) as store:
        for number in range(5):
            with (
                store.session(f"s{number}", labels={"n": str(number)}, parent=Parent(session="p")) as session,
                session.run(run_id=f"r{number}"),
            ):
                pass
        assert [head.session for head in store.sessions()] == [f"s{number}" for number in range(5)]
        assert [
            head.session for head in store.sessions(label={"n": "3"}, parent="p", status="completed")
        ] == ["s3"]
        assert list(store.sessions(interrupted=True)) == []
        assert [run.run for run in store.runs()] == [f"r{number}" for number in range(5)]
        assert next(store.sessions()).session == "s0"


def test_a_session_is_cleaned_and_deleted(store_url: StoreUrl) -> None:
    """In the three ways of the async store."""
    with blocking.open_store(store_url) as store:
        with store.session("s") as session:
            step(session, "secret")
        assert store.clean("s", checkpoints=False) == "cleaned"
        assert texts(store.load("s").transcript) == ["[erased]"]
        assert store.clean("s", transcript=False) == "cleaned"
        assert list(store.checkpoints("s")) == []
        store.delete("s")
        with pytest.raises(NotFound):
            store.load("s")
        with pytest.raises(NotFound):
            list(store.tail("s"))


def test_a_resource_is_held_by_one(store_url: StoreUrl) -> None:
    """And whoever lost it finds out."""
    with (
        blocking.open_store(store_url) as one,
        blocking.open_store(store_url) as two,
        one.session("a") as a,
        two.session("b") as b,
    ):
        with a.hold("file") as held:
            assert (held.name, held.fence) == ("file", 1)
            held.check()
            with pytest.raises(LeaseHeld), b.hold("file"):
                pytest.fail("two holders")
        with b.hold("file", wait_s=1) as held:
            assert held.fence == 2
            take_away(store_url, "file")
            with pytest.raises(Fenced):
                held.check()


def take_away(url: StoreUrl, name: str) -> None:
    driver: Driver = find_driver(url, create=False)()
    key = f"hold:{name}"
    driver.claim(ClaimChange(key=key, expect=driver.find_claim(key), record='{"fence":9}'))
    driver.close()


def test_threads_share_a_store(store_url: StoreUrl) -> None:
    """Each with a session of its own; the runs of one thread are not around those of another."""
    with blocking.open_store(store_url) as store:
        together = threading.Barrier(8)

        def work(number: int) -> None:
            with store.session(f"s{number}") as session, session.run(run_id=f"r{number}"):
                together.wait(20)
                for text in "abc":
                    step(session, text)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert all(run.parent is None for run in store.runs())
        for number in range(8):
            assert texts(store.load(f"s{number}").transcript) == ["a", "b", "c"]


def test_a_thread_that_copies_its_context_is_in_the_run(store_url: StoreUrl) -> None:
    """As with any context variable."""
    with blocking.open_store(store_url) as store:
        with store.session("s") as session, session.run(run_id="outer"):

            def delegate() -> None:
                with store.session("d") as other, other.run(run_id="inner"):
                    pass

            thread = threading.Thread(target=contextvars.copy_context().run, args=(delegate,))
            thread.start()
            thread.join()
        assert [run.run for run in store.runs(parent="outer")] == ["inner"]


def test_errors_are_the_same_as_with_an_event_loop(store_url: StoreUrl) -> None:
    """Ours, raised where the call was made."""
    with pytest.raises(BadUrl, match="sqlite"), blocking.open_store("sqlit:x.db"):
        pytest.fail("opened")
    with blocking.open_store(store_url) as store:
        with pytest.raises(BadId), store.session("a/b"):
            pytest.fail("opened")
        with pytest.raises(NotFound), store.session("s", create=False):
            pytest.fail("found")
        with store.session("s") as session:
            with pytest.raises(NotFound):
                session.get("nothing")
            with pytest.raises(LeaseHeld, match="already"), store.session("s"):
                pytest.fail("opened twice")
        with pytest.raises(Closed):
            session.add("too late")


def test_an_error_in_the_block_goes_on_after_everything_was_closed(store_url: StoreUrl) -> None:
    """What was recorded is kept, and the lease is given back."""
    with (
        pytest.raises(ZeroDivisionError),
        blocking.open_store(store_url, linger_s=1000) as store,
        store.session("s") as session,
    ):
        fail_after(session)
    with blocking.open_store(store_url) as store, store.session("s") as session:
        assert texts(session.transcript) == ["before"]


def fail_after(session: blocking.Session) -> None:
    session.add("before")
    raise ZeroDivisionError


def test_a_closed_store_says_so(store_url: StoreUrl) -> None:
    """Also to iterators that outlived it; none of them hangs or warns."""
    before = threading.active_count()
    with blocking.open_store(store_url) as store:
        with store.session("s") as session:
            step(session, "a")
        left = store.tail("s")
        next(left)
        broken_off = store.sessions()
        next(broken_off)
        del broken_off
    with pytest.raises(Closed):
        store.load("s")
    with pytest.raises(Closed):
        next(left)
    with pytest.raises(Closed), store.session("s"):
        pytest.fail("opened")
    del left
    gc.collect()
    assert threading.active_count() <= before


def test_an_iterator_that_is_broken_off_lets_go(store_url: StoreUrl) -> None:
    """A `for` with a `break` leaves nothing running behind it."""
    with blocking.open_store(store_url) as store:
        with store.session("s") as session:
            step(session, "a")
        for _ in range(3):
            for _entry in store.tail("s"):
                break
        assert texts(store.load("s").transcript) == ["a"]


def test_codecs_and_options_are_handed_on(store_url: StoreUrl) -> None:
    """What `open_store` takes, this one takes."""

    class Money:
        def __init__(self, amount: str) -> None:
            self.amount = amount

    codec = Codec(type=Money, encode=lambda money: money.amount, decode=Money, name="money")
    with blocking.open_store(store_url, codecs=[codec], lease_s=60, linger_s=0, create=True) as store:
        with store.session("s") as session:
            session.set("due", Money("3.50"))
        with store.session("s") as session:
            assert session.get("due", Money).amount == "3.50"


def test_the_public_names_are_sorted() -> None:
    """And each of them exists."""
    assert blocking.__all__ == sorted(blocking.__all__)
    assert all(hasattr(blocking, name) for name in blocking.__all__)


FOR_THE_LAYERS_ABOVE = {"loop_config", "open_session"}
DONE_BY_THE_WITH_BLOCK = {"aclose", "enter_context", "leave_context"}


@pytest.mark.parametrize("name", ["Agent", "Hold", "Request", "Run", "Session", "Store"])
def test_whatever_the_async_one_can_do_can_be_done_here(name: str) -> None:
    """Every public method and property, with the same parameters."""
    module = holdfast.records if name in holdfast.records.__all__ else holdfast
    theirs, ours = getattr(module, name), getattr(blocking, name)
    for attribute, value in inspect.getmembers(theirs):
        if attribute.startswith("_") or attribute in FOR_THE_LAYERS_ABOVE | DONE_BY_THE_WITH_BLOCK:
            continue
        found = getattr(ours, attribute, None)
        assert found is not None, f"blocking.{name}.{attribute} is missing"
        if inspect.isfunction(value):
            assert list(inspect.signature(found).parameters) == list(inspect.signature(value).parameters)


def test_type_checkers_see_what_the_async_classes_have() -> None:
    """The stub file is what tools/blocking_stubs.py makes of them."""
    root = Path(__file__).resolve().parents[2]
    made = subprocess.run(
        [sys.executable, root / "tools" / "blocking_stubs.py"], capture_output=True, text=True, check=True
    )
    stub = root / "src" / "holdfast" / "blocking" / "__init__.pyi"
    assert stub.read_text() == made.stdout, f"run: python tools/blocking_stubs.py > {stub.name}"


async def test_a_session_of_an_event_loop_is_refused() -> None:
    """It would be used in two loops at once. A store may be."""
    agent = blocking.Agent(ScriptedModel(["Hello."]))
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        with pytest.raises(BadInput, match=r"session 's' is open in an event loop: pass its id"):
            agent.run("Hi", session=session)  # type: ignore[arg-type]
    with pytest.raises(Closed, match="the store is not open"):
        blocking.Registry().settle_all(holdfast.open_store("memory:"))


def test_a_person_answers_from_code_without_an_event_loop(store_url: StoreUrl) -> None:
    """Calls in doubt and calls that wait are found over the whole store, and settled."""
    registry = holdfast.Registry([pay, ask_first])
    with blocking.open_store(store_url) as store:
        with store.session("s") as session:
            for tool in ("pay", "ask_first"):
                blocking.Registry([pay, ask_first]).dispatch(
                    tool, {"cents": 5}, call_id=tool, session=session
                )
            assert [row.tool for row in session.in_doubt] == ["pay"]
            assert [row.tool for row in session.settle(registry)] == ["pay"]
        assert [doubt.effect.tool for doubt in store.in_doubt()] == ["pay"]
        store.resolve("s", "pay", "landed", by="ann", result="paid")
        store.refuse("s", "ask_first", by="ann", reason="no")
        with store.session("s") as session:
            assert session.in_doubt == []
            assert session.state.facts.head.waiting == 0
        assert list(store.in_doubt()) == []
        with pytest.raises(NotFound):
            store.approve("s", "ask_first", by="ann")


@holdfast.tool(side_effects={"mutate"})
def pay(cents: int) -> str:
    """Pay, or not: the line breaks."""
    raise ConnectionError("who knows")


@holdfast.tool(side_effects={"mutate"}, needs_approval=True)
def ask_first(cents: int) -> str:
    """Pay if a person agrees."""
    raise AssertionError("nobody agreed")


def test_ctrl_c_ends_a_wait_and_harms_nothing(store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows a session and has seen enough; the store goes on, and closes without hanging."""
    waiting = threading.Event()
    read_page = async_store._page  # Watched: when a reader begins to wait shows nowhere else.

    def notice(journal: Journal, after: int) -> list[holdfast.records.Entry] | None:
        found = read_page(journal, after)
        if not found:
            waiting.set()
        return found

    def follow(tail: Iterator[holdfast.records.Entry]) -> None:
        with one_interrupt() as press:
            threading.Thread(target=lambda: waiting.wait(300) and press()).start()
            next(tail)

    monkeypatch.setattr(async_store, "_page", notice)
    with blocking.open_store(store_url) as store, store.session("s") as session:
        tail = store.tail("s", after=2)
        with pytest.raises(KeyboardInterrupt):
            follow(tail)
        assert list(tail) == []
        assert step(session, "goes on") == 1
        assert texts(store.load("s").transcript) == ["goes on"]


def test_a_forked_child_is_told_that_the_store_is_its_parents(tmp_path: Path) -> None:
    """The thread that would do the work did not come along: an error at once, and it leaves the block."""
    url = f"sqlite:{tmp_path}/agents.db"
    child = os.fork()
    if child == 0:
        refused = 0
        with blocking.open_store(url) as store, store.session("s") as session:
            step(session, "one")
            if (grandchild := os.fork()) == 0:
                signal.alarm(20)
                for use in (lambda: store.load("s"), lambda: step(session, "two")):
                    with pytest.raises(Closed, match="parent of this process"):
                        use()
                    refused += 1
            else:
                assert os.waitpid(grandchild, 0)[1] == 0
                step(session, "three")
        os._exit(0 if grandchild or refused == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    with blocking.open_store(url) as store:
        assert texts(store.load("s").transcript) == ["one", "three"]


def test_a_blob_is_put_and_read_without_an_event_loop(store_url: StoreUrl) -> None:
    """As a whole, and in parts."""
    with blocking.open_store(store_url) as store:
        blob = store.put_blob(b"large" * 5, media_type="text/plain", name="a.txt")
        with store.open_blob(blob.reference) as opened:
            assert (opened.blob.name, opened.read()) == ("a.txt", b"large" * 5)
        with store.open_blob(blob.reference) as opened:
            assert b"".join(opened) == b"".join(store.read_blob(blob.digest)) == b"large" * 5
        with pytest.raises(NotFound), store.open_blob("0" * 64):
            pass


def test_ctrl_c_while_a_session_is_opened_does_not_leave_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came too late to stop it, and nobody else would close it."""
    driver = MemoryDriver()
    with blocking.open_store(driver) as store:
        commit = driver.commit

        with monkeypatch.context() as disk, one_interrupt() as press:

            def slowly(batch: Sequence[Append]) -> Sequence[Outcome]:
                press()
                return commit(batch)

            disk.setattr(driver, "commit", in_thread(slowly))
            opening = store.session("s")
            with pytest.raises(KeyboardInterrupt):
                opening.__enter__()
        with store.session("s"):
            pass


def test_who_still_waits_when_the_store_is_left_is_told_that_it_was_closed() -> None:
    """And not by an error of somebody else's."""
    found: list[BaseException] = []

    def follow(store: blocking.Store) -> None:
        try:
            for _ in store.tail("s"):
                begun.set()
        except BaseException as error:
            found.append(error)

    begun = threading.Event()
    threads: list[threading.Thread] = []

    def fail() -> None:
        with blocking.open_store("memory:") as store:
            with store.session("s"):
                pass
            threads.append(threading.Thread(target=follow, args=(store,)))
            threads[0].start()
            assert begun.wait(30)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    threads[0].join(30)
    assert [type(error) for error in found] == [Closed]
