"""What homes promise in which a key function says where blobs lie."""

from __future__ import annotations

import threading

import pytest

from ...blobs.home import BlobContext, BlobHome
from ...errors import BadInput
from .homes import CONTEXTS, LATER, HomeSuite, OpenKeyedHome, digest_of, put, read

GOOD_KEYS = (
    "a.bin",
    "images/2026/11/a.png",
    "naïve café/日本語/🦉.png",
    "a b#c?d%20e&f=g+h;i,j'k(l)@m!n$o~p*q:r|s<t>u\"v[w]x{y}z^`",
    "..a/...b/.c",
    "%2e%2e/%2f",
    "x" * 255 + "/" + "y" * 255,
    "/".join("d" * 20),
    "ü" * 127,
)

BAD_KEYS = (
    "",
    "/",
    "/etc/passwd",
    "..",
    ".",
    "../a",
    "a/../../b",
    "a/..",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "..\\a",
    "a\0b",
    "a\nb",
    "\ud800",
    "a./b",
    "a ",
    ".holdfast/home.json",
    ".Holdfast/x",
    "n" * 300,
    "é" * 128,
    "/".join(["d" * 200] * 5),
    "ab/" + "ab" * 32,
)


class KeyedHomeSuite(HomeSuite):
    """For homes in which a key function says where blobs lie: directories and object stores."""

    @pytest.mark.parametrize("key", [None, *GOOD_KEYS])
    def test_a_blob_lies_where_its_key_says(self, open_keyed: OpenKeyedHome, key: str | None) -> None:
        """And is found by its digest all the same, also by who knows no key function."""
        home = open_keyed(None if key is None else lambda digest, context: key)
        digest = put(home, b"data")
        other = open_keyed(None)
        assert read(home, b"data") == read(other, b"data") == (CONTEXTS[1], 4, b"data")
        assert other.find_key(digest) == (key or f"{digest[:2]}/{digest}")
        assert [blob.digest for blob in other.list_blobs(None, 10)] == [digest]

    def test_a_key_function_is_told_what_is_known(self, open_keyed: OpenKeyedHome) -> None:
        """The digest and the context, whose fields may grow."""

        def by_name(digest: str, context: BlobContext) -> str:
            return f"{context.metadata['by']}/{digest[:8]}-{context.file_name}"

        home = open_keyed(by_name)
        digest = put(home, b"data")
        assert home.find_key(digest) == f"me/{digest[:8]}-a.svg"

    @pytest.mark.parametrize("key", [*BAD_KEYS, None, 7, b"a"])
    def test_a_key_that_leads_elsewhere_is_refused(self, open_keyed: OpenKeyedHome, key: object) -> None:
        """Before anything is stored, with the reason."""
        home = open_keyed(lambda digest, context: key)  # type: ignore[arg-type, return-value]
        with pytest.raises(BadInput, match="the key function gave"):
            put(home, b"data")
        assert read(home, b"data") is None
        assert list(home.list_blobs(None, 10)) == []

    def test_two_digests_cannot_have_one_key(self, open_keyed: OpenKeyedHome) -> None:
        """The first keeps it; the error names both and the key."""
        home = open_keyed(lambda digest, context: "same")
        first = put(home, b"first")
        with pytest.raises(BadInput, match="'same'") as caught:
            put(home, b"second")
        assert first in str(caught.value)
        assert digest_of(b"second") in str(caught.value)
        assert read(home, b"first") == (CONTEXTS[1], 5, b"first")
        assert read(home, b"second") is None

    def test_of_two_digests_at_once_one_gets_the_key(self, open_keyed: OpenKeyedHome) -> None:
        """The other is told; no bytes are mixed up."""
        refused: list[bytes] = []

        def take_part(home: BlobHome, data: bytes) -> None:
            try:
                put(home, data)
            except BadInput:
                refused.append(data)

        blobs = [bytes([65 + n]) * 70_000 for n in range(4)]
        threads = [
            threading.Thread(target=take_part, args=(open_keyed(lambda digest, context: "same"), data))
            for data in blobs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        home = open_keyed(None)
        assert len(refused) == 3
        for data in blobs:
            assert read(home, data) == (None if data in refused else (CONTEXTS[1], 70_000, data))

    def test_a_blob_keeps_its_key(self, open_keyed: OpenKeyedHome) -> None:
        """Putting it again under another function stores nothing twice."""
        digest = put(open_keyed(lambda digest, context: "first"), b"data")
        put(open_keyed(lambda digest, context: "second"), b"data")
        home = open_keyed(None)
        assert home.find_key(digest) == "first"
        assert len(home.list_blobs(None, 10)) == 1

    def test_a_removed_blob_may_come_back_to_its_key(self, open_keyed: OpenKeyedHome) -> None:
        """Or near it, where a removal may still be on its way."""
        home = open_keyed(lambda digest, context: "there")
        digest = put(home, b"data")
        assert home.remove(digest, put_before=LATER)
        put(home, b"data")
        assert read(home, b"data") == (CONTEXTS[1], 4, b"data")
        assert str(home.find_key(digest)).startswith("there")
