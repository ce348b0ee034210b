"""Files in the histories of a step store: in blobs, once for equal bytes, and given back as they were."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256

import anyio.to_thread
import pytest
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence import StepPersistence, continue_run

import holdfast
from holdfast import Store
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.blobs import BlobContext
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import LostBlob, StoreFailed
from holdfast.limits import INLINE_BYTES
from tests.internals import engine_of
from tests.stores import ForwardingHome

from .example_histories import Url, at, history, run, snapshot

IMAGE = random.Random(1).randbytes(INLINE_BYTES)
DIGEST = sha256(IMAGE).hexdigest()


def showing(data: bytes = IMAGE, said: str = "look") -> list[ModelMessage]:
    """A history with a picture in its prompt, and in what a tool gave."""
    picture = BinaryImage(data, media_type="image/png", identifier="cat")
    returned = ToolReturnPart(
        tool_name="look", content=["here", picture], tool_call_id="call_0", timestamp=at(1)
    )
    return [
        ModelRequest(parts=[UserPromptPart(content=[said, picture], timestamp=at(0))]),
        ModelResponse(parts=[TextPart(content="a cat")], model_name="m", timestamp=at(1)),
        ModelRequest(parts=[returned]),
    ]


async def kept(steps: HoldfastStepStore, run_id: str = "r1") -> list[bytes]:
    """The histories of a run, as JSON."""
    found = await steps.list_snapshots(run_id=run_id)
    return [ModelMessagesTypeAdapter.dump_json(one.messages) for one in found]


def written(*histories: list[ModelMessage]) -> list[bytes]:
    """What `kept` should give."""
    return [ModelMessagesTypeAdapter.dump_json(one) for one in histories]


async def digests(store: Store) -> list[str]:
    """The blobs of the store."""
    return [blob.digest async for blob in store.blobs()]


async def line_bytes(store: Store) -> int:
    """How long the longest content of all journals is."""
    sessions = [head.session async for head in store.sessions()]
    return max(
        [
            len(bytes(entry.content or b""))
            for one in sessions
            async for entry in store.tail(one, follow=False)
        ],
        default=0,
    )


async def test_files_are_stored_once_and_given_back(store_url: Url) -> None:
    """In prompts and in what tools gave, in one run and in another; what is small stays where it is."""
    first, second = showing(), [*showing(), *showing(IMAGE[:-1], "small"), *showing(said="again")]
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        for run_id in ("r1", "r2"):
            await steps.save_snapshot(snapshot(run_id, first))
            await steps.save_snapshot(snapshot(run_id, second))
        assert await digests(store) == [DIGEST]
        assert await line_bytes(store) < 4 * INLINE_BYTES
        assert await kept(steps) == written(first, second)
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        assert await kept(steps, "r2") == written(first, second)
        latest = await steps.latest_snapshot(run_id="r1")
        assert latest is not None
        assert latest.messages == second
        await steps.save_snapshot(snapshot("r1", [*second, *history(1)]))
        assert await kept(steps) == written(first, second, [*second, *history(1)])
        assert await line_bytes(store) < 4 * INLINE_BYTES


async def test_a_history_grows_by_what_is_new_with_files_in_it(store_url: Url) -> None:
    """Also for a store that has not written what went before."""
    async with holdfast.open_store(store_url) as store:
        for steps_done in range(1, 4):
            steps = HoldfastStepStore(store)
            await steps.save_snapshot(snapshot("r1", [*showing(), *history(steps_done)]))
        sizes = [
            len(bytes(entry.content or b""))
            async for entry in store.tail("lone-steps-r1", follow=False)
            if entry.kind == "adapter.steps.snapshot"
        ]
        assert len(sizes) == 3
        assert sizes[0] > max(sizes[1:]) > 0


async def test_words_that_look_like_a_reference_are_words(store_url: Url) -> None:
    word = f"media+sha256://{DIGEST}"
    said: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content=[word, f"{word}?as=zstd", "media+sha256:verbatim:x"])])
    ]
    async with holdfast.open_store(store_url) as store:
        await HoldfastStepStore(store).save_snapshot(snapshot("r1", said))
        assert await kept(HoldfastStepStore(store)) == written(said)


async def test_a_file_goes_with_the_last_history_that_refers_to_it(store_url: Url) -> None:
    """One that is in use is not collected."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        for conversation in ("a", "b"):
            await steps.register_run(run(conversation, conversation_id=conversation))
            await steps.save_snapshot(snapshot(conversation, showing()))
        for conversation, left in (("a", [DIGEST]), ("b", [])):
            await store.delete(f"steps-{conversation}")
            await store.collect_blobs(grace_s=0, dry_run=False, alone=True)
            assert await digests(store) == left
            if left:
                assert await kept(HoldfastStepStore(store), "b") == written(showing())


async def test_a_file_that_is_missing_is_named(store_url: Url) -> None:
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        await steps.save_snapshot(snapshot("r1", showing()))
        later = engine_of(store).now() + timedelta(days=1)
        await anyio.to_thread.run_sync(lambda: engine_of(store).home.remove(DIGEST, put_before=later))
        with pytest.raises(LostBlob, match=f"run 'r1': blob {DIGEST}"):
            await steps.latest_snapshot(run_id="r1")


class Failing(ForwardingHome):
    """A home that keeps nothing, for a while."""

    fails = True

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        if self.fails:
            raise StoreFailed("the home is on fire")
        super().put(digest, parts, context, owner=owner)


async def test_a_file_that_cannot_be_kept_leaves_nothing_behind() -> None:
    """The call fails, and may be made again."""
    driver = MemoryDriver()
    home = Failing(driver)
    async with holdfast.open_store(driver, blobs=home) as store:
        steps = HoldfastStepStore(store)
        await steps.save_snapshot(snapshot("r1", history(1)))
        with pytest.raises(StoreFailed, match="on fire"):
            await steps.save_snapshot(snapshot("r1", showing()))
        assert await kept(steps) == written(history(1))
        home.fails = False
        await steps.save_snapshot(snapshot("r1", showing()))
        assert await kept(HoldfastStepStore(store)) == written(history(1), showing())


async def test_a_history_that_was_not_kept_is_not_gone_on_from() -> None:
    """Neither by the failed call, nor when another call has written one in its place."""
    driver = MemoryDriver()
    home = Failing(driver)
    theirs, ours = history(2), [*showing(), *history(1)]
    async with holdfast.open_store(driver, blobs=home) as store:
        steps = HoldfastStepStore(store)
        with pytest.raises(StoreFailed, match="on fire"):
            await steps.save_snapshot(snapshot("r1", showing()))
        home.fails = False
        await HoldfastStepStore(store).save_snapshot(snapshot("r1", theirs))
        assert await kept(steps) == written(theirs)
        await steps.save_snapshot(snapshot("r1", ours))
        assert await kept(HoldfastStepStore(store)) == written(theirs, ours)


async def test_an_agent_with_step_persistence_goes_on_with_its_files(store_url: Url) -> None:
    """Of a real one, through their own continue_run."""
    async with holdfast.open_store(store_url) as store:
        steps = HoldfastStepStore(store)
        agent = Agent(TestModel(), name="clerk", capabilities=[StepPersistence(store=steps)])
        result = await agent.run(["look", BinaryContent(IMAGE, media_type="image/png")])
        assert await digests(store) == [DIGEST]
        (known,) = await steps.list_runs()
        found = await continue_run(HoldfastStepStore(store), run_id=known.run_id)
        assert written(found) == written(result.all_messages())
