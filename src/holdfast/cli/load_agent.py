"""Load agents from a user's code: `module:attribute`, `file.py:attribute`, or a file with one agent.

Import this after everything that a command needs: a user's file may have the name of a module of holdfast.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ..agents.agent import Agent
from ..replay.drive import is_loop, is_replayable
from ..session.misuse import AsyncOnly
from ..suggestions import closest
from .exit_codes import Exit, Stop

AnyAgent: TypeAlias = Agent[Any, Any]
T = TypeVar("T")


def load_agents(target: str) -> dict[str, AnyAgent]:
    """Import a target; return its agents by the names of their attributes."""
    return _load(target, _OWN)


def load_replayable(target: str) -> dict[str, Any]:
    """The same for what a replay can drive: agents of frameworks, too, and functions that are loops."""
    return _load(target, _REPLAYABLE)


class _Wanted(NamedTuple):
    """What a target may name."""

    accepts: Callable[[object], bool]
    is_complete: Callable[[object], bool]
    """Whether something that can be called is what is wanted, and does not make it."""
    what: str


_OWN: Final = _Wanted(
    lambda one: isinstance(one, Agent), lambda one: isinstance(one, Agent), "holdfast.Agent"
)
_REPLAYABLE: Final = _Wanted(
    is_replayable,
    lambda one: is_replayable(one) or is_loop(one),
    "agent that can be replayed",
)


def _load(target: str, kind: _Wanted) -> dict[str, Any]:
    place, colon, attribute = target.rpartition(":")
    if not colon:
        place, attribute = target, ""
    module = _import(place)
    if attribute:
        return {attribute: _as_kind(_find(module, attribute, target), target, kind)}
    found = {
        name: value
        for name, value in vars(module).items()
        if kind.accepts(value) and not name.startswith("_")
    }
    if not found:
        raise Stop(
            Exit.NOT_FOUND,
            f"{target} has no {kind.what} at module level; name a function that returns one",
        )
    return found


def pick(agents: Mapping[str, T], target: str, name: str | None = None) -> T:
    """The only agent, or the only one with this name."""
    distinct = list({id(agent): agent for agent in agents.values()}.values())
    if len(distinct) > 1:
        named = [agent for agent in distinct if getattr(agent, "name", None) == name]
        if len(named) != 1:
            choices = ", ".join(f"{target}:{attribute}" for attribute in agents)
            raise Stop(Exit.USAGE, f"{target} has several agents; choose one: {choices}")
        return named[0]
    return distinct[0]


def find_import(target: str, name: str | None = None) -> tuple[str, str, Any]:
    """The module and the attribute by which other code imports the agent that a target names, and that."""
    agents = load_replayable(target)
    chosen = pick(agents, target, name)
    attribute = next(one for one, agent in agents.items() if agent is chosen)
    place = target.rpartition(":")[0] or target
    module = Path(place).stem if place.endswith(".py") or "/" in place else place
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise Stop(Exit.USAGE, f"{target} cannot be imported by a test: its names are no identifiers")
    return module, attribute, chosen


def load_value(target: str) -> object:
    """Load an attribute; a callable one is called."""
    place, colon, attribute = target.rpartition(":")
    if not colon:
        raise Stop(Exit.USAGE, f"{target!r} names no attribute; write module:attribute")
    value = _find(_import(place), attribute, target)
    return _reject_awaitable(value() if callable(value) else value, target)


def load_factory(target: str) -> Callable[..., Any]:
    """Load a callable attribute."""
    return load_function(target, "it must return the dependencies of each session")


def load_function(
    target: str, what: str = "it must be a function", *, folder: Path | None = None
) -> Callable[..., Any]:
    """Load a callable attribute; `what` is said of one that is not. `folder`: where modules and files are,
    if that is not the working directory."""
    place, colon, attribute = target.rpartition(":")
    if not colon:
        raise Stop(Exit.USAGE, f"{target!r} names no attribute; write module:attribute")
    value = _find(_import(place, folder), attribute, target)
    if not callable(value):
        raise Stop(Exit.USAGE, f"{target} is not callable; {what}")
    found: Callable[..., Any] = value
    return found


def _import(place: str, folder: Path | None = None) -> ModuleType:
    # The path of an installed script has its own directory; users expect the current one.
    here = Path.cwd() if folder is None else folder.absolute()
    if str(here) not in sys.path and (folder is not None or "" not in sys.path):
        sys.path.insert(0, str(here))
    try:
        if place.endswith(".py") or "/" in place:
            return _import_file(Path(place) if folder is None else here / place)
        return importlib.import_module(place)
    except ModuleNotFoundError as missing:
        if missing.name is not None and place.startswith(missing.name):
            raise Stop(
                Exit.NOT_FOUND, f"there is no module {place!r} here; a file ends with .py"
            ) from missing
        raise Stop(Exit.ERROR, f"{place} cannot be imported: {missing}") from missing
    except Stop:
        raise
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise Stop(Exit.ERROR, f"{place} cannot be imported: {error.msg} ({where})") from error
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        why = f"{type(error).__name__}: {error}"
        raise Stop(Exit.ERROR, f"{place} cannot be imported: {why} ({where})") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Stop(Exit.NOT_FOUND, f"there is no file {path}")
    name = path.stem if path.stem not in sys.modules else f"_{path.stem}_by_path"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # So that it can import its neighbours, and that pickle and type hints find its definitions.
    sys.path.insert(0, str(path.parent.absolute()))
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _find(module: ModuleType, attribute: str, target: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            meant = closest(part, [name for name in dir(value) if not name.startswith("_")])
            hint = f"; did you mean {meant}?" if meant else ""
            raise Stop(Exit.NOT_FOUND, f"{target}: there is no {part!r} in it{hint}")
        value = getattr(value, part)
    return value


def _as_kind(value: Any, target: str, kind: _Wanted) -> Any:
    if kind.is_complete(value):
        return value
    made = value() if callable(value) and not isinstance(value, type) else value
    _reject_awaitable(made, target)
    if not kind.accepts(made):
        article = "an" if kind.what[0] in "aeiou" else "a"
        raise Stop(Exit.USAGE, f"{target} is not {article} {kind.what}, and does not return one")
    return made


def _reject_awaitable(made: T, target: str) -> T:
    """Reject the result of an async function: nothing awaits it here."""
    if inspect.iscoroutine(made):
        made.close()
    if inspect.isawaitable(made) and not isinstance(made, AsyncOnly):
        raise Stop(Exit.USAGE, f"{target} is an async function; name its result, or a plain function")
    return made
