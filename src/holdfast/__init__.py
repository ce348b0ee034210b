"""holdfast: the durability layer for LLM agents.

A session is a journal; everything else is a fold over it. See `open_store`.
"""

# Type checkers take this for true. For the rest, all names are loaded when the first of them is asked for, so
# that the command line can say its help without them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .public import *  # noqa: F403
    from .public import __all__ as __all__
else:

    def __getattr__(name):
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Not `from . import public`: that would ask here first.
        from importlib import import_module

        public = import_module(".public", __name__)
        found = {one: getattr(public, one) for one in public.__all__}
        globals().update(found, __all__=public.__all__)
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
