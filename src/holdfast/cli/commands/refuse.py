"""`holdfast refuse`."""

from __future__ import annotations

from ..options import DEFAULTS, By, CallArg, Common, SessionArg, user_name


def refuse(
    session: SessionArg,
    call: CallArg,
    /,
    *,
    reason: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Refuse a call that waits for approval; the model is told the reason.

    Works whether or not a process holds the session.

    Parameters
    ----------
    reason
        What the model is told.
    """
    from ..answers import answer_call

    answer_call(
        common,
        session,
        call,
        "refused",
        lambda store, named: store.refuse(session, named, by=user_name(by), reason=reason),
    )
