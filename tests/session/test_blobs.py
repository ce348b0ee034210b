"""Large content of sessions is in blobs: once, durable before it is referred to, read when somebody looks."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import anyio
import msgspec
import pytest

import holdfast
from holdfast import open_store
from holdfast.blobs.home import BlobContext, StoredBlob
from holdfast.content.lazy import BlobForeign, BlobMedia
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadInput, BadMessage, Corrupt, LostBlob, NotFound, StoreFailed
from holdfast.messages import AnyMessage, Media, Message, Text
from tests.internals import engine_of
from tests.session.example_sessions import StoreUrl, collect, entries, texts
from tests.stores import ForwardingHome

IMAGE = bytes(range(256)) * 400
DIGEST = hashlib.sha256(IMAGE).hexdigest()
REFERENCE = f"media+sha256://{DIGEST}"


def showing(data: bytes = IMAGE, text: str = "look") -> Message:
    """A message with an image."""
    return Message(role="user", blocks=(Text(text), Media(media_type="image/png", data=data, name="x.png")))


def openai(data: bytes = IMAGE) -> dict[str, object]:
    """The same in other words."""
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def image_in(message: AnyMessage) -> Media:
    """The image in it."""
    assert isinstance(message, Message)
    (found,) = [block for block in message.blocks if isinstance(block, Media)]
    return found


class Watched(ForwardingHome):
    """A home that counts, and that fails if it is told to."""

    def __init__(self, driver: MemoryDriver) -> None:
        super().__init__(driver)
        self.puts: list[str] = []
        self.finds: list[str] = []
        self.fails = False

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        if self.fails:
            raise StoreFailed("the home is on fire")
        self.puts.append(digest)
        super().put(digest, parts, context, owner=owner)

    def find(self, digest: str) -> StoredBlob | None:
        self.finds.append(digest)
        return super().find(digest)


@pytest.fixture
def watched() -> tuple[MemoryDriver, Watched]:
    """A store, and its home."""
    driver = MemoryDriver()
    return driver, Watched(driver)


async def test_large_content_is_stored_once_and_given_back(store_url: StoreUrl) -> None:
    """In messages of any format, in replies, in state, through the inbox: one blob, and short lines."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add(showing())
            await session.add(openai(), format="openai")
            await session.set("photo", {"of": "a cat", "bytes": IMAGE})
            async with session.run() as run, run.request() as request:
                await request.reply(
                    Message(role="assistant", blocks=(Media(media_type="image/png", data=IMAGE),))
                )
            await session.checkpoint()
        await store.submit("s", showing(text="through the inbox"))
        lines = await entries(store, "s")
        assert all(len(bytes(entry.content or b"")) < 1000 for entry in lines)
        assert [blob.digest for blob in await collect(store.blobs())] == [DIGEST]
    async with open_store(store_url) as store, store.session("s") as session:
        assert session.transcript[0] == msgspec.structs.replace(
            session.transcript[0], blocks=showing().blocks
        )
        blocks = [message.blocks[-1] for message in session.transcript if isinstance(message, Message)]
        assert [block.data for block in blocks if isinstance(block, Media)] == [IMAGE] * 3
        foreign = session.transcript[1]
        assert isinstance(foreign, holdfast.messages.ForeignMessage)
        assert foreign.data == openai()
        assert session.get("photo") == {"of": "a cat", "bytes": IMAGE}


async def test_the_threshold_can_be_set_and_turned_off(store_url: StoreUrl) -> None:
    """Exactly so many bytes are large."""
    async with open_store(store_url, inline_bytes=10) as store, store.session("small") as session:
        await session.add(showing(b"123456789"))
        await session.add(showing(b"1234567890"))
        assert [blob.size for blob in await collect(store.blobs())] == [10]
        assert isinstance(image_in(session.transcript[1]), BlobMedia)
    async with open_store(store_url, inline_bytes=None) as store, store.session("off") as session:
        await session.add(showing())
        await session.add(openai(), format="openai")
        assert len(await collect(store.blobs())) == 1
        assert image_in(session.transcript[0]).data == IMAGE


async def test_words_that_look_like_a_reference_are_words(store_url: StoreUrl) -> None:
    """Nothing is read for them, and nothing is put in their place."""
    words = [REFERENCE, f"{REFERENCE}?as=zstd", "media+sha256:verbatim:x", "media+sha256:"]
    async with open_store(store_url) as store, store.session("s") as session:
        for word in words:
            await session.add(word)
            await session.add({"role": "user", "content": word, "data": word}, format="openai")
            await session.set(word, word)
        await session.checkpoint()
    async with open_store(store_url) as store:
        state = await store.load("s")
        assert texts(state.transcript[::2]) == words
        assert [state.get(word) for word in words] == words
        said = [
            message for message in state.transcript if isinstance(message, holdfast.messages.ForeignMessage)
        ]
        assert [(message.data["content"], message.data["data"]) for message in said] == [
            (word, word) for word in words
        ]


