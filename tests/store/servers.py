"""Object stores on this machine, over real HTTP: moto's server speaks S3, Azurite speaks Azure.

Each is a process of its own, bound to loopback, and ends with the block that started it.
"""

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

from holdfast.blobs.home import BlobHome
from holdfast.blobs.home_url import open_home
from holdfast.blobs.keys import KeyFunction
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
AZURITE = Path(os.environ.get("HOLDFAST_AZURITE", ROOT / ".venv" / "azurite"))
_AZURITE_MAIN = AZURITE / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"

_START_S = 60.0
_ACCOUNT = "devstoreaccount1"
# Azurite's own, the same everywhere: it guards nothing.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Server(NamedTuple):
    """A running object store with one bucket."""

    scheme: str
    endpoint: str
    bucket: str
    options: Mapping[str, str | bool]

    def open(self, prefix: str, key: KeyFunction | None = None) -> BlobHome:
        """The home below a prefix."""
        url = f"{self.scheme}://{self.bucket}/{prefix}"
        return open_home(url, key=key, endpoint=self.endpoint, options=self.options)


@contextmanager
def moto(place: Path) -> Iterator[Server]:
    """S3, as moto understands it."""
    port = free_port()
    command = [
        sys.executable,
        str(Path(__file__).with_name("moto_server.py")),
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    endpoint = f"http://127.0.0.1:{port}"
    with _running(command, port, place / "moto.log"):
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/blobs", method="PUT"), timeout=30).close()
        keys = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
        yield Server("s3", endpoint, "blobs", keys)


def why_no_azurite() -> str | None:
    """What is missing to run Azurite, or None."""
    if shutil.which("node") is None:
        return (
            "Azure is tested against Azurite, which needs Node.js with npm: install them, then: make azurite"
        )
    if not _AZURITE_MAIN.exists():
        return f"Azure is tested against Azurite, which is not at {AZURITE}: make azurite"
    return None


@contextmanager
def azurite(place: Path) -> Iterator[Server]:
    """Azure's blob storage, as Microsoft's own emulator understands it."""
    port = free_port()
    command = ["node", str(_AZURITE_MAIN), "--silent", "--disableTelemetry", "--blobHost", "127.0.0.1"]
    command += ["--blobPort", str(port), "--location", str(place)]
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    with _running(command, port, place / "azurite.log"):
        _make_container(endpoint, "blobs")
        options = {"account_name": _ACCOUNT, "account_key": _KEY}
        yield Server("az", endpoint, "blobs", options)


def _make_container(endpoint: str, name: str) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    signed = "PUT" + "\n" * 12 + "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed += f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    digest = hmac.digest(base64.b64decode(_KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    with open(log, "wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{command[:3]} does not answer on port {port}: {log.read_text()[-2000:]}"
                    )
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
