"""A bucket of an object store: the few requests that a home makes of it, through obstore.

Records are replaced only by who knows their last version, so that two writers never overwrite each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from ..errors import BadInput, MissingExtra, StoreFailed
from ..limits import (
    BLOB_PART_BYTES,
    OBJECT_PART_BYTES,
    OBJECT_PARTS_AT_ONCE,
    OBJECT_RETRY_S,
    OBJECT_SILENCE_S,
)
from ..redact import scrub
from .chunking import even_parts
from .home import BlobContext
from .options import ObjectOptions

try:
    import obstore
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
        UnknownConfigurationKeyError,
    )
    from obstore.store import AzureStore, GCSStore, S3Store
except ImportError as error:
    raise MissingExtra("a home of blobs in an object store", "objects") from error

_Store: TypeAlias = S3Store | GCSStore | AzureStore

_ENDPOINT: Final = {"s3": "endpoint", "gs": "base_url", "az": "endpoint"}
"""What obstore calls it."""

_ENDPOINT_VARIABLES: Final = (
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AZURE_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
)

_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")


class Version(NamedTuple):
    """Which writing of a record was read."""

    e_tag: str | None
    version: str | None


class Bucket:
    """The objects below a prefix."""

    def __init__(self, store: _Store, name: str, secrets: Sequence[str] = ()) -> None:
        self._store, self._name, self._secrets = store, name, secrets

    # -- records, small and replaced under a condition ---------------------------------------------

    def read(self, path: str) -> tuple[bytes, Version] | None:
        """What is there, and which version of it."""
        try:
            with self._translated():
                found = obstore.get(self._store, path)
                meta = found.meta
                return bytes(found.bytes()), Version(meta["e_tag"], meta["version"])
        except FileNotFoundError:
            return None

    def replace(self, path: str, data: bytes, version: Version | None) -> Version | None:
        """Write the record if this version is the last (None: if there is none); the new version.

        None: another writer was faster, and nothing was written.
        """
        known = {name: value for name, value in version._asdict().items() if value} if version else None
        mode: Any = known or "create"
        try:
            with self._translated():
                done = obstore.put(self._store, path, data, mode=mode, use_multipart=False)
                return Version(done["e_tag"], done["version"])
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            # Or we ourselves: the answer to the first try may have been lost.
            there = self.read(path)
            return there[1] if there and there[0] == data else None

    def list_names(self, folder: str, after: str | None) -> Iterator[str]:
        """The names in the folder in order, beginning after `after`."""
        offset = f"{folder}/{after}" if after else None
        with self._translated():
            for page in obstore.list(self._store, folder, offset=offset):
                yield from (str(meta["path"]).removeprefix(f"{folder}/") for meta in page)

    # -- bytes, large and never replaced by others ---------------------------------------------------

    def upload(self, path: str, parts: Iterable[bytes], context: BlobContext) -> int:
        """Store the bytes, in several requests if they are many; how many they were.

        What the caller's parts raise is passed on, and nothing is stored.
        """
        attributes = {"Content-Type": context.media_type}
        if context.file_name is not None:
            name = quote(context.file_name, safe="")
            attributes["Content-Disposition"] = f"inline; filename*=UTF-8''{name}"
        source = _Source(even_parts(parts, OBJECT_PART_BYTES))
        first = next(source, b"")
        second = next(source, None)
        try:
            with self._translated():
                if second is None:
                    obstore.put(self._store, path, first, attributes=attributes, use_multipart=False)
                else:
                    obstore.put(
                        self._store,
                        path,
                        chain((first, second), source),
                        attributes=attributes,
                        use_multipart=True,
                        chunk_size=OBJECT_PART_BYTES,
                        max_concurrency=OBJECT_PARTS_AT_ONCE,
                    )
        except Exception:
            if source.error is not None:
                raise source.error from None
            raise
        return source.size

    def download(self, path: str) -> Iterator[bytes]:
        """The bytes in parts, as they arrive; none if they are not there. Asked for when they are read."""
        try:
            with self._translated():
                for part in obstore.get(self._store, path).stream(min_chunk_size=BLOB_PART_BYTES):
                    yield bytes(part)
        except FileNotFoundError:
            return

    def find_size(self, path: str) -> int | None:
        """The size of an object, if there is one."""
        try:
            with self._translated():
                return int(obstore.head(self._store, path)["size"])
        except FileNotFoundError:
            return None

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        try:
            with self._translated():
                obstore.delete(self._store, path)
        except FileNotFoundError:
            pass

    def sign(self, path: str, valid_s: float) -> str | None:
        """A URL at which the object can be read for so long, if there can be one."""
        with self._translated():
            url = str(obstore.sign(self._store, "GET", path, timedelta(seconds=valid_s)))
        # For Azure, obstore signs the path as it stands in the URL, and the server the one that is meant.
        is_misleading = isinstance(self._store, AzureStore) and "%" in urlsplit(url).path
        return None if is_misleading else url

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The one place where obstore's errors become ours, but for those that are answers."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            _clean(error, self._secrets)
            raise
        except FileNotFoundError as error:
            _clean(error, self._secrets)
            if any(word in str(error) for word in _NO_BUCKET):
                raise StoreFailed(
                    f"{self._name}: there is no such bucket. Make it, or name another."
                ) from error
            raise
        except (PermissionDeniedError, UnauthenticatedError) as error:
            _clean(error, self._secrets)
            raise StoreFailed(
                f"{self._name}: {_first_line(error)}. Check the credentials and what they allow; then it is "
                "safe to try again."
            ) from error
        except (BaseError, OSError) as error:
            _clean(error, self._secrets)
            raise StoreFailed(
                f"{self._name}: {_first_line(error)}. See to the cause; then it is safe to try again."
            ) from error


class _Source(Iterator[bytes]):
    """Counts what passes, and remembers what the caller's parts raised: that is not the server's error."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self.size = 0
        self.error: BaseException | None = None

    def __next__(self) -> bytes:
        try:
            part = next(self._parts)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.size += len(part)
        return part


