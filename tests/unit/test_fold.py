"""The fold: one journal, one state, however it is reached."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.codec import GENESIS, Page
from holdfast.core.entries import Entry, InboxCancel, InboxMessage, InboxTaken, SessionClosed, UnknownBody
from holdfast.core.pages import Chain, open_page
from holdfast.core.session_state import FOLD_VERSION, read_keyframe
from holdfast.records import SessionState
from tests.unit import chunks_by_hand
from tests.unit.journals import (
    Plot,
    Script,
    chunks_of,
    contents_of,
    fold,
    perform,
    picture,
    plots,
    spoken,
    transcript_of,
)


@given(plots, st.integers(1, 20), st.booleans())
def test_a_journal_that_is_read_folds_to_the_state_that_wrote_it(plot: Plot, commit: int, said: bool) -> None:
    """What was live in the writer is what every reader computes from the chunks, however many entries were
    committed at once; what was said can be read later."""
    script = perform(Script(), plot)
    chunks = chunks_of(script.new, commit=commit)
    again = SessionState(script.state.facts.head.session, contents=contents_of(chunks))
    for chunk in Chain("the script").open(Page.of(chunks, said=said)):
        for entry in chunk.entries:
            again.apply(entry)
    assert picture(again) == picture(script.state)


@settings(max_examples=300)
@given(plots)
def test_the_transcript_is_what_a_naive_reader_would_say(plot: Plot) -> None:
    """Through rewinds, compactions, queued messages and results in any order."""
    script = perform(Script(), plot)
    assert spoken(script.state) == script.witness.spoken


@given(plots)
def test_every_version_loads_as_it_was_when_it_was_taken(plot: Plot) -> None:
    """Nothing that happens later, no rewind and no dropping of others, changes an earlier version."""
    script = Script()
    taken: dict[int, object] = {}
    for action, a, b in plot:
        action(script, a, b)
        version = script.state.facts.head.version
        if version and version not in taken and script.state.get_checkpoint(version).seq == script.seq:
            taken[version] = picture(script.state), script.witness.spoken
    for checkpoint in script.state.facts.checkpoints.values():
        then = script.fold(checkpoint.seq)
        assert (picture(then), spoken(then)) == taken[checkpoint.version]


@settings(max_examples=60)
@given(plots)
def test_folding_a_part_writing_it_down_and_folding_the_rest_is_folding_all(plot: Plot) -> None:
    """At every entry a keyframe may stand in for all that came before it, whenever the transcript is looked
    at."""
    script = perform(Script(), plot)
    whole = picture(script.state)
    state = SessionState(script.state.facts.head.session)
    for place, new in enumerate(script.new, start=1):
        state.apply(new.entry)
        keyframe = state.keyframe()
        assert keyframe is not None
        chunks = chunks_of(script.new, ends=place)
        sum = next(chunk.sum for chunk in chunks if chunk.seq == place)
        frame = read_keyframe(keyframe.encode(sum))
        assert frame is not None
        assert (frame.seq, frame.sum) == (place, sum)
        for look in ("at once", "after the rest was read", "after the rest was written"):
            resumed = SessionState.from_keyframe(frame, transcript_of(chunks))
            assert resumed is not None
            assert resumed.facts.head.sum == sum
            if look == "at once":
                resumed.end_reading(None)
                assert picture(resumed) == picture(state)
            elif look == "after the rest was written":
                resumed.end_reading(state.facts.head.messages)
            for rest in script.new[place:]:
                resumed.apply(rest.entry)
            if look == "after the rest was read":
                resumed.end_reading(script.state.facts.head.messages if place % 2 else None)
            if resumed.is_complete:
                # What was not known before the first look is the same after it.
                assert resumed.facts.head.messages == script.state.facts.head.messages
                assert picture(resumed) == whole
                assert resumed.is_complete
            else:
                # It went back to messages that the keyframe had left out, and says so.
                assert any(one.entry.kind == "session.rewound" for one in script.new[place:])


@given(plots, st.integers(0, 11), plots)
def test_a_fork_goes_on_from_its_version_and_knows_nothing_later(
    before: Plot, pick: int, after: Plot
) -> None:
    """It begins with the transcript, values, plan and ledger of the version; whose it is and what was spent
    begin anew."""
    script = perform(Script(), before)
    script.checkpoint(0, 0)
    offered = script.state.checkpoints
    version = offered[pick % len(offered)].version
    then = script.fold(script.state.get_checkpoint(version).seq)
    fork = script.fork(version)
    facts = fork.state.facts
    assert spoken(fork.state) == spoken(then) == fork.witness.spoken
    assert (facts.values, facts.plan, facts.summary) == (
        then.facts.values,
        then.facts.plan,
        then.facts.summary,
    )
    assert facts.effects == then.facts.effects
    assert fork.state.checkpoints == then.checkpoints
    assert (facts.head.uid, facts.head.origin, facts.head.session) == ("uid-2", "s", "fork")
    assert (facts.head.usd, facts.head.usage.tokens, facts.head.runs, facts.runs) == (0.0, 0, 0, {})
    assert fork.state.budget.reserved.usd == 0
    perform(fork, after)
    assert spoken(fork.state) == fork.witness.spoken
    assert picture(fold(fork.new)) == picture(fork.state)


@given(plots, plots)
def test_a_rewind_changes_only_what_it_says(before: Plot, after: Plot) -> None:
    """Transcript, values, plan and summary go back; ledger, spending, runs, caps and counters do not."""
    script = perform(Script(), before)
    script.checkpoint(0, 0)
    target = script.state.checkpoints[-1]
    then = script.fold(target.seq)
    perform(script, [step for step in after if step[0] is not Script.drop])
    facts = script.state.facts
    kept = msgspec.json.encode(
        [facts.effects, facts.runs, facts.requests, facts.budget, facts.counters.per_tool, facts.head.usd]
    )
    place = [one.version for one in script.state.checkpoints[::-1]].index(target.version)
    script.rewind(place, 0)
    facts = script.state.facts
    assert list(script.state.transcript) == list(then.transcript)
    assert (facts.values, facts.plan, facts.summary) == (
        then.facts.values,
        then.facts.plan,
        then.facts.summary,
    )
    assert script.state.version == target.version
    assert kept == msgspec.json.encode(
        [facts.effects, facts.runs, facts.requests, facts.budget, facts.counters.per_tool, facts.head.usd]
    )


def test_a_keyframe_of_another_fold_or_a_damaged_one_is_not_used() -> None:
    """Any mismatch means that the journal is folded instead."""
    script = perform(Script(), [(Script.add, 0, 0), (Script.checkpoint, 0, 0)])
    keyframe = script.state.keyframe()
    assert keyframe is not None
    data = keyframe.encode("sum")
    assert read_keyframe(data) is not None
    for spoilt in (
        None,
        b"",
        b"{}",
        b"\xff",
        data[:-5],
        data.replace(b'"fold":%d' % FOLD_VERSION, b'"fold":1'),
        data.replace(b'"first":"yes"', b'"first":"nay"'),
    ):
        assert spoilt != data
        assert read_keyframe(spoilt) is None


def test_an_unknown_kind_is_skipped_and_no_keyframe_is_written_over_it() -> None:
    """A newer version would fold it; what this one writes down must not hide it."""
    script = Script()
    entry = read_by_hand(script, "future.idea", {"x": 1})
    assert isinstance(entry.body, UnknownBody)
    script.state.apply(entry)
    script.add(0, 0)
    assert spoken(script.state) == script.witness.spoken
    assert script.state.keyframe() is None
    assert script.state.facts.unknown is None


def read_by_hand(script: Script, kind: str, body: object, *, must: bool = False) -> Entry:
    """The next entry of a journal, of any kind."""
    entry = chunks_by_hand.entry(kind, body, must=must)
    chunk = chunks_by_hand.chunk(script.seq + 1, entry, after=GENESIS)
    return next(open_page(Page.of([chunk], said=True), "here"))


def test_the_first_unknown_kind_that_must_be_understood_is_remembered() -> None:
    """From there on the session can only be read."""
    script = Script()
    for kind in ("future.rule", "future.law"):
        script.state.apply(read_by_hand(script, kind, {}, must=True))
    assert script.state.facts.unknown == ("future.rule", 3)


def test_an_inbox_item_that_was_taken_in_before_changes_nothing() -> None:
    """A holder that lost its way may take one in again; the number tells."""
    script = Script()
    script.write(InboxTaken(number=1, item=InboxCancel(reason="stop")))
    script.write(SessionClosed(status="active"))
    assert script.state.facts.cancel is None
    script.write(InboxTaken(number=1, item=InboxCancel(reason="stop")))
    script.write(InboxTaken(number=1, item=InboxMessage(role="user", key="k")))
    assert script.state.facts.cancel is None
    assert script.state.facts.keys == {}
    assert script.state.facts.head.taken == 1
