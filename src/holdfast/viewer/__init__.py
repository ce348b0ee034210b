"""The viewer (extra `viewer`): a store as web pages, to look at and to answer what waits.

`holdfast ui` opens it on this machine. `app(store)` is the same as an ASGI application, to be mounted behind
a login of one's own:

    Mount("/agents", holdfast.viewer.app(store, identify=who_is_logged_in, hosts=["tools.example.com"]))

`security` decides which requests are answered, `layout` has what all pages share, `routes` lists the pages.
Everything that people, models and tools said is text on them, never markup.
"""

from ..adapters.compat import check_versions

check_versions("holdfast.viewer", "viewer", {"starlette": ((1, 0), 2)})

from .app import app  # noqa: E402

__all__ = ["app"]