async def test_a_failing_home_keeps_the_entry_out(watched: tuple[MemoryDriver, Watched]) -> None:
    """The error is clear, nothing is half there, and the same call succeeds once the home is back."""
    driver, home = watched
    async with open_store(driver, blobs=home) as store, store.session("s") as session:
        home.fails = True
        before = session.state.seq
        with pytest.raises(StoreFailed, match="on fire"):
            await session.add(showing())
        with pytest.raises(StoreFailed, match="on fire"):
            await session.set("photo", IMAGE)
        with pytest.raises(StoreFailed, match="on fire"):
            await store.submit("s", showing())
        assert session.state.seq == before
        async with session.run() as run:
            with pytest.raises(StoreFailed, match="on fire"):
                async with run.request(reserve_usd=1) as request:
                    await request.reply(showing(), cost_usd=0.25)
        assert session.budget.usd == 0.25
        home.fails = False
        await session.add(showing())
        assert image_in(session.transcript[-1]).data == IMAGE


async def test_equal_bytes_are_uploaded_once_by_a_process(watched: tuple[MemoryDriver, Watched]) -> None:
    """Also if several sessions need them at the same moment."""
    driver, home = watched
    async with open_store(driver, blobs=home) as store:

        async def work(name: str) -> None:
            async with store.session(name) as session:
                for _ in range(5):
                    await session.add(showing())

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(work, f"s{number}")
    assert home.puts == [DIGEST]


async def test_opening_a_session_reads_no_blob_and_looking_reads_it_once(
    watched: tuple[MemoryDriver, Watched],
) -> None:
    """Equal bytes are in memory once, in whatever message they are."""
    driver, home = watched
    async with open_store(driver, blobs=home) as store:
        async with store.session("s") as session:
            for _ in range(10):
                await session.add(showing())
                await session.checkpoint()
        state = await store.load("s")
        assert (await store.overview("s")).history[0].text == "look"
        assert not await store.diff("s", 10, 10)
        messages = list(state.transcript)
        assert home.finds == []
        read = [image_in(message).data for message in messages]
        assert len({id(data) for data in read}) == 1
        assert home.finds == [DIGEST]
        again = await store.load("s")
        await again.transcript.read()
        assert again.transcript[3] == messages[3]
        assert home.finds == [DIGEST]


