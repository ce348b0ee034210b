"""A server behind the proxy conforms exactly as far as it does without."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from .http_front import behind_address
from .scripts import CONFORMING
from .servers import behind_proxy, behind_proxy_at, conformance

SUITES = {"2025": ("--suite", "active"), "2026": ("--requirements", "2026-07-28")}

TIMED = {
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-honors-notification-filter",
    "sep-2575-server-no-log-without-loglevel",
    "sep-2575-server-sends-prompts-list-changed-on-subscription",
    "sep-2575-server-sends-subscription-ack",
    "sep-2575-server-sends-tools-list-changed-on-subscription",
    "sep-2575-server-tags-subscription-id",
}
"""Checks that wait less than two seconds for what a server says: a busy machine fails them, proxy or not. If
one has failed, its scenario is repeated alone."""
TIMED_SCENARIO = ("--scenario", "server-stateless", "--spec-version", "2026-07-28")
"""The scenario that has them."""
_TIMES = 10

Checks: TypeAlias = Counter[tuple[str, str, str]]
"""How often there is a check of a scenario, with its status."""


def judge(era: str, command: Sequence[str], folder: Path) -> Checks:
    """What the suite says of each check of each scenario."""
    found = _run(era, command, folder, *SUITES[era])
    timed = _pick_timed(found)
    for number in range(_TIMES):
        if all(status == "SUCCESS" for *_, status in timed):
            break
        timed = _pick_timed(_run(era, command, folder / f"again {number}", *TIMED_SCENARIO))
    return found - _pick_timed(found) + timed


def _pick_timed(found: Checks) -> Checks:
    return Counter({known: count for known, count in found.items() if known[1] in TIMED})


def _run(era: str, command: Sequence[str], folder: Path, *options: str) -> Checks:
    folder.mkdir()
    with behind_address(command) as url:
        done = subprocess.run(
            conformance(era, "server", "--url", url, *options, "--output-dir", str(folder / "checks")),
            capture_output=True,
            text=True,
            timeout=900,
        )
    found: Checks = Counter()
    for checks in (folder / "checks").rglob("checks.json"):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", checks.parent.name)
        for check in json.loads(checks.read_text()):
            found[scenario, check["id"], check["status"]] += 1
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("era", "floor"), [("2025", 40), ("2026", 130)])
def test_the_score_is_the_same(
    era: str, floor: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check by check, and printed."""
    direct = judge(era, CONFORMING, tmp_path / "direct")
    proxied = judge(era, behind_proxy("conforming", CONFORMING, tmp_path / "ledger.db"), tmp_path / "proxied")
    with behind_address(CONFORMING) as url:
        command = behind_proxy_at("conforming", url, tmp_path / "ledger at.db")
        at_address = judge(era, command, tmp_path / "address")
    scores = [Counter[str]() for _ in range(3)]
    for score, found in zip(scores, (direct, proxied, at_address), strict=True):
        for (_, _, status), count in found.items():
            score[status] += count
    with capsys.disabled():
        print(
            f"\nconformance {era}: direct {dict(scores[0])}, behind the proxy {dict(scores[1])}, "
            f"at an address {dict(scores[2])}"
        )
    assert proxied == direct
    assert at_address == direct
    assert sum(count for (*_, status), count in direct.items() if status == "SUCCESS") >= floor
