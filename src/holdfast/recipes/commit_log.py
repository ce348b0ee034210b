"""Look for a commit in a git repository."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from ..limits import RECIPE_ANSWER_S, SETTLED_AFTER_S
from ..redact import scrub
from ..reprs import describe_error
from ..system import files, processes
from ..tools.context import AnyContext
from .templates import CallNames, CannotTell, Template
from .verify_hook import ResultOf, Trace, VerifyHook, in_thread, make_hook

_TRAILER: Final = "Holdfast-Key"
_LOCKS: Final = ("index.lock", "HEAD.lock", "packed-refs.lock")


def trailer(ctx: AnyContext) -> str:
    """The line by which `commit` finds a commit: `git commit -m … --trailer <this>`."""
    return f"{_TRAILER}: {ctx.key}"


def commit(
    repository: str | Callable[..., str | Path],
    *,
    result: ResultOf = None,
    settled_after_s: float = SETTLED_AFTER_S,
) -> VerifyHook:
    """Find the commit that carries the key of the call, on any branch of a git repository.

        verify=recipes.commit("work/site", result="committed {found[commit]}")

    The tool adds `recipes.trailer(ctx)` to the message. A commit that was amended, rebased or dropped since
    is found as well, where the repository keeps reflogs. `Unsure` while one of git's lock files is there: git
    outlives a tool that started it, or was killed itself. `found` has `commit`, its hash.
    """
    place = Template(repository, "repository")

    async def question(names: CallNames) -> Trace | None:
        where = str(place.fill(names))
        found = await in_thread(partial(_find_commit, where, trailer(names.ctx)))
        return None if found is None else Trace({"commit": found})

    return make_hook("commit", question, [place], result=result, settled_after_s=settled_after_s)


def _find_commit(where: str, line: str) -> str | None:
    named = [word for name in _LOCKS for word in ("--git-path", name)]
    locks = _git(where, "rev-parse", "--path-format=absolute", *named).splitlines()
    search = ["--all", "--reflog", "--fixed-strings", f"--grep={line}", "--max-count=1"]
    found = _git(where, "rev-list", *search).split()
    if found:
        return found[0]
    for path in locks:
        if files.lexists(path):
            raise CannotTell(f"git is at work in {where}, or was killed there: {path} exists")
    return None


def _git(where: str, *arguments: str) -> str:
    try:
        ended = processes.run(["git", "-C", where, *arguments], timeout_s=RECIPE_ANSWER_S)
    except (OSError, TimeoutError) as error:
        raise CannotTell(f"git cannot be asked: {describe_error(error)}") from error
    if ended.status:
        raise CannotTell(f"git {arguments[0]} in {where} failed: {scrub(ended.errors.strip())}")
    return ended.output