async def test_a_missing_blob_is_an_error_of_whoever_looks_at_it(store_url: StoreUrl) -> None:
    """It names session, entry and digest; the rest of the session loads, and can be gone on with."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add(showing())
            await session.add(openai(), format="openai")
            await session.set("photo", IMAGE)
        await remove_all(store)
        async with store.session("s") as session:
            media = image_in(session.transcript[0])
            assert isinstance(media, BlobMedia)
            with pytest.raises(
                LostBlob, match=rf"session 's', entry 3: blob {DIGEST} cannot be read: there is no"
            ):
                _ = media.data
            assert media.lost is not None
            assert media.lost.entry == 3
            foreign = session.transcript[1]
            assert isinstance(foreign, BlobForeign)
            assert REFERENCE in str(foreign.stored)
            with pytest.raises(LostBlob, match="entry 4"):
                _ = foreign.data
            with pytest.raises(LostBlob, match="state 'photo'"):
                session.get("photo")
            await session.add("and yet it goes on")
            await session.checkpoint()
            # Who has the bytes puts them back by showing them again.
            await session.add(showing())
            assert media.data == IMAGE


async def remove_all(store: holdfast.Store) -> None:
    """What should never happen."""
    home = engine_of(store).home
    for blob in await collect(store.blobs()):
        assert blob.put_at is not None
        engine_of(store).blobs.forget(blob.digest)
        assert home.remove(blob.digest, put_before=blob.put_at.replace(year=blob.put_at.year + 1))


def damage(path: Path) -> None:
    """Change the first byte of the image."""
    (file,) = [one for one in path.rglob(f"*{DIGEST}*") if one.stat().st_size == len(IMAGE)]
    file.write_bytes(b"x" + IMAGE[1:])


async def test_a_damaged_blob_is_noticed(tmp_path: Path) -> None:
    """Other bytes are never given out for those that were put."""
    url = f"dir:{tmp_path}/store"
    async with open_store(url) as store, store.session("s") as session:
        await session.add(showing())
    damage(tmp_path)
    async with open_store(url) as store:
        media = image_in((await store.load("s")).transcript[0])
        with pytest.raises(LostBlob, match=f"entry 3: blob {DIGEST} cannot be read: .*SHA-256"):
            _ = media.data
        with pytest.raises(Corrupt, match="SHA-256"):
            async with store.open_blob(DIGEST) as blob:
                await blob.read()


async def test_a_message_that_cannot_be_stored_leaves_no_blob(store_url: StoreUrl) -> None:
    """It is refused before anything is written."""
    async with open_store(store_url) as store, store.session("s") as session:
        with pytest.raises(BadMessage):
            await session.add({**openai(), "odd": float("nan")}, format="openai")
        assert await collect(store.blobs()) == []


async def test_versions_forks_and_rewinds_share_blobs(store_url: StoreUrl) -> None:
    """History is shared, and so is what it refers to; a diff tells by the reference alone."""
    other = IMAGE[::-1]
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add(showing())
            await session.set("photo", IMAGE)
            first = await session.checkpoint()
            await session.add(showing(other))
            await session.set("photo", other)
            second = await session.checkpoint()
            await session.rewind(version=first)
            assert session.get("photo") == IMAGE
            await session.rewind(version=second)
            assert session.get("photo") == other
            assert image_in(session.transcript[1]).data == other
        diff = await store.diff("s", first, second)
        assert [image_in(message).data for message in diff.messages_added] == [other]
        assert (diff.state["photo"].before, diff.state["photo"].after) == (IMAGE, other)
        await store.fork("s", version=first, into="fork")
        await store.delete("s")
        fork = await store.load("fork")
        assert image_in(fork.transcript[0]).data == IMAGE
        assert fork.get("photo") == IMAGE


async def test_a_blob_can_be_put_shown_and_read_in_parts(store_url: StoreUrl, tmp_path: Path) -> None:
    """Bytes, a file, a stream of either kind: the same blob, with what is known of it."""
    path = tmp_path / "cat.png"
    path.write_bytes(IMAGE)

    async def arriving() -> AsyncIterator[bytes]:
        for start in range(0, len(IMAGE), 1000):
            yield IMAGE[start : start + 1000]

    async with open_store(store_url) as store, store.session("s") as session:
        blob = await store.put_blob(path, media_type="image/png", name="cat.png", metadata={"by": "ann"})
        assert (await store.put_blob(IMAGE, name="dog.png")).digest == blob.digest
        assert (await store.put_blob(iter([IMAGE[:5], IMAGE[5:]]))).digest == blob.digest == DIGEST
        assert (await store.put_blob(arriving())).reference == blob.reference == REFERENCE
        (listed,) = await collect(store.blobs(sessions=True))
        assert (listed.size, listed.media_type, listed.name) == (len(IMAGE), "image/png", "cat.png")
        assert (listed.metadata, listed.sessions) == ({"by": "ann"}, ())
        await session.add(Message(role="user", blocks=(store.media(blob),)))
        assert image_in(session.transcript[0]) == Media(media_type="image/png", data=IMAGE, name="cat.png")
        await session.flush()
        (listed,) = await collect(store.blobs(sessions=True))
        assert listed.sessions == ("s",)
        async with store.open_blob(blob.reference) as opened:
            assert opened.blob.metadata == {"by": "ann"}
            assert b"".join([part async for part in opened]) == IMAGE
        with pytest.raises(NotFound, match="no blob"):
            async with store.open_blob("0" * 64):
                pass
        with pytest.raises(BadInput, match="names no blob"):
            async with store.open_blob("cat.png"):
                pass
        with pytest.raises(NotFound, match="no file"):
            await store.put_blob(tmp_path / "dog.png")


async def test_a_message_takes_its_blobs_along_to_another_store() -> None:
    """A message that was read in one store can be added in another."""
    async with open_store("memory:") as here, open_store("memory:") as there:
        async with here.session("s") as session:
            await session.add(showing())
            await session.add(openai(), format="openai")
        seen = list((await here.load("s")).transcript)
        async with there.session("s") as session:
            for message in seen:
                await session.add(message)
            assert image_in(session.transcript[0]).data == IMAGE
        assert [blob.digest for blob in await collect(there.blobs())] == [DIGEST]


async def test_a_home_of_another_store_is_refused(tmp_path: Path) -> None:
    """Its owner would take what we put there for orphans."""
    shared = f"dir:{tmp_path}/blobs"
    async with open_store("memory:", blobs=shared) as store, store.session("s") as session:
        await session.add(showing())
    async with open_store("memory:", blobs=shared) as store, store.session("s") as session:
        with pytest.raises(BadInput, match="home of another store's blobs"):
            await session.add(showing())
        assert len(session.transcript) == 0
