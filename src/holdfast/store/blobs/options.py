"""How to reach an object store, where the environment does not say."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ...errors import BadInput


class ObjectOptions(Struct, frozen=True, kw_only=True):
    """`options` are obstore's own names for the kind of store: `access_key_id`, `account_name` …"""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    profile: str | None = None
    options: Mapping[str, str | bool] = {}

    def check(self, url: str, scheme: str) -> None:
        """Refuse what has no meaning for this kind of store: it would be passed over."""
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise BadInput(f"endpoint={self.endpoint!r} for {url!r} must begin with https:// or http://")
        if scheme != "s3":
            for name in ("region", "path_style", "profile"):
                if getattr(self, name) is not None:
                    raise BadInput(f"{name} is for s3:// and means nothing for {url!r}")
