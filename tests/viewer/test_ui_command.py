"""`holdfast ui`: it says where it is, lets in who has the address, and ends when it is told to."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import httpx
import pytest

from holdfast import blocking
from holdfast.adapters import compat
from holdfast.cli import main
from tests.cli.cli_processes import call, end, environment, start
from tests.docs.blocks import ROOT


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a store."""
    with blocking.open_store(tmp_path / "holdfast.db") as store, store.session("s") as session:
        session.add("Hello")
    return tmp_path


@contextmanager
def serving(place: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A viewer, and the address that it printed."""
    process = start(place, "ui", "--no-open", *(() if "--port" in options else ("--port", "0")), *options)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        if process.poll() is None:
            process.kill()
        end(process)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_who_has_the_address_and_ends_with_a_signal(place: Path, how: signal.Signals) -> None:
    """In good order: exit code 0, and no traceback, also while a browser is connected."""
    process = start(place, "ui", "--no-open", "--port", "0")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with httpx.Client(follow_redirects=True) as client:
        assert client.get(address.partition("?")[0]).status_code == 403
        page = client.get(address)
        assert page.status_code == 200
        assert ">s</a>" in page.text
        assert "token" not in str(page.url)
        assert "uvicorn" not in str(page.headers)
        process.send_signal(how)
        done = end(process)
    assert (done.code, done.out) == (0, "")
    assert done.err == "it ends with Ctrl-C\n"


def test_two_have_two_ports_and_two_cookies(place: Path) -> None:
    """A browser that is logged in to one stays logged in when another one is opened."""
    with serving(place) as (_, one), serving(place) as (_, other):
        with httpx.Client(follow_redirects=True) as client:
            for address in (one, other):
                assert client.get(address).status_code == 200
            for address in (one, other):
                assert client.get(address.partition("?")[0]).status_code == 200
            assert len(client.cookies) == 2


@pytest.mark.parametrize("scheme", ["sqlite", "dir"])
def test_read_only_leaves_every_file_as_it_is(scheme: str, tmp_path: Path) -> None:
    """Of a store that nobody else has open; before, while and after it is shown."""
    url = f"{scheme}:{tmp_path}/store"
    with blocking.open_store(url) as store, store.session("s") as session:
        session.add("Hello")
    before = digests(tmp_path)
    with serving(tmp_path, "--store", url, "--read-only") as (process, address):
        with httpx.Client(follow_redirects=True) as client:
            page = client.get(address)
            assert "read only" in page.text
            assert ">s</a>" in page.text
            assert client.get(page.url.join("/needs")).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert digests(tmp_path) == before


def digests(place: Path) -> dict[str, str]:
    """The contents of all files."""
    found = [path for path in place.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def test_a_port_that_is_taken_is_an_error_if_it_was_named(place: Path) -> None:
    """Else another one is found."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = call(place, f"ui --no-open --port {port}")
    assert done.code == 1
    assert f"port {port}" in done.err


def test_json_says_where_it_is(place: Path) -> None:
    """In one object on one line, at once."""
    with serving(place, "--json") as (_, line):
        said = json.loads(line)
        assert set(said) == {"url", "port", "store"}
        assert f":{said['port']}/?token=" in said["url"]


def test_another_address_than_this_machine_says_what_it_means(place: Path) -> None:
    """And names of other machines need to be allowed."""
    process = start(
        place, "ui", "--no-open", "--port", "0", "--host", "0.0.0.0", "--allow-host", "me.example"
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with httpx.Client(follow_redirects=True) as client:
        assert client.get(address).status_code == 200
        bare = address.partition("?")[0]
        for host, status in (("me.example", 403), ("other.example", 421), ("10.1.2.3", 403)):
            assert client.get(bare, headers={"host": host}).status_code == status
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert done.code == 0
    assert "every machine that reaches 0.0.0.0" in done.err
    assert "not encrypted" in done.err


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("ui --read-only --allow-changes", 2, "exclude each other"),
        ("ui --store sqlite:none.db", 3, "there is no store at none.db"),
        ("ui --store sqlite:none.db --read-only", 3, "there is no store at none.db"),
        ("ui --port 70000", 2, "0 to 65535"),
        ("ui --host no.such.host.invalid", 2, "no address of this machine"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(place: Path, line: str, code: int, why: str) -> None:
    """And nothing is made."""
    done = call(place, f"{line} --no-open")
    assert (done.code, done.out) == (code, "")
    assert why in " ".join(done.err.split())
    assert not (place / "none.db").exists()


def test_without_the_extra_it_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The viewer needs libraries that nothing else of holdfast needs."""

    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(compat, "version", version)
    for module in [name for name in sys.modules if name.startswith("holdfast.cli.viewer_display")]:
        monkeypatch.delitem(sys.modules, module)
    assert main(["ui", "--no-open"]) == 1
    assert "pip install 'holdfast[viewer]'" in capsys.readouterr().err


def test_the_application_says_so_too() -> None:
    """Whoever imports it without what it needs is told which extra that is."""
    script = (
        "import sys, importlib.metadata as metadata\n"
        "found = metadata.version\n"
        "def version(package):\n"
        "    if package == 'starlette': raise metadata.PackageNotFoundError(package)\n"
        "    return found(package)\n"
        "metadata.version = version\n"
        "import holdfast.viewer\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert "MissingExtra" in done.stderr
    assert "pip install 'holdfast[viewer]'" in done.stderr


def test_the_demo_shows_its_database(tmp_path: Path) -> None:
    """The session of the demo is there, killed twice and completed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo", str(tmp_path / "demo.db"), "--fast", "--ui", "--no-open"],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = next(line for line in process.stdout if line.startswith("http://")).strip()
    with httpx.Client(follow_redirects=True) as client:
        page = client.get(address).text
    assert re.search(r'href="/sessions/[\w.-]+"', page)
    assert "completed" in page
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
