"""Reading a journal back: through keyframes, up to a version, at a glance."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import Page
from holdfast.core.diff import compare
from holdfast.core.entries import ToolInDoubt, ToolSettled
from holdfast.core.session_state import Keyframe, SessionState
from holdfast.drivers.contract import Done
from holdfast.drivers.memory import MemoryDriver
from holdfast.engine.committer import make_append
from holdfast.engine.journal import Journal, find_erasures
from holdfast.errors import Corrupt
from holdfast.ids import SessionId
from holdfast.limits import READ_CHUNKS
from tests.unit.journals import Plot, Script, fold, perform, picture, plots

S = SessionId("s")


def store(script: Script, cut: int, keyframe: Keyframe | bytes | None) -> MemoryDriver:
    """The journal in two commits, the first of them with a keyframe."""
    driver = MemoryDriver()
    after = None
    for part, frame in ((script.new[:cut], keyframe), (script.new[cut:], None)):
        if part:
            head = fold(script.new[: part[-1].entry.seq]).facts.head
            item = make_append(part, after=after, head=head, keyframe=frame)
            assert driver.commit([item]) == [Done(0)]
            after = item.head.sum
    return driver


@given(plots, st.integers(0, 1000))
def test_a_journal_reads_the_same_with_and_without_a_keyframe(plot: Plot, place: int) -> None:
    """Wherever it was written, it changes nothing but time: not the state, no version, no overview."""
    script = perform(Script(), plot)
    cut = 1 + place % len(script.new)
    journal = Journal(store(script, cut, fold(script.new[:cut]).keyframe()), S)
    assert picture(journal.fold()) == picture(script.state)
    assert journal.overview() == script.state.overview()
    for checkpoint in script.state.checkpoints:
        assert picture(journal.fold(checkpoint.seq)) == picture(fold(script.new[: checkpoint.seq]))


@given(plots, plots)
def test_a_keyframe_of_another_journal_is_ignored(plot: Plot, other: Plot) -> None:
    """It belongs to the chunk whose sum it names, or to nothing."""
    script, stranger = perform(Script(), plot), perform(Script("stranger"), other)
    stranger.set_state(1, 1)
    keyframe = stranger.state.keyframe()
    assert keyframe is not None
    journal = Journal(store(script, len(script.new), keyframe.encode("another sum")), S)
    assert picture(journal.fold()) == picture(script.state)


def test_the_overview_reads_only_the_end_of_a_long_transcript() -> None:
    """Twenty messages, whatever came before them; counters and step come from the keyframe."""
    script = Script()
    for _ in range(300):
        script.add(0, 0)
        script.reply(1, 1)
        script.answer(0, 1)
        script.checkpoint(0, 0)
    driver = CountingDriver(store(script, len(script.new), script.state.keyframe()))
    overview = Journal(driver, S).overview()
    assert overview == script.state.overview()
    assert len(overview.history) == 20
    assert overview.tool_calls.total == 300
    assert overview.iteration == 300
    assert driver.chunks_read < 300 / 5


class CountingDriver(MemoryDriver):
    """Counts the chunks that are read."""

    def __init__(self, inner: MemoryDriver) -> None:
        super().__init__()
        self._journals = inner._journals  # The same chunks; copied through the contract, each would count.
        self.chunks_read = 0

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        found = super().read(session, after, limit, said=said)
        self.chunks_read += found.count
        return found


class MovedDriver(CountingDriver):
    """A disk that gives the first chunk in place of every other."""

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        found = super().read(session, after, limit, said=said)
        if after == 0 or not found.count:
            return found
        return super().read(session, 0, 1, said=said)


@pytest.mark.parametrize("read", ["fold", "overview", "entries", "erase", "page"])
def test_reading_ends_where_a_chunk_leads_back(read: str) -> None:
    """Damage is an error; it is not read over and over."""
    script = perform(Script(), [(Script.add, 0, 0), (Script.checkpoint, 0, 0)] * (READ_CHUNKS + 1))
    driver = MovedDriver(store(script, len(script.new), None))
    journal = Journal(driver, S)
    readers: dict[str, Callable[[], object]] = {
        "fold": journal.fold,
        "overview": journal.overview,
        "entries": lambda: list(journal.entries()),
        "page": lambda: journal.page(READ_CHUNKS + 5, 10),
        "erase": lambda: find_erasures(driver, S, lambda entry: (True, True)),
    }
    with pytest.raises(Corrupt, match="expected entry"):
        readers[read]()


def test_a_state_reports_what_it_was_folded_from() -> None:
    """The head's numbers follow the entries."""
    script = perform(Script(), [(Script.add, 0, 0), (Script.reply, 2, 3), (Script.checkpoint, 0, 0)])
    head = script.state.facts.head
    assert isinstance(script.state, SessionState)
    assert (head.seq, head.messages, head.step, head.version, head.tool_calls) == (5, 2, 1, 1, 2)
    assert (head.usage.tokens, head.usd) == (5, 3 / 8)


def test_a_result_that_was_replaced_is_a_difference() -> None:
    """The result of a call in doubt that the model is shown, before and after it is settled."""
    script = Script()
    script.reply(1, 0)
    call = script.calls[0]
    script.issue(0, 1)
    script.write(ToolInDoubt(call=call, issued=script.seq, why="lost", told=True), b'{"text":"who knows"}')
    issued = script.seq - 1
    script.checkpoint(0, 0)
    before = script.fold()
    settled = ToolSettled(call=call, issued=issued, verdict="landed", by="me", told=True)
    script.write(settled, b'{"text":"it landed"}')
    diff = compare(before, script.state)
    told = [repr(message) for message in (*diff.messages_removed, *diff.messages_added)]
    assert len(told) == 2
    assert "who knows" in told[0]
    assert "it landed" in told[1]
    assert not compare(before, before)
