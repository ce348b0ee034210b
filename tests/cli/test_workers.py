"""`holdfast worker` and `holdfast workers`, as processes."""

import json
import signal
from pathlib import Path

from tests.cli.cli_processes import Terminal, call, end, start


def test_a_worker_takes_what_was_submitted_and_what_was_cut_off(shop: Path) -> None:
    """One line for whatever becomes of a session; a summary in the end."""
    done = call(shop, 'submit fresh "Refund order 42" --agent clerk --label tenant=acme --key k')
    assert done.code == 0
    assert "a worker that has clerk" in done.err
    assert call(shop, 'submit fresh "Refund order 42" --agent clerk --key k').code == 0
    done = call(shop, "worker clerk.py --until-idle")
    assert done.code == 0, done.err
    assert "fresh: completed" in done.out
    assert "torn: completed" in done.out
    assert "doubtful: waiting (in_doubt)" in done.out
    assert "works for clerk" in done.err
    assert "stopped; " in done.err
    assert "no session was due" in call(shop, "worker clerk.py --until-idle").err
    assert call(shop, "show fresh").out.count("Order 42 is refunded.") >= 1


def test_the_events_of_a_worker_are_lines_for_programs(shop: Path) -> None:
    """With the documented keys; labels restrict it."""
    call(shop, 'submit fresh "Refund order 42" --agent clerk --label tenant=zeta')
    done = call(shop, "worker clerk.py --until-idle --label tenant=zeta --json")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [(event["session"], event["kind"]) for event in events] == [
        ("fresh", "taken"),
        ("fresh", "completed"),
    ]
    keys = {"at", "kind", "session", "agent", "reason", "error", "retry_at", "took_s"}
    assert all(set(event) == keys for event in events)


def test_a_submission_without_an_agent_makes_no_session(shop: Path) -> None:
    """A typo is told."""
    done = call(shop, "submit kiled hello")
    assert done.code == 3
    assert "did you mean killed" in done.err


def test_sigterm_hands_over_and_the_next_worker_goes_on(shop: Path) -> None:
    """Exit code 0; no process holds the session, and it is due."""
    call(shop, 'submit slow "Wait for it" --agent clerk')
    process = start(shop, "worker", "clerk.py", "--drain", "0")
    try:
        assert process.stdout is not None
        while "slow: taken" not in process.stdout.readline():
            pass
        listed = call(shop, "workers --json").json["workers"]
        assert [(one["state"], one["agents"]) for one in listed] == [("working", ["clerk"])]
        assert "slow" in listed[0]["sessions"]
        assert "working" in call(shop, "workers").out
    finally:
        process.send_signal(signal.SIGTERM)
        done = end(process)
    assert done.code == 0, done.err
    assert "slow: handed over" in done.out
    (shop / "go").touch()
    done = call(shop, "worker clerk.py --until-idle")
    assert "slow: completed" in done.out, done.out + done.err
    assert "no workers" in call(shop, "workers").err


def test_on_a_terminal_there_is_a_table_of_what_is_under_way(shop: Path) -> None:
    """Ctrl-C stops it, in an orderly way."""
    call(shop, 'submit slow "Wait for it" --agent clerk')
    with Terminal(shop, ["worker", "clerk.py", "--drain", "0"]) as terminal:
        terminal.read_until("slow ")
        terminal.read_until("tokens")
        terminal.type("\x03")
        assert terminal.finish() == 0
        assert "handed over" in terminal.plain


def test_what_cannot_be_called_makes_no_dependencies(shop: Path) -> None:
    """Told before anything is taken."""
    done = call(shop, "worker clerk.py --deps clerk.py:SCRIPTS --until-idle")
    assert done.code == 2
    assert "is not callable" in done.err
