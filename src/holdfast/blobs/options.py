"""How to reach an object store, where the environment does not say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from ..errors import BadInput

_SECRET = re.compile("secret|key|token|sas|password|credential|account_json", re.IGNORECASE)


class ObjectOptions(Struct, frozen=True, kw_only=True):
    """`options` are obstore's own names for the kind of store: `access_key_id`, `account_name` …"""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    profile: str | None = None
    options: Mapping[str, str | bool] = {}

    def __repr__(self) -> str:
        """Without the credentials."""
        return f"ObjectOptions(region={self.region!r}, profile={self.profile!r}, …)"

    @property
    def secrets(self) -> list[str]:
        """What no error may repeat."""
        named = [value for key, value in self.options.items() if _SECRET.search(key)]
        return [value for value in named if isinstance(value, str)]

    def check(self, shown: str, scheme: str) -> None:
        """Refuse what has no meaning for this kind of store: it would be passed over."""
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise BadInput(f"the endpoint for {shown} must begin with https:// or http://")
        if self.endpoint is not None and "@" in self.endpoint:
            raise BadInput(f"the endpoint for {shown} holds a user or a password; give them in options")
        if scheme != "s3":
            for name in ("region", "path_style", "profile"):
                if getattr(self, name) is not None:
                    raise BadInput(f"{name} is for s3:// and means nothing for {shown}")
