"""What every home of blobs promises, as tests. A home is one when it passes all of them, unchanged."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from ...blobs.home import BlobContext, BlobHome
from ...blobs.keys import KeyFunction
from ...errors import BadInput
from ...limits import OBJECT_PART_BYTES

OpenHome: TypeAlias = Callable[[], BlobHome]
OpenKeyedHome: TypeAlias = Callable[[KeyFunction | None], BlobHome]

OWNER = "0123456789abcdef0123456789abcdef"
LATER = datetime.max.replace(tzinfo=UTC)

HOSTILE = (
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\Windows\\system32",
    "..",
    "a\r\nX-Injected: yes",
    'quo"te; filename=evil',
    "naïve café 日本語 🦉.png",
    "%2e%2e%2f%00?x=1&y=2#z",
    " leading and trailing ",
    "n" * 300,
    "🦉" * 300,
)
"""Texts with which attackers got in somewhere."""

CONTEXTS = (
    BlobContext(),
    BlobContext(media_type="image/svg+xml; charset=utf-8", file_name="a.svg", metadata={"by": "me", "": ""}),
    *(BlobContext(file_name=text, metadata={text: text}) for text in HOSTILE),
)

REFUSED = (
    BlobContext(media_type=""),
    BlobContext(media_type="image"),
    BlobContext(media_type="image/png\r\nX-Injected: yes"),
    BlobContext(media_type="bild/größe"),
    BlobContext(media_type="image/" + "x" * 300),
    BlobContext(file_name=""),
    BlobContext(file_name="a\0b"),
    BlobContext(file_name="\ud800"),
    BlobContext(file_name="n" * 2000),
    BlobContext(metadata={"k": "\udfff"}),
    BlobContext(metadata={"k": "v" * 20_000}),
)


def digest_of(data: bytes) -> str:
    """The name of the bytes."""
    return hashlib.sha256(data).hexdigest()


def put(home: BlobHome, data: bytes, context: BlobContext = CONTEXTS[1]) -> str:
    """Store the bytes; their digest."""
    home.put(digest_of(data), [data], context, owner=OWNER)
    return digest_of(data)


def read(home: BlobHome, data: bytes) -> tuple[BlobContext, int, bytes] | None:
    """What the home has of these bytes."""
    found = home.find(digest_of(data))
    return (found.context, found.size, b"".join(found.parts)) if found else None


def put_at(home: BlobHome, digest: str) -> datetime:
    """When the home says that it was put last."""
    return next(blob.put_at for blob in home.list_blobs(None, 100) if blob.digest == digest)


def never() -> Iterator[bytes]:
    """Parts of a blob that is there already."""

    def refuse(part: bytes) -> bytes:
        raise AssertionError("a blob that is there was read once more")

    return map(refuse, [b""])


class HomePromises:
    """The promises of every home: those of drivers, directories and object stores.

    A subclass has a fixture `open_home`, which opens the same home once more with each call.
    """

    @pytest.fixture
    def home(self, open_home: OpenHome) -> BlobHome:
        """The open home."""
        return open_home()

    # -- bytes --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 65_536, (1 << 20) - 1, 2 * OBJECT_PART_BYTES + 1])
    def test_a_blob_comes_back_as_it_was(self, home: BlobHome, open_home: OpenHome, size: int) -> None:
        """Bytes, size and context, also after reopening."""
        data = (b"0123456789abcde" * (size // 15 + 1))[:size]
        put(home, data)
        assert read(home, data) == (CONTEXTS[1], size, data)
        home.close()
        assert read(open_home(), data) == (CONTEXTS[1], size, data)

    @pytest.mark.parametrize(
        "parts",
        [[], [b""], [b"a", b"", b"b" * 70_000], [b"x" * (3 << 20)], [b"1234567"] * 300_000],
        ids=["none", "empty", "uneven", "large", "many"],
    )
    def test_a_blob_may_come_in_parts(self, home: BlobHome, parts: list[bytes]) -> None:
        """Of any size, from anything that can be iterated over once."""
        data = b"".join(parts)
        home.put(digest_of(data), iter(parts), CONTEXTS[0], owner=OWNER)
        assert read(home, data) == (CONTEXTS[0], len(data), data)

    def test_of_a_blob_that_was_never_stored_there_is_nothing(self, home: BlobHome) -> None:
        """None, not an error; also before anything was put."""
        assert home.find(digest_of(b"this")) is None
        assert home.find_key(digest_of(b"this")) is None
        assert home.sign(digest_of(b"this"), valid_s=60) is None
        assert list(home.list_blobs(None, 10)) == []
        put(home, b"that")
        assert home.find(digest_of(b"this")) is None
        assert not home.remove(digest_of(b"this"), put_before=LATER)

    def test_a_blob_can_be_read_by_several_at_once(self, home: BlobHome) -> None:
        """Each has its own place in it; one that is never read to its end is no burden."""
        data = b"0123456789" * (1 << 18)
        put(home, data)
        first, second, third = (home.find(digest_of(data)) for _ in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        begun = next(first.parts)
        assert b"".join(second.parts) == data
        assert begun + b"".join(first.parts) == data

    def test_the_first_one_wins(self, home: BlobHome, open_home: OpenHome) -> None:
        """Equal bytes are stored once, with the context that came first, and are not even read again."""
        put(home, b"data")
        for again in (home, open_home()):
            again.put(digest_of(b"data"), never(), BlobContext(file_name="second"), owner=OWNER)
            assert read(again, b"data") == (CONTEXTS[1], 4, b"data")
        assert len(home.list_blobs(None, 10)) == 1

    def test_bytes_with_another_digest_are_refused(self, home: BlobHome) -> None:
        """However many they are; and nothing is stored."""
        for wrong in (b"wrong", b"w" * (2 * OBJECT_PART_BYTES + 1)):
            with pytest.raises(BadInput, match="SHA-256"):
                home.put(digest_of(b"right"), [wrong], CONTEXTS[0], owner=OWNER)
            assert read(home, b"right") is None
        assert list(home.list_blobs(None, 10)) == []
        put(home, b"right")
        assert read(home, b"right") == (CONTEXTS[1], 5, b"right")

    @pytest.mark.parametrize("digest", ["", "ab", "g" * 64, "A" * 64, "../" + "a" * 61, "a" * 63 + "/"])
    def test_what_is_no_digest_is_refused(self, home: BlobHome, digest: str) -> None:
        """It would become part of a path."""
        with pytest.raises(BadInput, match="SHA-256"):
            home.put(digest, [b""], CONTEXTS[0], owner=OWNER)
        with pytest.raises(BadInput, match="SHA-256"):
            home.find(digest)
        with pytest.raises(BadInput, match="SHA-256"):
            home.remove(digest, put_before=LATER)

    @pytest.mark.parametrize("size", [5, 3 * OBJECT_PART_BYTES])
    def test_an_upload_that_broke_off_leaves_no_blob(self, home: BlobHome, size: int) -> None:
        """The error is the source's own, and the blob can be put after all."""
        data = b"x" * size

        def broken() -> Iterator[bytes]:
            yield data[: size // 2]
            yield data[size // 2 :]
            raise ConnectionResetError("the caller's source")

        with pytest.raises(ConnectionResetError, match="the caller's source"):
            home.put(digest_of(data), broken(), CONTEXTS[1], owner=OWNER)
        assert read(home, data) is None
        assert list(home.list_blobs(None, 10)) == []
        put(home, data)
        assert read(home, data) == (CONTEXTS[1], size, data)

    def test_an_upload_that_is_overtaken_does_no_harm(self, home: BlobHome, open_home: OpenHome) -> None:
        """Another process stored the same bytes, in other parts, while ours were under way."""
        second, data = open_home(), b"0123456789"

        def overtaken() -> Iterator[bytes]:
            yield data[:3]
            second.put(digest_of(data), [data[:7], data[7:]], CONTEXTS[1], owner=OWNER)
            yield data[3:]

        home.put(digest_of(data), overtaken(), CONTEXTS[1], owner=OWNER)
        assert read(home, data) == read(second, data) == (CONTEXTS[1], 10, data)
        assert len(home.list_blobs(None, 10)) == 1

    def test_many_put_the_same_bytes_at_once(self, open_home: OpenHome) -> None:
        """They are stored once, and every caller that returned can read them."""
        data = b"shared" * 20_000
        errors: list[BaseException] = []

        def take_part(home: BlobHome) -> None:
            try:
                put(home, data)
                assert read(home, data) == (CONTEXTS[1], len(data), data)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=take_part, args=(open_home(),)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(open_home().list_blobs(None, 10)) == 1

    # -- contexts -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("context", CONTEXTS, ids=range(len(CONTEXTS)))
    def test_every_context_comes_back(
        self, home: BlobHome, open_home: OpenHome, context: BlobContext
    ) -> None:
        """Found or listed: hostile names are text like any other, and lead nowhere."""
        put(home, b"data", context)
        again = open_home()
        assert read(again, b"data") == (context, 4, b"data")
        assert [blob.context for blob in again.list_blobs(None, 10)] == [context]

    @pytest.mark.parametrize("context", REFUSED, ids=range(len(REFUSED)))
    def test_a_context_that_some_home_cannot_hold_is_refused(
        self, home: BlobHome, context: BlobContext
    ) -> None:
        """By all of them, before anything is stored."""
        with pytest.raises(BadInput):
            put(home, b"data", context)
        assert home.find(digest_of(b"data")) is None

    # -- listing and removing -----------------------------------------------------------------------

    def test_a_caller_that_changes_a_context_changes_nothing_stored(self, home: BlobHome) -> None:
        """Each caller gets a context of its own."""
        given = BlobContext(media_type="image/png", file_name="a.png", metadata={"a": "1"})
        digest = put(home, b"described", given)
        found = home.find(digest)
        assert found is not None
        for context in (given, found.context, home.list_blobs(None, 10)[0].context):
            assert isinstance(context.metadata, dict)
            context.metadata["a"] = "changed"
        again = read(home, b"described")
        assert again is not None
        assert again[0].metadata == home.list_blobs(None, 10)[0].context.metadata == {"a": "1"}

    def test_blobs_are_listed_in_pages(self, home: BlobHome) -> None:
        """In the order of their digests, each once, with its size."""
        blobs = {put(home, data): len(data) for data in (b"x" * n for n in range(1, 12))}
        digests = sorted(blobs)
        assert [(blob.digest, blob.size) for blob in home.list_blobs(None, 100)] == sorted(blobs.items())
        assert [blob.digest for blob in home.list_blobs(None, 4)] == digests[:4]
        assert [blob.digest for blob in home.list_blobs(digests[3], 4)] == digests[4:8]
        assert [blob.digest for blob in home.list_blobs(digests[7], 4)] == digests[8:]
        assert list(home.list_blobs(digests[-1], 4)) == []

    def test_a_blob_remembers_when_it_was_put_last(self, home: BlobHome, open_home: OpenHome) -> None:
        """Putting it again, from anywhere, is a later time; reading it is none."""
        digest = put(home, b"data")
        first = put_at(home, digest)
        assert first.utcoffset() == timedelta(0)
        read(home, b"data")
        assert put_at(home, digest) == first
        put(open_home(), b"data")
        assert put_at(home, digest) > first

    def test_a_blob_can_be_removed(self, home: BlobHome, open_home: OpenHome) -> None:
        """It is gone for all, the others stay, and it may come back: again and again."""
        stays = put(home, b"stays")
        for _ in range(2):
            goes = put(home, b"goes")
            assert read(home, b"goes") == (CONTEXTS[1], 4, b"goes")
            assert home.remove(goes, put_before=LATER)
            assert not home.remove(goes, put_before=LATER)
            second = open_home()
            assert read(second, b"goes") is None
            assert [blob.digest for blob in second.list_blobs(None, 10)] == [stays]

    def test_what_was_put_again_is_not_removed(self, home: BlobHome, open_home: OpenHome) -> None:
        """Only what was put before a time goes: an entry that refers to it may be on its way."""
        digest = put(home, b"data")
        first = put_at(home, digest)
        assert not home.remove(digest, put_before=first)
        put(open_home(), b"data")
        assert not home.remove(digest, put_before=first + timedelta(microseconds=1))
        assert read(home, b"data") == (CONTEXTS[1], 4, b"data")

    def test_putting_and_removing_at_once_never_loses_a_blob(self, open_home: OpenHome) -> None:
        """Either the removal comes first and the bytes are stored anew, or it finds them put again."""
        putter, remover = open_home(), open_home()
        digest = put(putter, b"data")
        for _ in range(8):
            old = put_at(putter, digest) + timedelta(microseconds=1)
            start = threading.Barrier(2)

            def remove(start: threading.Barrier = start, old: datetime = old) -> None:
                start.wait()
                remover.remove(digest, put_before=old)

            thread = threading.Thread(target=remove)
            thread.start()
            start.wait()
            put(putter, b"data")
            thread.join()
            assert read(putter, b"data") == (CONTEXTS[1], 4, b"data")

    def test_sweeping_takes_no_blob(self, home: BlobHome) -> None:
        """However old it is."""
        put(home, b"data")
        home.sweep(begun_before=LATER)
        assert read(home, b"data") == (CONTEXTS[1], 4, b"data")
        assert home.sweep(begun_before=LATER) == 0

    # -- whose it is --------------------------------------------------------------------------------

    def test_a_home_knows_whose_it_is(self, home: BlobHome, open_home: OpenHome) -> None:
        """The owner is that of the first put; it never changes."""
        put(home, b"first")
        owner = home.find_owner()
        assert owner is not None
        second = open_home()
        second.put(digest_of(b"second"), [b"second"], CONTEXTS[0], owner="somebody else")
        assert second.find_owner() == home.find_owner() == owner


class HomeSuite(HomePromises):
    """Inherit from this and override `make_home(self, tmp_path, key)`.

    Called again with the same `tmp_path`, it must open the same home again.
    """

    def make_home(self, tmp_path: Path, key: KeyFunction | None) -> BlobHome:
        """Open the home that belongs to `tmp_path`, or make it."""
        raise NotImplementedError("override make_home(self, tmp_path, key)")

    @pytest.fixture
    def open_keyed(self, tmp_path: Path) -> Iterator[OpenKeyedHome]:
        """Opens the home once more with each call; all are closed in the end."""
        opened: list[BlobHome] = []

        def open_once_more(key: KeyFunction | None) -> BlobHome:
            opened.append(self.make_home(tmp_path, key))
            return opened[-1]

        yield open_once_more
        for home in opened:
            home.close()

    @pytest.fixture
    def open_home(self, open_keyed: OpenKeyedHome) -> OpenHome:
        """Without a key function."""
        return lambda: open_keyed(None)