def _clean(error: BaseException, secrets: Iterable[str]) -> None:
    """obstore may quote a URL with its signature, or an option; a program that prints the cause prints it."""
    error.args = tuple(scrub(one, *secrets) if isinstance(one, str) else one for one in error.args)


def _first_line(error: BaseException) -> str:
    """obstore adds pages of details."""
    return str(error).strip().split("\n")[0][:500].rstrip(".")


def connect(scheme: str, bucket: str, prefix: str, options: ObjectOptions, name: str) -> Bucket:
    """The bucket that these options and the environment lead to. No request is made yet."""
    general: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": {
            **({"allow_http": True} if _is_plain_http(options) else {}),
            # Of a request as a whole, where a large part over a slow line is no failure; silence is.
            "timeout": timedelta(hours=1),
            "read_timeout": timedelta(seconds=OBJECT_SILENCE_S),
        },
        "retry_config": {"retry_timeout": timedelta(seconds=OBJECT_RETRY_S)},
    }
    config: Any = {**({_ENDPOINT[scheme]: options.endpoint} if options.endpoint else {}), **options.options}
    try:
        if scheme == "s3":
            return Bucket(_connect_s3(bucket, config, general, options), name, options.secrets)
        kind = GCSStore if scheme == "gs" else AzureStore
        return Bucket(kind(bucket, config=config, **general), name, options.secrets)
    except UnknownConfigurationKeyError as error:
        _clean(error, options.secrets)
        raise BadInput(f"{name}: {_first_line(error)}") from error
    except BaseError as error:
        _clean(error, options.secrets)
        raise BadInput(f"{name} cannot be opened: {_first_line(error)}") from error


def _is_plain_http(options: ObjectOptions) -> bool:
    """Whether the caller said so: obstore wants to be told apart from the endpoint itself."""
    given = [options.endpoint, *options.options.values(), *map(os.environ.get, _ENDPOINT_VARIABLES)]
    return any(isinstance(value, str) and value.startswith("http://") for value in given)


def _connect_s3(bucket: str, config: Any, general: dict[str, Any], options: ObjectOptions) -> S3Store:
    if options.region:
        config["region"] = options.region
    if options.path_style is not None:
        config["virtual_hosted_style_request"] = not options.path_style
    profile = options.profile or (None if _has_keys(config) else os.environ.get("AWS_PROFILE"))
    if profile:
        general["credential_provider"] = _profile_credentials(profile)
    return S3Store(bucket, config=config, **general)


def _has_keys(config: dict[str, Any]) -> bool:
    return any("access_key_id" in key.lower() for key in config) or "AWS_ACCESS_KEY_ID" in os.environ


def _profile_credentials(profile: str) -> Any:
    """Profiles may say anything from a pair of keys to a program that asks a person to sign in."""
    try:
        import boto3  # type: ignore[import-untyped]
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise BadInput(
            f"AWS profile {profile!r}: profiles are read by boto3, which is not installed (pip install "
            "boto3). Or give the keys by environment variables or options."
        ) from error
    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=profile))
    except Exception as error:
        raise BadInput(f"AWS profile {profile!r}: {error}") from error
