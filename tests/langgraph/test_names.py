"""Thread ids and namespaces of any shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.thread_ids import ThreadNamespace, thread_prefix
from holdfast.ids import label_of_original, session_id, unfit_session_id

from .checkpoints_by_hand import Writer, values_at
from .graphs import thread

ODD = [
    "user:42", "ann@example.org", "../../etc", ".", "..", "a|b", "a%7cb", "%sha256-00", " ", "ü" * 30, "a\nb",
    "x" * 5000, "y" * 99 + "|", "line\u2028", "\x00", "t.7c.",
]  # fmt: skip


@given(
    st.tuples(st.text(max_size=150), st.text(max_size=150)),
    st.tuples(st.text(max_size=150), st.text(max_size=150)),
)
def test_two_places_never_share_a_session(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Whatever is in their names; and all namespaces of a thread begin alike, and no other thread's."""
    first, second = ThreadNamespace(*one), ThreadNamespace(*other)
    assert session_id(first.session)
    assert (first == second) == (first.session == second.session)
    assert first.session.startswith(thread_prefix(first.thread))
    if first.thread != second.thread:
        assert not second.session.startswith(thread_prefix(first.thread))


def test_a_name_can_be_read_off_its_session() -> None:
    """Escaped, not hidden."""
    assert unfit_session_id(ThreadNamespace("user:42", "child:1").session) == "user:42|child:1"


@pytest.mark.parametrize("id", ODD)
async def test_any_thread_id_works(store: holdfast.Store, id: str) -> None:
    """Put, read, list and delete; a thread with a similar name is not touched."""
    saver = HoldfastSaver(store)
    for ns in ("", "child:|%" + id):
        await Writer(saver, id, ns).put(value=[id, ns])
    await Writer(saver, id + "|").put(value="other")
    fresh = HoldfastSaver(store)
    assert (await values_at(fresh, thread(id)))["value"] == [id, ""]
    assert (await values_at(fresh, thread(id, checkpoint_ns="child:|%" + id)))["value"][0] == id
    labels = [head.labels async for head in store.sessions(label={"adapter": "langgraph"})]
    assert [one["langgraph.thread"] for one in labels].count(label_of_original(id)) == 2
    found = [one.config["configurable"] async for one in fresh.alist(thread(id))]
    assert {one["checkpoint_ns"] for one in found} == {"", "child:|%" + id}
    everything = [one.config["configurable"]["thread_id"] async for one in fresh.alist(None)]
    assert sorted(everything) == sorted([id, id, id + "|"])
    await fresh.adelete_thread(id)
    assert [one async for one in fresh.alist(thread(id))] == []
    assert (await values_at(fresh, thread(id + "|")))["value"] == "other"
