"""From a URL to a home, and from a blob to a URL."""

import urllib.request
from email.message import Message
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import holdfast
from holdfast import open_store
from holdfast.blobs import BlobContext, PresignedUrls, open_home
from holdfast.blobs.home import BlobHome
from holdfast.blobs.public_urls import PublicUrls
from holdfast.drivers.contract import Driver
from holdfast.errors import BadInput, BadUrl, NotFound, StoreFailed
from holdfast.testing.conformance.homes import digest_of, put, read
from tests.internals import engine_of
from tests.store.servers import Server


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "names no scheme"),
        ("blobs", "did you mean 'dir:blobs' or 's3://blobs'"),
        ("S3://bucket", "did you mean 's3://bucket'"),
        ("s4://bucket", "did you mean 's3://bucket'"),
        ("gcs://bucket", "did you mean 'gs://bucket'"),
        ("azure://box", "did you mean 'az://box'"),
        ("file:blobs", "did you mean 'dir:blobs'"),
        ("dir:blobs?x=1", "dir: takes no parameters"),
        ("s3://bucket?x=1", "options do not go into the URL"),
        (
            "ftp://host",
            "known are dir:PATH, s3://bucket/prefix, gs://bucket/prefix and az://container/prefix",
        ),
        ("sqlite:a.db", "blobs are in the store itself when no home is named"),
        ("dir:", "has no path; write for example 'dir:blobs'"),
        ("dir:///var/blobs", "'dir:var/blobs' is relative, 'dir:/var/blobs' is absolute"),
        ("dir:a\0b", "NUL"),
        ("s3:bucket/prefix", "names no bucket; write 's3://bucket/prefix'"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("az://box/a/../b", "no part of the prefix may be empty, '.' or '..'"),
        ("gs://bucket/a//b", "no part of the prefix may be empty"),
        ("s3://bucket/p?endpoint=x", "give them to open_home"),
        ("s3://bucket/p#x", "give them to open_home"),
        ("s3://key:secret@bucket/p", "neither credentials nor a port"),
        ("s3://host:9000/bucket", "neither credentials nor a port"),
    ],
)
def test_a_bad_url_is_refused_with_a_hint(url: str, hint: str) -> None:
    """Before anything is opened or made, by store and home alike; secrets are not repeated."""
    for refuse in (open_home, lambda url: open_store("memory:", blobs=url)):
        with pytest.raises(BadUrl) as caught:
            refuse(url)
        assert hint in str(caught.value)
        assert "secret" not in str(caught.value)


