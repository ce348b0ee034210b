"""`holdfast resolve-operation`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ..options import DEFAULTS, By, Common, user_name

if TYPE_CHECKING:
    from ...store.store import Store


def resolve_operation(
    operation: Annotated[str, Parameter(help="The operation, as the error or `holdfast pending` names it.")],
    verdict: Literal["landed", "not-landed"],
    /,
    *,
    result: str | None = None,
    note: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Say whether a global operation happened whose session was deleted during it.

    No session is left that could verify it, so it is blocked for all sessions until a person answers. A call
    that asks for it gets an error with its name and key. While the session still exists, use `resolve`.

    Parameters
    ----------
    verdict
        landed: it happened, and --result is what it gave. not-landed: it did not happen, and may be run.
    result
        The result of an operation that landed: JSON, or else plain text.
    note
        How you know.
    """
    from ..answers import parse_result
    from ..store_access import with_store

    found = parse_result(result)
    recorded: Literal["landed", "not_landed"] = "landed" if verdict == "landed" else "not_landed"

    async def settle(store: Store) -> None:
        from ..console import print_json, say
        from ..exit_codes import Exit, Stop

        answered = await store.resolve_operation(
            operation, recorded, by=user_name(by), note=note, result=found
        )
        if common.json:
            print_json({"operation": operation, "answer": verdict, "outcome": answered})
        if answered == "late":
            raise Stop(Exit.ERROR, f"too late: operation {operation} is not in doubt")
        if not common.json:
            say(f"{verdict}: recorded for operation {operation}")

    with_store(common, settle)
