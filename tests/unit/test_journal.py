"""Reading a journal back: through keyframes, up to a version, at a glance."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.diff import compare
from holdfast.core.entries import ToolInDoubt, ToolSettled
from holdfast.core.session_state import SessionState
from holdfast.drivers.contract import Append, Done
from holdfast.drivers.memory import MemoryDriver
from holdfast.engine.journal import Journal
from holdfast.ids import SessionId
from tests.unit.journals import Plot, Script, fold, perform, picture, plots

S = SessionId("s")


def store(script: Script, cut: int, keyframe: bytes | None) -> MemoryDriver:
    """The journal in two commits, the first of them with a keyframe."""
    driver = MemoryDriver()
    after = None
    for part, frame in ((script.sealed[:cut], keyframe), (script.sealed[cut:], None)):
        if part:
            item = Append(
                session=S,
                after=after,
                first_seq=part[0].entry.seq,
                lines=tuple(one.line for one in part),
                kinds=tuple(one.entry.kind for one in part),
                head=fold(script.sealed[: part[-1].entry.seq]).facts.head,
                keyframe=frame,
            )
            assert driver.commit([item]) == [Done(0)]
            after = part[-1].sum
    return driver


@given(plots, st.integers(0, 1000))
def test_a_journal_reads_the_same_with_and_without_a_keyframe(plot: Plot, place: int) -> None:
    """Wherever it was written, it changes nothing but time: not the state, no version, no overview."""
    script = perform(Script(), plot)
    cut = 1 + place % len(script.sealed)
    journal = Journal(store(script, cut, fold(script.sealed[:cut]).keyframe()), S)
    assert picture(journal.fold()) == picture(script.state)
    assert journal.overview() == script.state.overview()
    for checkpoint in script.state.checkpoints:
        assert picture(journal.fold(checkpoint.seq)) == picture(fold(script.sealed[: checkpoint.seq]))


@given(plots, plots)
def test_a_keyframe_of_another_journal_is_ignored(plot: Plot, other: Plot) -> None:
    """It belongs to the line whose sum it names, or to nothing."""
    script, stranger = perform(Script(), plot), perform(Script("stranger"), other)
    stranger.set_state(1, 1)
    journal = Journal(store(script, len(script.sealed), stranger.state.keyframe()), S)
    assert picture(journal.fold()) == picture(script.state)


def test_the_overview_reads_only_the_end_of_a_long_transcript() -> None:
    """Twenty messages, whatever came before them; counters and step come from the keyframe."""
    script = Script()
    for _ in range(300):
        script.add(0, 0)
        script.reply(1, 1)
        script.answer(0, 1)
        script.checkpoint(0, 0)
    driver = CountingDriver(store(script, len(script.sealed), script.state.keyframe()))
    overview = Journal(driver, S).overview()
    assert overview == script.state.overview()
    assert len(overview.history) == 20
    assert overview.tool_calls.total == 300
    assert overview.iteration == 300
    assert driver.lines_read < len(script.sealed) / 5


class CountingDriver(MemoryDriver):
    """Counts the lines that are read."""

    def __init__(self, inner: MemoryDriver) -> None:
        super().__init__()
        self._journals = inner._journals  # The same lines; copied through the contract, each would count.
        self.lines_read = 0

    def read(self, session: SessionId, after: int, limit: int) -> list[bytes]:
        found = list(super().read(session, after, limit))
        self.lines_read += len(found)
        return found


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
