"""holdfast: the durability layer for LLM agents.

A session is a journal; everything else is a fold over it. See `open_store`. These are the names that most
programs need; `docs/api.md` lists the modules with the others.
"""

__version__ = "0.1.0"

# Type checkers take this for true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import adapters as adapters
    from . import agents as agents
    from . import blobs as blobs
    from . import blocking as blocking
    from . import crash_test as crash_test
    from . import drivers as drivers
    from . import errors as errors
    from . import http as http
    from . import messages as messages
    from . import recipes as recipes
    from . import records as records
    from . import replay as replay
    from . import tools as tools
    from . import workers as workers
    from .agents.agent import Agent
    from .core.budget import Budget
    from .errors import HoldfastError, LeaseHeld
    from .session.session import Session
    from .store.store import Store, open_store
    from .tools.context import ToolContext
    from .tools.declaration import tool
    from .tools.outcome import Landed, NotDone, NotLanded, Unsure
    from .tools.registry import Registry
else:
    # Loaded when the first of them is asked for, so that `holdfast --help` does not wait for them.
    _MODULES = {
        "Agent": ".agents.agent",
        "Budget": ".core.budget",
        "HoldfastError": ".errors",
        "Landed": ".tools.outcome",
        "LeaseHeld": ".errors",
        "NotDone": ".tools.outcome",
        "NotLanded": ".tools.outcome",
        "Registry": ".tools.registry",
        "Session": ".session.session",
        "Store": ".store.store",
        "ToolContext": ".tools.context",
        "Unsure": ".tools.outcome",
        "open_store": ".store.store",
        "tool": ".tools.declaration",
    }
    _PUBLIC_MODULES = (
        *("adapters", "agents", "blobs", "blocking", "crash_test", "drivers", "errors"),
        *("http", "messages", "recipes", "records", "replay", "tools", "workers"),
    )

    def __getattr__(name):
        from importlib import import_module

        if name in _PUBLIC_MODULES:
            return import_module(f".{name}", __name__)
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(_MODULES[name], __name__), name)
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__, *_PUBLIC_MODULES})


__all__ = [
    "Agent",
    "Budget",
    "HoldfastError",
    "Landed",
    "LeaseHeld",
    "NotDone",
    "NotLanded",
    "Registry",
    "Session",
    "Store",
    "ToolContext",
    "Unsure",
    "__version__",
    "open_store",
    "tool",
]
