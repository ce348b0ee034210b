"""`holdfast approve`."""

from __future__ import annotations

from ..options import DEFAULTS, By, CallArg, Common, SessionArg, user_name


def approve(
    session: SessionArg,
    call: CallArg,
    /,
    *,
    args: str | None = None,
    note: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Approve a call that waits for approval, optionally with other arguments.

    If a process holds the session, it takes the answer in and goes on; otherwise the answer is recorded at
    once, and a worker or `holdfast resume` continues the session.

    Parameters
    ----------
    args
        Arguments to use instead, as a JSON object. Both versions are recorded.
    note
        Why.
    """
    from ..answers import answer_call, parse_json

    parsed = None if args is None else parse_json(args, "--args")
    answer_call(
        common,
        session,
        call,
        "approved",
        lambda store, named: store.approve(session, named, by=user_name(by), args=parsed, note=note),
    )
