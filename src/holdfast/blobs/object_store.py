"""`s3://`, `gs://`, `az://`: objects in a bucket, for many machines and without a server to run.

    prefix/
      <2 characters>/<digest>       the bytes; or wherever a key function says
      .holdfast/
        home.json                   {format, store}: whose home it is, once something was put
        blobs/<digest>              the blob's record: its state, its key, when it was put last, its context
        keys/<sha256 of the key>    {digest}: for which blob a key function chose it, for ever

No object store removes under a condition. So a record is never removed, only replaced by who has read its
last version, and everything that must not happen at once meets there:

    (none) ──▸ uploading ──▸ whole ──▸ removed ──▸ uploading (with another key) …
                  └────────────────────▴

A put that finds `whole` replaces the record by one with a new time, and a removal replaces it by
`removed` before the bytes go: one of the two fails and looks again. After a removal the bytes come back under
another key, since a removal of the old one may still be on its way; until it is known to have arrived, the
old key is among the record's `leftover`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from ..errors import BadInput, Corrupt, NewerFormat, StoreBusy, StoreFailed
from ..ids import fresh_uid
from ..limits import OBJECT_READS_AT_ONCE, OBJECT_TRIES_MAX
from ..system import threads
from ..system.clock import utc_now
from .bucket import Bucket, Version
from .chunking import checked_in, checked_out
from .home import BlobContext, ListedBlob, StoredBlob, upload_swept
from .keys import OWN, KeyFunction, choose_key, clash, digest_key
from .metadata import check_context, check_digest

FORMAT = 1

_HOME = f"{OWN}/home.json"
_BLOBS = f"{OWN}/blobs"
_KEYS = f"{OWN}/keys"


class _BlobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`uid` is another one in each version: equal bytes would count as the same version."""

    state: Literal["uploading", "whole", "removed"]
    key: str
    put_at: datetime
    uid: str
    context: BlobContext
    size: int = 0
    leftover: tuple[str, ...] = ()


class _Home(msgspec.Struct):
    format: int
    store: str


class _Key(msgspec.Struct):
    digest: str


_encode = msgspec.json.Encoder().encode
_decode_record = msgspec.json.Decoder(_BlobRecord).decode
_decode_home = msgspec.json.Decoder(_Home).decode
_decode_key = msgspec.json.Decoder(_Key).decode


