"""From when on somebody is to drive a session: what the entries say about `Head.due`.

A session becomes due when a message comes through its inbox, when a person answers what it waits for, and
when a run of a named agent begins: if nobody ends it, somebody is to take it up. The end of a run leaves
nothing to do, unless it is to be tried again or a message came too late for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .entries import Entry, RunCancelled, RunCompleted, RunFailed, RunPaused, SessionPostponed

if TYPE_CHECKING:
    from .fold import Facts


def postpone(facts: Facts, entry: Entry, body: SessionPostponed) -> None:
    """Later, or not before there is something new."""
    facts.head.due, facts.head.postponed = body.until, body.until is not None
    facts.backed_off = facts.head.failures


def make_due(facts: Facts, entry: Entry) -> None:
    """There is something new to do."""
    head = facts.head
    head.due = entry.at if head.due is None else min(head.due, entry.at)
    head.postponed = False
    head.failures = facts.backed_off = 0


def go_on_later(
    facts: Facts, entry: Entry, body: RunCompleted | RunFailed | RunCancelled | RunPaused
) -> None:
    """What the end of a run leaves to do: to try again, or to answer a message that came too late for it."""
    head = facts.head
    head.due, head.postponed = None, False
    if isinstance(body, RunFailed):
        head.failures += 1
        if body.retry_at is not None:
            head.status, head.due, head.postponed = "active", body.retry_at, True
            facts.backed_off = head.failures
    else:
        head.failures = facts.backed_off = 0
    answered = facts.requested if isinstance(body, RunCompleted) else max(facts.requested, facts.begun)
    if facts.asked > answered and not isinstance(body, RunPaused):
        head.due, head.postponed = entry.at, False