def test_what_is_no_home_is_refused() -> None:
    """At once, and not where it would be used."""
    with pytest.raises(BadUrl, match="no home of blobs"):
        open_store("memory:", blobs=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "options", "hint"),
    [
        ("dir:blobs", {"region": "eu-west-1"}, "for object stores"),
        ("gs://bucket", {"region": "eu-west-1"}, "region is for s3://"),
        ("az://box", {"path_style": True}, "path_style is for s3://"),
        ("gs://bucket", {"profile": "me"}, "profile is for s3://"),
        ("s3://bucket", {"endpoint": "localhost:9000"}, "must begin with https:// or http://"),
        ("s3://bucket", {"options": {"acces_key_id": "x"}}, "acces_key_id"),
        ("s3://bucket", {"profile": "nobody's"}, "nobody's"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(
    url: str, options: dict[str, object], hint: str
) -> None:
    """With its name."""
    with pytest.raises(BadInput, match=hint):
        open_home(url, **options)  # type: ignore[arg-type]


def test_a_directory_that_is_not_empty_is_no_home(tmp_path: Path) -> None:
    """Neither is a store, or a file; nor is one made where none is to be made."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(BadUrl, match="not empty and is no home of blobs"):
        open_home(f"dir:{tmp_path}/full")
    (tmp_path / "file").touch()
    with pytest.raises(BadUrl, match="is a file"):
        open_home(f"dir:{tmp_path}/file")
    with pytest.raises(NotFound, match="no home of blobs"):
        open_home(f"dir:{tmp_path}/none", create=False)
    assert not (tmp_path / "none").exists()


async def test_a_store_takes_its_home_by_url(tmp_path: Path, s3: Server) -> None:
    """Or as an object with options of its own."""
    for blobs in (f"dir:{tmp_path}/blobs", s3.open("store")):
        async with open_store(f"sqlite:{tmp_path}/a.db", blobs=blobs) as store:
            home = engine_of(store).home
            await anyio.to_thread.run_sync(put, home, b"data")
            assert await anyio.to_thread.run_sync(read, home, b"data") is not None
            assert engine_of(store).driver.blobs.find(digest_of(b"data")) is None


def test_path_style_says_how_the_bucket_is_named(s3: Server) -> None:
    """In the path, or as part of the host's name: then the endpoint names it already."""
    options = {"endpoint": s3.endpoint, "options": s3.options}
    styled = open_home(f"s3://{s3.bucket}/path-style", path_style=True, **options)  # type: ignore[arg-type]
    digest = put(styled, b"data")
    url = str(styled.sign(digest, valid_s=60))
    assert url.startswith(f"{s3.endpoint}/{s3.bucket}/path-style/")
    virtual = open_home(f"s3://{s3.bucket}/path-style", path_style=False, **options)  # type: ignore[arg-type]
    assert virtual.name == styled.name


def test_credentials_come_from_the_environment(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other tool of that cloud takes them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    home = open_home(f"s3://{s3.bucket}/environment", region="us-east-1")
    assert "from-the-environment" in str(home.sign(put(home, b"data"), valid_s=60))


def test_credentials_come_from_a_profile(s3: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Named as an option, or by AWS_PROFILE."""
    config = tmp_path / "credentials"
    config.write_text("[tests]\naws_access_key_id = from-a-profile\naws_secret_access_key = test\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    url, where = f"s3://{s3.bucket}/profile", {"endpoint": s3.endpoint, "region": "us-east-1"}
    home = open_home(url, profile="tests", **where)  # type: ignore[arg-type]
    assert "from-a-profile" in str(home.sign(put(home, b"data"), valid_s=60))
    monkeypatch.setenv("AWS_PROFILE", "tests")
    home = open_home(url, **where)  # type: ignore[arg-type]
    assert "from-a-profile" in str(home.sign(put(home, b"data"), valid_s=60))


def test_a_bucket_that_is_not_there_is_named(s3: Server, azure: Server) -> None:
    """Reading from it is no empty answer."""
    for server in (s3, azure):
        home = server._replace(bucket="elsewhere").open("x")
        for use in (lambda home=home: put(home, b"data"), lambda home=home: home.find(digest_of(b"data"))):
            with pytest.raises(StoreFailed, match=f"{server.scheme}://elsewhere/x: there is no such bucket"):
                use()


# -- public URLs --------------------------------------------------------------------------------------


def by_context(reference: str, context: BlobContext) -> str:
    return f"https://example.org/{reference.removeprefix('media+sha256://')}/{context.file_name}"


async def by_context_later(reference: str, context: BlobContext) -> str:
    await anyio.lowlevel.checkpoint()
    return by_context(reference, context)


async def url_of(home: BlobHome, urls: PublicUrls | None, data: bytes) -> str | None:
    async with open_store("memory:", blobs=home, blob_urls=urls) as store:
        return await store.find_blob_url(f"media+sha256://{digest_of(data)}")


async def test_a_static_base_comes_before_the_key(tmp_path: Path) -> None:
    """Escaped as URLs are."""
    home = open_home(f"dir:{tmp_path}/home", key=lambda digest, context: "café/a b#1?.png")
    put(home, b"data")
    url = await url_of(home, "https://cdn.example.org/blobs/", b"data")
    assert url == "https://cdn.example.org/blobs/caf%C3%A9/a%20b%231%3F.png"
    assert await url_of(home, "https://cdn.example.org", b"other") is None


@pytest.mark.parametrize("urls", [by_context, by_context_later])
async def test_a_function_may_say_where_blobs_are(urls: PublicUrls, tmp_path: Path) -> None:
    """Sync or async; it is given the reference and the context, also for the store's own home."""
    async with open_store(f"sqlite:{tmp_path}/a.db", blob_urls=urls) as store:
        digest = await anyio.to_thread.run_sync(put, engine_of(store).home, b"data")
        assert await store.find_blob_url(digest) == f"https://example.org/{digest}/a.svg"
        assert await store.find_blob_url(digest_of(b"other")) is None


def fetch(url: str) -> tuple[bytes, Message]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read(), answer.headers


@pytest.mark.parametrize(("server", "key"), [("s3", "a b/ü#?%.svg"), ("azure", "a-b/c+d(1)=2.svg")])
async def test_a_signed_url_can_be_read_by_anybody(
    server: str, key: str, request: pytest.FixtureRequest
) -> None:
    """With the media type and the file name as headers."""
    home = request.getfixturevalue(server).open("signed", lambda digest, context: key)
    put(home, b"<svg/>")
    for urls in (None, PresignedUrls(valid_s=60)):
        url = await url_of(home, urls, b"<svg/>")
        assert url is not None
        body, headers = await anyio.to_thread.run_sync(fetch, url)
        assert body == b"<svg/>"
        assert headers["Content-Type"] == "image/svg+xml; charset=utf-8"
        assert headers["Content-Disposition"] == "inline; filename*=UTF-8''a.svg"


async def test_a_signed_url_that_would_be_refused_is_not_given(azure: Server) -> None:
    """Azure's are wrong for keys with characters that a URL escapes."""
    home = azure.open("unsigned", lambda digest, context: "a b.svg")
    put(home, b"<svg/>")
    assert await url_of(home, PresignedUrls(), b"<svg/>") is None


async def test_homes_without_urls_have_none(tmp_path: Path) -> None:
    """And a session goes on with bytes."""
    async with open_store(f"sqlite:{tmp_path}/a.db") as store:
        digest = await anyio.to_thread.run_sync(put, engine_of(store).home, b"data")
        assert await store.find_blob_url(digest) is None


@pytest.mark.parametrize("urls", ["cdn.example.org", PresignedUrls(valid_s=0), PresignedUrls(valid_s=1e9), 7])
def test_urls_that_could_lead_nowhere_are_refused(urls: object) -> None:
    """When the store is opened, not when a model is to be asked."""
    with pytest.raises(BadInput):
        holdfast.open_store("memory:", blob_urls=urls)  # type: ignore[arg-type]


@pytest.mark.parametrize("urls", ["https://cdn.example.org", PresignedUrls(valid_s=60)])
async def test_urls_that_a_home_can_never_have_are_refused(
    urls: PublicUrls, store_url: str | Driver, tmp_path: Path
) -> None:
    """The store's own home has no paths, and only an object store signs: not a silent None for every blob."""
    homes = [None] if isinstance(urls, str) else [None, f"dir:{tmp_path}/blobs"]
    for blobs in homes:
        with pytest.raises(BadInput, match=r"blob_urls.*(no paths|cannot sign).*blobs='"):
            async with open_store(store_url, blobs=blobs, blob_urls=urls):
                pass
    if isinstance(store_url, str):  # It was closed, and can be opened.
        async with open_store(store_url) as store:
            assert [head async for head in store.sessions()] == []