class ObjectHome:
    """Blobs below a prefix of a bucket."""

    def __init__(self, bucket: Bucket, name: str, *, key: KeyFunction | None = None) -> None:
        self.name = name
        self._bucket, self._key_function = bucket, key
        self._has_owner = False

    # -- putting ------------------------------------------------------------------------------------

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        key = choose_key(self._key_function, check_digest(digest), check_context(context))
        if not self._has_owner:
            self._record_owner(owner)
        if key != digest_key(digest):
            self._take_key(key, digest)
        record, version = self._begin(digest, key, context)
        if record.state == "uploading":
            arriving = checked_in(digest, parts)
            size = self._bucket.upload(record.key, arriving, record.context)
            self._finish(digest, record, version, size)

    def _begin(self, digest: str, key: str, context: BlobContext) -> tuple[_BlobRecord, Version]:
        """The record, `whole` with a new time, or `uploading` and ours to finish."""
        new = _BlobRecord(state="uploading", key=key, put_at=utc_now(), uid=fresh_uid(), context=context)
        version = self._write(digest, new, None)
        if version is not None:
            return new, version
        for _ in range(OBJECT_TRIES_MAX):
            found = self._find_record(digest)
            if found is None:
                raise StoreFailed(f"{self.name}: the record of blob {digest} is gone")
            record, version = found
            if record.state == "removed":
                # A removal of the old key may still be on its way.
                fresh = f"{key}.{fresh_uid()[:8]}"
                record = msgspec.structs.replace(new, key=fresh, leftover=record.leftover)
            elif record.state == "uploading":
                # Its writer died, or is as far as we are: the bytes are the same, so is the place.
                record = msgspec.structs.replace(record, context=context)
            elif self._bucket.find_size(record.key) != record.size:
                # The bytes were removed, but not by a home: here they are again.
                record = msgspec.structs.replace(record, state="uploading")
            record = _touched(record)
            written = self._write(digest, record, version)
            if written is not None:
                return record, written
        raise self._busy(digest)

    def _finish(self, digest: str, record: _BlobRecord, version: Version, size: int) -> None:
        """The bytes are there: say so, unless another put has said it meanwhile."""
        for _ in range(OBJECT_TRIES_MAX):
            if self._write(digest, _touched(record, state="whole", size=size), version) is not None:
                return
            found = self._find_record(digest)
            if found is None or found[0].key != record.key or found[0].state == "removed":
                raise upload_swept(digest, self.name)
            record, version = found
        raise self._busy(digest)

    def _take_key(self, key: str, digest: str) -> None:
        """A key is one blob's for ever. Nothing else may lie there."""
        path = f"{_KEYS}/{hashlib.sha256(key.encode()).hexdigest()}"
        found = self._bucket.read(path)
        if found is None:
            if self._bucket.find_size(key) is not None:
                raise BadInput(
                    f"the key function gives {key!r} to blob {digest} in {self.name}, but something is there "
                    "already that is no blob"
                )
            if self._bucket.replace(path, _encode(_Key(digest)), None) is not None:
                return
            found = self._bucket.read(path)
        other = _decode_key(found[0]).digest if found else ""
        if other != digest:
            raise clash(key, digest, other, self.name)

    # -- looking ------------------------------------------------------------------------------------

    def find(self, digest: str) -> StoredBlob | None:
        record = self._find_whole(check_digest(digest))
        if record is None:
            return None
        parts = checked_out(digest, self._bucket.download(record.key), self.name)
        return StoredBlob(record.context, record.size, parts)

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        blobs: list[ListedBlob] = []
        for digest, (record, _) in self._iter_records(after, at_once=limit):
            if len(blobs) == limit:
                break
            if record.state == "whole":
                blobs.append(ListedBlob(digest, record.size, record.put_at, record.context))
        return blobs

    def find_key(self, digest: str) -> str | None:
        record = self._find_whole(check_digest(digest))
        return record.key if record else None

    def sign(self, digest: str, *, valid_s: float) -> str | None:
        key = self.find_key(digest)
        return self._bucket.sign(key, valid_s) if key else None

    # -- removing -----------------------------------------------------------------------------------

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        return self._remove(check_digest(digest), "whole", put_before)

    def _remove(self, digest: str, state: str, put_before: datetime) -> bool:
        """First it is no blob any more; then its bytes go."""
        for _ in range(OBJECT_TRIES_MAX):
            found = self._find_record(digest)
            if found is None or found[0].state != state or found[0].put_at >= put_before:
                return False
            record, version = found
            gone = _touched(
                record, state="removed", put_at=record.put_at, leftover=(*record.leftover, record.key)
            )
            written = self._write(digest, gone, version)
            if written is not None:
                self._clear_leftover(digest, gone, written)
                return True
        raise self._busy(digest)

    def sweep(self, *, begun_before: datetime) -> int:
        swept = 0
        for digest, (record, version) in self._iter_records(None, at_once=OBJECT_READS_AT_ONCE):
            if record.state == "uploading" and record.put_at < begun_before:
                swept += self._remove(digest, "uploading", begun_before)
            elif record.leftover:
                self._clear_leftover(digest, record, version)
        return swept

    def _clear_leftover(self, digest: str, record: _BlobRecord, version: Version) -> None:
        for key in record.leftover:
            self._bucket.delete(key)
        # If another process has replaced the record, the next sweep finds these keys in it once more.
        self._write(digest, _touched(record, put_at=record.put_at, leftover=()), version)

    # -- records ------------------------------------------------------------------------------------

    def _find_whole(self, digest: str) -> _BlobRecord | None:
        found = self._find_record(digest)
        return found[0] if found and found[0].state == "whole" else None

    def _find_record(self, digest: str) -> tuple[_BlobRecord, Version] | None:
        found = self._bucket.read(f"{_BLOBS}/{digest}")
        if found is None:
            return None
        try:
            return _decode_record(found[0]), found[1]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(f"blob {digest} in {self.name}", f"its record cannot be read ({error})") from error

    def _write(self, digest: str, record: _BlobRecord, version: Version | None) -> Version | None:
        return self._bucket.replace(f"{_BLOBS}/{digest}", _encode(record), version)

    def _iter_records(
        self, after: str | None, *, at_once: int
    ) -> Iterator[tuple[str, tuple[_BlobRecord, Version]]]:
        """In the order of their digests. Several are read at once, a request each."""
        names = self._bucket.list_names(_BLOBS, after)
        with threads.ThreadPoolExecutor(OBJECT_READS_AT_ONCE) as pool:
            while page := [name for name, _ in zip(names, range(at_once), strict=False)]:
                for digest, found in zip(page, pool.map(self._find_record, page), strict=True):
                    if found is not None:
                        yield digest, found

    def _busy(self, digest: str) -> StoreBusy:
        return StoreBusy(f"{self.name}: others keep changing the record of blob {digest}; try again")

    # -- whose it is --------------------------------------------------------------------------------

    def find_owner(self) -> str | None:
        found = self._bucket.read(_HOME)
        if found is None:
            return None
        try:
            home = _decode_home(found[0])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(
                f"{self.name}/{_HOME}", f"not what a home of blobs begins with ({error})"
            ) from error
        if home.format > FORMAT:
            raise NewerFormat(
                f"{self.name}: this home of blobs has format {home.format}; this holdfast reads {FORMAT}. "
                "Upgrade holdfast."
            )
        return home.store

    def _record_owner(self, owner: str) -> None:
        if self.find_owner() is None:
            self._bucket.replace(_HOME, _encode(_Home(FORMAT, owner)), None)
            self._check_conditions()
        self._has_owner = True

    def _check_conditions(self) -> None:
        """A server that passes over conditions would let two writers overwrite each other."""
        probes = (None, Version('"no such version"', "0"))
        if any(self._bucket.replace(_HOME, _encode(_Home(FORMAT, fresh_uid())), probe) for probe in probes):
            self._bucket.delete(_HOME)
            raise StoreFailed(
                f"{self.name}: this server does not heed If-None-Match and If-Match, without which blobs "
                "cannot be removed safely. Use a server that does, or another home."
            )

    def close(self) -> None:
        pass  # Connections are closed with their last reference.


def _touched(record: _BlobRecord, **changes: object) -> _BlobRecord:
    """The next version of a record."""
    return msgspec.structs.replace(record, **{"put_at": utc_now(), "uid": fresh_uid(), **changes})
