"""A loaded state is what the session was: whatever becomes of the session and the store after that."""

import gc

import pytest

from holdfast import Store, blocking, open_store
from holdfast.core.session_state import SessionState
from holdfast.errors import NotFound, StoreFailed
from tests.session.example_sessions import StoreUrl, step, texts

LONG = [f"word {number}" for number in range(600)]
"""Enough for a keyframe, after which the transcript is folded when it is looked at."""


async def write(store: Store, session: str, *words: str) -> None:
    """A version after each of the first two words, and one after the rest."""
    async with store.session(session) as opened:
        for word in words[:2]:
            await step(opened, word)
        for word in words[2:]:
            await opened.add(word)
        await opened.checkpoint()


@pytest.mark.parametrize("words", [["a", "b"], LONG], ids=["short", "with a keyframe"])
async def test_a_state_outlives_its_store(store_url: StoreUrl, words: list[str]) -> None:
    """Its messages were not looked at before the store was closed."""
    async with open_store(store_url) as store:
        await write(store, "s", *words)
        state = await store.load("s")
        earlier = await store.load("s", 2)
    assert texts(state.transcript) == words
    assert texts(earlier.transcript) == words[:2]


def test_a_state_outlives_a_blocking_store(store_url: StoreUrl) -> None:
    with blocking.open_store(store_url) as store:
        with store.session("s") as session:
            session.add("hello")
            session.checkpoint()
        state = store.load("s")
    assert texts(state.transcript) == ["hello"]


async def test_closing_reads_only_for_states_that_somebody_has(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that loads many sessions and keeps none does not pay for them in the end."""
    read: list[SessionState] = []
    plain = SessionState.read_transcript

    def noting(state: SessionState) -> None:
        read.append(state)
        plain(state)

    monkeypatch.setattr(SessionState, "read_transcript", noting)
    async with open_store(store_url) as store:
        await write(store, "s", "a")
        kept = [await store.load("s") for _ in range(5)][-1]
        gc.collect()
    assert read == [kept]
    assert texts(kept.transcript) == ["a"]


@pytest.mark.parametrize("words", [["a", "b"], LONG], ids=["short", "with a keyframe"])
async def test_another_session_under_the_same_id_is_not_read(store_url: StoreUrl, words: list[str]) -> None:
    """The messages of one that was deleted are gone; those of its successor are not shown in their place."""
    async with open_store(store_url) as store:
        await write(store, "s", *words)
        state = await store.load("s")
        await store.delete("s")
        with pytest.raises(NotFound, match="s"):
            texts(state.transcript)
        await write(store, "s", *(["other"] * len(words)))
        with pytest.raises(NotFound, match="deleted before its messages were looked at"):
            texts(state.transcript)


@pytest.mark.parametrize("words", [["a", "b"], LONG], ids=["short", "with a keyframe"])
async def test_what_a_fork_shares_is_read_where_it_went(store_url: StoreUrl, words: list[str]) -> None:
    """The origin was deleted, and another one made under its id, before it was looked at."""
    async with open_store(store_url) as store:
        await write(store, "origin", *words)
        await store.fork("origin", into="fork")
        state = await store.load("fork")
        await store.delete("origin")
        await write(store, "origin", *(["other"] * len(words)))
        assert texts(state.transcript) == words


@pytest.mark.parametrize("words", [["a", "b"], LONG], ids=["short", "with a keyframe"])
async def test_a_state_whose_session_was_made_anew_never_shows_the_new_one(
    store_url: StoreUrl, words: list[str]
) -> None:
    """However often it is looked at, and also if the store is closed meanwhile."""
    async with open_store(store_url) as store:
        await write(store, "s", *words)
        states = [await store.load("s") for _ in range(2)]
        await store.delete("s")
        await write(store, "s", *(f"new {word}" for word in words))
        for _ in range(3):
            with pytest.raises(NotFound):
                texts(states[0].transcript)
    with pytest.raises((NotFound, StoreFailed)):
        texts(states[1].transcript)
