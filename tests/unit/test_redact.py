"""Passwords in URLs of stores and homes, however mistyped: in no error, log, output or list of processes."""

from __future__ import annotations

import logging
import os
import random
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import HoldfastError, open_store
from holdfast.blobs import open_home
from holdfast.blobs.options import ObjectOptions
from holdfast.cli import main
from holdfast.drivers.postgres import address
from holdfast.drivers.url import find_driver
from holdfast.errors import BadInput, BadUrl
from holdfast.redact import scrub, show_address, show_origin, without_password
from tests.cli.cli_processes import environment

MARK = "zqxj"
"""In every part of every password, whatever it is cut into."""

PASSWORDS = (
    "zqxj1",
    "zqxj1@zqxj2",
    "zqxj1/zqxj2",
    "zqxj1:zqxj2",
    "zqxj1#zqxj2",
    "zqxj1?zqxj2",
    "zqxj1?zqxj2=zqxj3",
    "zqxj1%zqxj2",
    "zqxj1&zqxj2=zqxj3",
    "zqxj1 zqxj2",
    "[zqxj1]zqxj2",
    "zqxj1@zqxj2:zqxj3/zqxj4?zqxj5#zqxj6",
    "zqxj1'zqxj2\"zqxj3\\zqxj4",
    "zqxj1\nzqxj2",
)
STORES = (
    "postgresql://me:{}@127.0.0.1:1/db",
    "postgresql://me:{}@127.0.0.1/db?sslmode=disable",
    "postgresql://:{}@127.0.0.1:1/db",
    "postgres://127.0.0.1:1/db?user=me&password={}",
    "postgresql://127.0.0.1:1/db?password={}&schema=a&connections=3",
    "postgresql://127.0.0.1:1/db?schema=a&sslpassword={}",
    "postgresql:///db?host=127.0.0.1&port=1&password={}",
    "host=127.0.0.1 user=me password={} dbname=db",
    "postgresql+psycopg://me:{}@127.0.0.1/db",
    "me:{}@127.0.0.1/db",
    "//me:{}@127.0.0.1/db",
)
PATHS = (
    "sqlite://me:{}@127.0.0.1/db",
    "sqlite:me:{}@127.0.0.1/db",
    "dir:postgresql://me:{}@127.0.0.1/db",
    "memory:me:{}@127.0.0.1/db",
    "gs://bucket/prefix#{}",
)
"""Where a path should be. What is typed there and looks like one is a path."""

HOMES = (
    "s3://key:{}@bucket/prefix",
    "s3://bucket/prefix?secret_access_key={}",
    "s3://bucket/prefix?X-Amz-Signature={}",
    "az://container/prefix?sv=2024&sig={}",
    "https://account.blob.core.windows.net/box?sig={}",
    "key:{}@bucket",
)


@pytest.fixture
def seed() -> int:
    """The same slips in every run; a seed in the environment gives others."""
    return int(os.environ.get("HOLDFAST_SEED", "290102"))


def _mistype(url: str, choose: random.Random) -> str:
    """One slip of the finger, or two, outside of the password."""
    for _ in range(choose.randint(0, 2)):
        places = [place for place in range(len(url)) if MARK not in url[max(0, place - 4) : place + 5]]
        if not places:
            return url
        place = choose.choice(places)
        slip = choose.choice(("drop", "twice", "swap", "other"))
        if slip == "drop":
            url = url[:place] + url[place + 1 :]
        elif slip == "twice":
            url = url[:place] + url[place] + url[place:]
        elif slip == "swap":
            url = url[:place] + url[place + 1 : place + 2] + url[place] + url[place + 2 :]
        else:
            url = url[:place] + choose.choice(":;/@#?&= .\\|%'\"2") + url[place + 1 :]
    return url


