"""A session at a glance."""

import msgspec
import pytest

from holdfast import Store, open_store
from holdfast.core.entries import CallRef, ResultContent, ToolCompleted
from holdfast.messages import Message, ToolCall, ToolResult
from tests.internals import writer_of
from tests.session.example_sessions import StoreUrl, calling, results, step, texts


async def test_an_overview_tells_where_a_session_stands(store_url: StoreUrl) -> None:
    """Iteration, stop flag, history, summary, counters of tool calls and configuration."""
    async with open_store(store_url) as writer, open_store(store_url) as reader:
        async with writer.session("s") as session, session.run(config={"temperature": 0.5}):
            for number in range(30):
                await session.add(f"m{number}")
            await session.add(calling("a", "b"))
            await session.add(results("a", "b"))
            await session.set_summary("a long story")
            await session.checkpoint()
            await session.add(calling("a"))
            await session.flush()
            live = await reader.overview("s")
            assert live == session.state.overview()
        assert (live.iteration, live.stop, live.summary) == (1, False, "a long story")
        assert live.config == {"temperature": 0.5}
        assert texts(live.history) == [
            *(f"m{number}" for number in range(13, 30)),
            "let me see",
            "",
            "let me see",
        ]
        assert len(live.history) == 20
        assert live.tool_calls.per_tool == {"tool_a": 2, "tool_b": 1}
        assert live.tool_calls.per_tool_in_step == {"tool_a": 1}
        assert (live.tool_calls.total, live.tool_calls.in_step) == (3, 1)
        ended = await reader.overview("s")
        assert ended.stop


async def test_an_overview_of_a_short_session_has_all_of_it(store_url: StoreUrl) -> None:
    """And an empty one has nothing."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.flush()
            empty = await store.overview("s")
            assert (empty.history, empty.iteration, empty.stop, empty.config) == ((), 0, False, None)
            await step(session, "a")
        assert texts((await store.overview("s")).history) == ["a"]


async def test_an_overview_follows_rewinds_and_forks(store_url: StoreUrl) -> None:
    """The history is the one of where the session is; counters are never rewound."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
            await session.add(calling("x"))
            await session.rewind(version=1)
        found = await store.overview("s")
        assert (texts(found.history), found.tool_calls.total) == (["a"], 1)
        await store.fork("s", into="f")
        forked = await store.overview("f")
        assert (texts(forked.history), forked.tool_calls.total) == (["a"], 0)


async def test_a_config_stays_until_a_run_brings_another(store_url: StoreUrl) -> None:
    """A run that says nothing about it changes nothing."""
    async with open_store(store_url) as store, store.session("s") as session:
        for config, expected in ((None, None), ({"a": 1}, {"a": 1}), (None, {"a": 1}), ([2], [2])):
            async with session.run(config=config):
                pass
            assert (await store.overview("s")).config == expected


async def expect_the_end(store: Store, session: str) -> None:
    """The overview shows the last messages of the transcript, though it reads only the end of the journal."""
    state = await store.load(session)
    assert state.keyframe_seq > 80
    shown = [(message.role, message.text, message.id) for message in (await store.overview(session)).history]
    assert shown == [(message.role, message.text, message.id) for message in state.transcript[-20:]]


@pytest.fixture
def early_keyframes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyframes in short sessions, too."""
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_ENTRIES_MIN", 8)


@pytest.mark.usefixtures("early_keyframes")
async def test_an_overview_shows_a_late_result_of_an_early_call(store_url: StoreUrl) -> None:
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            call = ToolCall(id="c", name="pay", args={})
            await session.add(Message(role="assistant", blocks=(call,)))
            reply = session.state.seq
            for number in range(120):
                await session.add(f"m{number}")
            body = ToolCompleted(call=CallRef(id="c", reply=reply), issued=None)
            writer_of(session).record(body, content=msgspec.json.encode(ResultContent(text="paid")))
            await session.checkpoint()
        await expect_the_end(store, "s")
        last = (await store.overview("s")).history[-1]
        assert isinstance(last, Message)
        (result,) = last.blocks
        assert isinstance(result, ToolResult)
        assert result.content == "paid"


@pytest.mark.usefixtures("early_keyframes")
async def test_an_overview_shows_a_message_that_waited_for_the_end_of_a_long_step(
    store_url: StoreUrl,
) -> None:
    async with open_store(store_url) as store:
        async with store.session("s") as session, session.run(agent="a") as run:
            await step(session, "begin")
            async with run.request() as request:
                await request.reply(calling("x"))
            await store.submit("s", "from the inbox")
            await session.take_in()
            for number in range(100):
                await session.add(f"m{number}")
            await session.add(results("x"))
            await session.checkpoint()
        await expect_the_end(store, "s")
        assert (await store.overview("s")).history[-1].text == "from the inbox"
