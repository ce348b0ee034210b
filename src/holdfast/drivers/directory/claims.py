"""Claims: a file each, changed together with chunks or by itself. All of it needs the store's lock.

A commit with claims first writes down what it will change and which chunk will prove that it landed
(`pending.json`), then appends its chunks, then changes the claims. If it is cut short, the next process
looks for that chunk: it is there, and the changes are carried out; or it is not, and they are dropped. So
chunks and claims are changed all or nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ...errors import Corrupt
from ...ids import SessionId
from ...system import files
from ...system.files import find_bytes, list_names, put, sync_directory
from ..contract import ClaimChange, Claimed


class Proof(msgspec.Struct, frozen=True):
    """The last chunk of a commit: if it is in the journal, the commit landed."""

    session: SessionId
    seq: int
    sum: str


class _Claim(msgspec.Struct):
    key: str
    record: str


class _Pending(msgspec.Struct):
    proof: Proof
    changes: tuple[ClaimChange, ...]


_decode_claim = msgspec.json.Decoder(_Claim).decode
_decode_pending = msgspec.json.Decoder(_Pending).decode


class ClaimFiles:
    """The claims of one store."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self._path, self._scratch = path, scratch
        self._pending = path / "pending.json"

    def is_settled(self) -> bool:
        """Whether no commit with claims is under way or was cut short. Needs no lock."""
        return not files.exists(self._pending)

    def find(self, key: str) -> str | None:
        """The record under `key`. Needs no lock."""
        claim = self._read(self._file(key))
        return None if claim is None else claim.record

    def list_after(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        """Keys and records, in the order of their files. Needs no lock."""
        start = "" if after is None else self._file(after).name
        names = sorted(name for name in list_names(self._path) if name > start and name != self._pending.name)
        found: list[tuple[str, str]] = []
        for name in names:
            if len(found) >= limit:
                break
            claim = self._read(self._path / name)
            if claim is not None:  # Else it was freed meanwhile.
                found.append((claim.key, claim.record))
        return found

    def _read(self, path: Path) -> _Claim | None:
        data = find_bytes(path)
        if data is None:
            return None
        try:
            return _decode_claim(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(str(path), f"not a claim ({error})") from error

    def find_refusal(self, changes: Sequence[ClaimChange]) -> Claimed | None:
        """The first claim that is not as expected."""
        for change in changes:
            record = self.find(change.key)
            if record != change.expect:
                return Claimed(change.key, record)
        return None

    def announce(self, changes: Sequence[ClaimChange], proof: Proof) -> None:
        """Write down what is to be changed once the chunks are there. Durable."""
        put(self._pending, [msgspec.json.encode(_Pending(proof, tuple(changes))) + b"\n"], self._scratch)

    def carry_out(self, changes: Sequence[ClaimChange]) -> None:
        """Change the claims, whatever they are now. Durable."""
        for change in changes:
            path = self._file(change.key)
            if change.record is None:
                files.remove(path, missing_ok=True)
            else:
                data = msgspec.json.encode(_Claim(change.key, change.record)) + b"\n"
                put(path, [data], self._scratch, sync_name=False)
        sync_directory(self._path)
        # Durable together with the next change, before which no process needs to know.
        files.remove(self._pending, missing_ok=True)

    def settle(self, landed: Callable[[Proof], bool]) -> None:
        """Carry out or drop the changes of a commit that was cut short."""
        data = find_bytes(self._pending)
        if data is None:
            return
        try:
            pending = _decode_pending(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(str(self._pending), f"not the changes of a commit ({error})") from error
        self.carry_out(pending.changes if landed(pending.proof) else ())

    def _file(self, key: str) -> Path:
        return self._path / f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.json"