def _urls(forms: tuple[str, ...], seed: int, count: int) -> Iterator[str]:
    choose = random.Random(seed)
    for form in forms:
        for password in PASSWORDS:
            yield form.format(password)
        for _ in range(20 * count):
            # An escaped one: what is not escaped may become a host or a path by a slip, and cannot be told.
            # Nor can a password that two slips have made the name of a user or a database.
            password = choose.choice(("zqxj1", "zqxj1%40zqxj2"))
            before, after = form.split("{}")
            url = _mistype(form.format(password), choose)
            if before[-2:] + password + after[:1] in url:
                yield url


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _check(error: BaseException, url: str) -> None:
    """Nothing of the password in what the error, or any that led to it, says in whatever way."""
    for one in _chain(error):
        said = [str(one), repr(one), *map(repr, one.args), *getattr(one, "__notes__", ())]
        said += [repr(value) for value in vars(one).values()]
        assert not any(MARK in text for text in said), (url, type(one), said)
    shown = [line for line in traceback.format_exception_only(error) if MARK in line]
    assert not shown, url


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server is asked. The error quotes what libpq and servers quote: everything but the password."""

    def connect(conninfo: str, **_: Any) -> Any:
        quoted = {key: value for key, value in conninfo_to_dict(conninfo).items() if "password" not in key}
        raise psycopg.OperationalError(f"connection failed: {quoted}")

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_nowhere")
def test_no_error_of_a_store_tells_the_password_of_its_url(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the URL is right, or has a slip or two in it, or a password that should have been escaped."""
    caplog.set_level(logging.DEBUG)
    errors = 0
    for url in (*_urls(STORES, seed, 10), *_urls(PATHS, seed, 0)):
        try:
            find_driver(url, create=False)().close()
        except HoldfastError as error:
            errors += 1
            _check(error, url)
    assert errors > 1000
    assert MARK not in caplog.text


