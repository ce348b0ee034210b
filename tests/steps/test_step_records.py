"""Records are written as what was not to be expected, and come back as they were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.pydantic_ai.step_fold import EFFECT, EVENTS, SNAPSHOT, Record, RunSteps, Steps
from holdfast.core.entries import AdapterBody, Entry
from holdfast.errors import Corrupt

_RUN: Record = {"run_id": "r", "conversation_id": "c", "agent_name": "n"}
_KINDS = ("model_request_started", "tool_call_started", "tool_call_completed")


def _event(number: int, step: int = 1, kind: str = "model_request_started", **more: Any) -> Record:
    call = more.get("tool_call_id")
    made = {"run_id": "r", "kind": kind, "step_index": step, "conversation_id": "c", "agent_name": "n"}
    key = f"{number}:{step}:{kind}:{call or ''}"
    return {**made, "tool_call_id": None, "tool_name": None, "idempotency_key": key, **more}


def _snapshot(number: int, step: int, **more: Any) -> Record:
    made = {"run_id": "r", "step_index": step, "conversation_id": "c", "agent_name": "n", "state": "complete"}
    return {**made, "idempotency_key": f"{number}:{step}:{more.get('state', 'complete')}", **more}


def test_what_step_persistence_makes_says_little() -> None:
    """Its numbers grow by one, a step has several events, and the effect of a call has its tool's name."""
    run = RunSteps(run_id="r", record=_RUN)
    run.read_event(*run.write_events([_event(0)]))
    run.read_effect({"tool_call_id": "call_1", "tool_name": "look", "status": "started"})
    started = _event(1, kind="tool_call_started", tool_call_id="call_1", tool_name="look")
    assert run.write_events([started]) == [{"kind": "tool_call_started", "tool_call_id": "call_1"}]
    run.read_snapshot(run.write_snapshot(_snapshot(0, 1)))
    assert run.write_snapshot(_snapshot(1, 2)) == {}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (EVENTS, {"events": [{"kind": "run_started"}]}),
        (EFFECT, {}),
        (SNAPSHOT, {"snapshot": []}),
        (EVENTS, []),
    ],
)
def test_what_is_no_record_is_an_error_that_names_the_entry(kind: str, data: Any) -> None:
    """And no bare KeyError for the process that opens the conversation."""
    entry = Entry(
        seq=7, at=datetime.now(UTC), run="r", step=1, kind=kind, must=False, body=AdapterBody(data=data)
    )
    with pytest.raises(Corrupt, match=r"entry 7.*not a record of step persistence"):
        Steps("session 's'").apply(entry)


_steps = st.integers(0, 3)
_keys = st.one_of(st.none(), st.sampled_from(["", "7", "07:1:complete", "3:x", "1:1:complete"]))
_events = st.builds(
    lambda number, step, kind, call, tool, odd: _event(
        number, step, kind, tool_call_id=call, tool_name=tool, **({"idempotency_key": odd[0]} if odd else {})
    ),
    st.integers(0, 5),
    _steps,
    st.sampled_from(_KINDS),
    st.sampled_from([None, "call_1", "call_2"]),
    st.sampled_from([None, "look", "find"]),
    st.one_of(st.none(), st.tuples(_keys)),
)
_snapshots = st.builds(
    lambda number, step, state, odd: _snapshot(
        number, step, state=state, **({"idempotency_key": odd[0]} if odd else {})
    ),
    st.integers(0, 5),
    _steps,
    st.sampled_from(["complete", "interrupted"]),
    st.one_of(st.none(), st.tuples(_keys)),
)
_effects = st.fixed_dictionaries(
    {"tool_call_id": st.sampled_from(["call_1", "call_2"]), "tool_name": st.sampled_from([None, "look"])}
)


@given(st.lists(st.one_of(_events, _snapshots, _effects), max_size=12))
def test_every_record_comes_back_as_it_was(records: list[Record]) -> None:
    """Whatever its key, and whatever came before it."""
    writer, reader = (RunSteps(run_id="r", record=_RUN) for _ in range(2))
    for record in records:
        if "kind" in record:
            (said,) = _as_stored(writer.write_events([record]))
            writer.read_event(said, known=True)
            before = len(reader.events)
            reader.event_keys.clear()
            reader.read_event(said)
            assert [_said(one) for one in reader.events[before:]] == [_said(record)]
        elif "state" in record:
            said = _as_stored(writer.write_snapshot(record))
            found = writer.read_snapshot(said), reader.read_snapshot(said)
            assert [_said(one) for one in found] == [_said(record)] * 2
        else:
            writer.read_effect(record)
            reader.read_effect(record)


def _as_stored(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _said(record: Record) -> Record:
    return {name: value for name, value in record.items() if value is not None}