@pytest.mark.usefixtures("_nowhere")
def test_no_error_of_a_home_tells_the_secrets_of_its_url(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does its name."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for url in (*_urls(HOMES, seed, 10), *_urls(PATHS, seed, 0)):
        try:
            home = open_home(url, create=False)
        except HoldfastError as error:
            _check(error, url)
        else:
            assert MARK not in home.name, url
            home.close()


def test_what_is_no_text_is_not_shown() -> None:
    """It may be an object of a settings library that hides its password, or does not."""
    for place in (
        b"postgresql://me:zqxj@host/db",
        ["postgresql://me:zqxj@host/db"],
        Path("postgresql://me:zqxj@h"),
    ):
        with pytest.raises(BadUrl) as caught:
            open_store(place)  # type: ignore[arg-type]
        _check(caught.value, repr(place))


def test_options_of_an_object_store_are_not_shown() -> None:
    """Neither by themselves nor in an error about them."""
    options = {"secret_access_key": "zqxj", "session_token": "zqxj2"}
    assert MARK not in repr(ObjectOptions(endpoint="https://zqxj@host", options=options))
    for given in (
        {"endpoint": "key:zqxj@localhost:9000"},
        {"endpoint": "http://key:zqxj@localhost:9000"},
        {"options": {**options, "acces_key": "zqxj3"}},
        {"options": {**options, "aws_virtual_hosted_style_request": "zqxj4"}, "region": "zz"},
    ):
        try:
            open_home("s3://bucket/prefix", **given)
        except BadInput as error:
            if "zqxj4" not in str(error):  # It is no secret.
                _check(error, str(given))
    with pytest.raises(BadInput) as caught:
        open_store("memory:", blobs="dir:b", blob_urls="//key:zqxj@cdn.example.org")
    _check(caught.value, "blob_urls")


def test_an_address_is_shown_without_its_password() -> None:
    """Also in the repr of the object."""
    found = address.parse("postgresql://me:zq%40xj@host:5433/db?password=zqxj&schema=a")
    assert "zqxj" in found.conninfo
    assert found.shown == "postgresql://me@host:5433/db"
    assert MARK not in repr(found)


def test_a_url_without_its_password_can_be_typed_again() -> None:
    """What is to be copied from a terminal names the same store."""
    assert without_password("postgresql://me:zqxj@h:1/db?password=zqxj&schema=a") == (
        "postgresql://me@h:1/db?schema=a"
    )
    assert without_password("postgresql://h/db?password=zqxj") == "postgresql://h/db"
    assert without_password("sqlite:a.db") == "sqlite:a.db"


def test_what_others_say_is_shown_without_secrets() -> None:
    """Signed URLs and credentials in the errors of other libraries."""
    said = "GET https://key:zqxj@host/box/a?sv=1&sig=zqxj failed for zqxj-token: password=zqxj"
    assert MARK not in scrub(said, "zqxj-token")
    assert scrub(said, "zqxj-token").startswith("GET https://key:…@host/box/a?… failed for …")


@pytest.mark.usefixtures("_nowhere")
@pytest.mark.parametrize(
    "line",
    [
        ["sessions", "--store", "{}"],
        ["--store={}", "sessions"],
        ["--json", "show", "s", "--store", "{}"],
        ["{}"],
        ["sessions", "{}"],
        ["--stor", "{}", "sessions"],
        ["sessions", "--limit", "{}"],
        ["show", "{}", "--store", "memory:"],
        ["run", "{}", "hello"],
        ["worker", "{}"],
        ["stats", "--blobs", "{}", "--store", "memory:"],
    ],
)
def test_the_command_line_never_repeats_a_password(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the URL stands."""
    for form in (STORES[0], STORES[-2], HOMES[0]):
        for password in PASSWORDS[:3]:
            url = form.format(password)
            main([one.format(url) for one in line])
            told = capsys.readouterr()
            assert MARK not in told.out + told.err, (url, told)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are looked at in /proc")
def test_a_list_of_processes_shows_no_password(tmp_path: Path) -> None:
    """Although it was given on the command line, for as long as the command runs."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me:zqxj@127.0.0.1:{silent.getsockname()[1]}/db"
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "tail", "s", "--store", url],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.DEVNULL,
        )
        try:
            silent.settimeout(60)
            with silent.accept()[0]:  # It has read its arguments, and is at work.
                shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
        finally:
            process.kill()
            process.wait()
    assert MARK not in shown
    assert "--store" in shown
    assert os.environ.get("_HOLDFAST_ARGUMENTS") is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://api.example.com/v1/orders", "https://api.example.com/v1/orders"),
        ("https://Api.Example.com:8443/v1", "https://api.example.com:8443/v1"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        (f"https://ann:{MARK}@example.com/", "https://example.com/"),
        (f"https://{MARK}@example.com/", "https://example.com/"),
        (
            f"https://example.com/a?token={MARK}&page=2#{MARK}",
            "https://example.com/a?token=…&page=…",
        ),
        (f"https://example.com/a?{MARK}", "https://example.com/a?…"),
        ("https://example.com/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/send", "https://example.com/…/send"),
        ("https://example.com/services/T01/B02/XXb4kYfWq7Zzp0aB3dE5gH2k", "https://example.com/services/T01/B02/…"),
        (
            "https://example.com/orders/3fa85f64-5717-4562-b3fc-2c963f66afa6/lines",
            "https://example.com/orders/3fa85f64-5717-4562-b3fc-2c963f66afa6/lines",
        ),
        (f"https://example.com:{MARK}/a", "…"),
        ("https://[nonsense/a", "…"),
    ],
)  # fmt: skip
def test_the_address_of_a_request_is_shown_without_its_secrets(address: str, shown: str) -> None:
    """Users, passwords, values of queries, fragments, and parts of paths that look like tokens."""
    assert show_address(address) == shown


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://hooks.example/services/T0/0a1b2c", "https://hooks.example/…"),
        ("https://ann:secret@hooks.example:8443/x?token=1#y", "https://hooks.example:8443/…"),
        ("http://[::1]:80", "http://[::1]:80/…"),
        ("http://host:port/secret", "…"),
    ],
)
def test_of_a_webhook_only_its_place_is_shown(address: str, shown: str) -> None:
    """All the rest may be what lets messages in."""
    assert show_origin(address) == shown
