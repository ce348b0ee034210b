"""The plugin, as pytest loads it: options, marks, reports, workers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from ..docs.blocks import find_blocks

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="forks warm processes: Linux")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "crash-tests.md"
TESTS = """
import pytest
from holdfast.crash_test import DirectoryWorld

def careless(world):
    with open(world.path / "log.txt", "a") as log:
        log.write("one\\n")

def careful(world):
    (world.path / "log.txt").write_text("one")

def test_careless(holdfast_crash):
    holdfast_crash(careless)

@pytest.mark.holdfast_crash(world=DirectoryWorld({"other.txt": "x"}), twice=False)
def test_careful(holdfast_crash):
    report = holdfast_crash(careful)
    assert all(len(run.kills) == 1 for run in report.runs)

@pytest.mark.holdfast_crash(allow=["done twice"])
def test_allowed(holdfast_crash):
    assert holdfast_crash(careless, sample=1).counts["done twice"] == 1

def test_plain():
    pass
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, as users start it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def test_the_plugin_imports_nothing_of_holdfast_until_it_is_used(tmp_path: Path) -> None:
    """pytest loads it at every start, also for projects that only have holdfast installed."""
    (tmp_path / "test_it.py").write_text(
        "import json, sys\n"
        "def test_it(request):\n"
        "    assert request.config.pluginmanager.hasplugin('holdfast')\n"
        "    print('loaded', json.dumps([one for one in sys.modules if 'holdfast' in one]))\n"
    )
    done = run_pytest(tmp_path, "-s", "-q")
    found = re.search(r"loaded (\[.*\])", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert json.loads(found[1]) == ["pytest_holdfast"]


def test_reports_reach_terminal_and_files_from_all_workers(tmp_path: Path) -> None:
    """Under xdist, with a test that fails and two that pass."""
    (tmp_path / "test_it.py").write_text(TESTS)
    files = ("--holdfast-html=page.html", "--holdfast-markdown=table.md", "--junitxml=junit.xml")
    done = run_pytest(tmp_path, "-n", "1", "-m", "holdfast_crash", *files)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "test_it.py::careful: killed at 4 boundaries: 4 same end" in done.stdout
    assert "1. done twice: test_it.py:6" in done.stdout
    again = 'pytest test_it.py::test_careless --holdfast-kill="after write world/log.txt#1"'
    assert f"again: {again}" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert page.count("<h2>") == 3
    assert "before write world/log.txt#1" in page
    assert "<script" not in page
    assert "http" not in page
    table = (tmp_path / "table.md").read_text()
    assert "| done twice | 3 |" in table
    properties = {
        (case.get("name"), one.get("name")): one.get("value")
        for case in ElementTree.parse(tmp_path / "junit.xml").iter("testcase")
        for one in case.iter("property")
    }
    assert properties["test_careful", "holdfast.boundaries"] == "4"
    assert properties["test_careful", "holdfast.same_end"] == "4"
    assert "done twice test_it.py:6" in str(properties["test_careless", "holdfast.finding.1"])


def test_one_boundary_is_made_again_by_its_name(tmp_path: Path) -> None:
    """Alone, and with the second kill."""
    (tmp_path / "test_it.py").write_text(TESTS)
    name = "before write world/log.txt#1 > before end"
    done = run_pytest(tmp_path, "-k", "careless", f"--holdfast-kill={name}")
    assert "killed at 1 of 3 boundaries: 1 done twice" in done.stdout, done.stdout + done.stderr
    assert f'again: pytest test_it.py::test_careless --holdfast-kill="{name}"' in done.stdout


def test_the_command_that_is_printed_makes_the_run_again(tmp_path: Path) -> None:
    """Also of a test with parameters, beside another one whose scenario has no such boundary."""
    (tmp_path / "test_it.py").write_text(
        TESTS
        + """
def other(world):
    (world.path / "other.txt").touch()

def test_other(holdfast_crash):
    holdfast_crash(other)

@pytest.mark.parametrize("word", ["a b"])
def test_named(holdfast_crash, word):
    holdfast_crash(careless, sample=1)
"""
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    folder = tmp_path / "below"
    folder.mkdir()
    done = run_pytest(folder, "../test_it.py", "-k", "test_named or test_other")
    found = re.search(r"again: pytest (.*)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    done = run_pytest(folder, *shlex.split(found[1]))
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "passed" not in done.stdout
    assert f"again: {found[0].removeprefix('again: ')}" in done.stdout


def test_reports_of_tests_that_are_expected_to_fail_are_printed_and_written(tmp_path: Path) -> None:
    """A known failure is what the report is for. A test that fails by itself has its report printed whole."""
    (tmp_path / "test_it.py").write_text(
        TESTS
        + """
@pytest.mark.xfail
def test_known(holdfast_crash):
    holdfast_crash(careless)

@pytest.mark.xfail(strict=False)
def test_unexpected(holdfast_crash):
    holdfast_crash(careful)

def test_own_assert(holdfast_crash):
    assert not holdfast_crash(careless, allow=["done twice"]).findings
"""
    )
    chosen = "test_known or test_unexpected or test_own_assert"
    done = run_pytest(tmp_path, "-k", chosen, "--holdfast-html=page.html", "--holdfast-markdown=table.md")
    assert "1 failed, 4 deselected, 1 xfailed, 1 xpassed" in done.stdout, done.stdout + done.stderr
    said = done.stdout.partition("what a crash would do")[2]
    assert said.count("1. done twice: test_it.py:6") == 2
    assert "again: pytest test_it.py::test_known" in said
    assert "again: pytest test_it.py::test_own_assert" in said
    assert "test_it.py::careful: killed at" in said
    assert (tmp_path / "page.html").read_text().count("<h2>") == 3
    assert (tmp_path / "table.md").read_text().count("###") == 3


@pytest.mark.long
def test_the_reports_on_the_page_are_those_of_its_tests(tmp_path: Path) -> None:
    """The page's code is a test file; what pytest prints is on the page."""
    code = "\n\n".join(block.source for block in find_blocks(PAGE, "python"))
    (tmp_path / "test_refunds.py").write_text(code)
    done = run_pytest(tmp_path, "-q")
    for block in find_blocks(PAGE, "text"):
        assert block.source in done.stdout, done.stdout + done.stderr


@pytest.mark.long
def test_options_choose_where_and_how_it_is_killed(tmp_path: Path) -> None:
    """A sample, another function for the resumption, a check that fails, and processes started afresh."""
    (tmp_path / "test_it.py").write_text(
        TESTS
        + """
def three(world):
    for name in "abc":
        (world.path / name).write_text(name)

def resume_three(world):
    (world.path / "resumed").write_text("yes")
    three(world)

def complain(world):
    assert not (world.path / "resumed").exists(), "it was resumed"

def test_three(holdfast_crash):
    holdfast_crash(three, resume=resume_three, twice=False, check=complain)
"""
    )
    options = ("-k", "test_three", "--holdfast-sample=2", "--holdfast-start=spawn")
    done = run_pytest(tmp_path, *options)
    assert "test_it.py::three: killed at 2 of 10 boundaries: 1 done twice, 1 diverged" in done.stdout, (
        done.stdout + done.stderr
    )
    assert "-> it was resumed; unexpected: resumed: yes" in done.stdout
    assert "killed before write world/a#1" in done.stdout
    done = run_pytest(tmp_path, "-k", "test_three", "--holdfast-kill=before no#1")
    assert "'before no#1' is no boundary of three" in done.stdout


def test_a_module_that_starts_threads_is_started_afresh_and_the_report_says_so(tmp_path: Path) -> None:
    """Forking a process with threads can deadlock."""
    threads = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
    (tmp_path / "test_it.py").write_text(threads + TESTS)
    done = run_pytest(tmp_path, "-k", "test_allowed")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "each process was started afresh: importing test_it starts 1 threads" in done.stdout


@pytest.mark.long
def test_two_workers_of_xdist_have_their_reports_on_one_page(tmp_path: Path) -> None:
    """Each test uses one processor then; the page is in the order of the scenarios."""
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run_pytest(tmp_path, "-n", "2", "-m", "holdfast_crash", "--holdfast-markdown=table.md")
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    names = re.findall(r"### (\S+):", (tmp_path / "table.md").read_text())
    assert names == ["test_it.py::careful", "test_it.py::careless", "test_it.py::careless"]


def test_the_workflow_on_the_page_is_yaml_that_runs_what_the_page_says() -> None:
    """A job with steps, of which the last comments the table that the one before it wrote."""
    (block,) = find_blocks(PAGE, "yaml")
    workflow = yaml.safe_load(block.source)
    assert workflow[True] == "pull_request"  # `on`, in YAML.
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    (job,) = workflow["jobs"].values()
    *_, test, comment = job["steps"]
    assert "--holdfast-markdown=crash.md" in shlex.split(test["run"])
    assert "--body-file crash.md" in comment["run"]
    assert "always()" in comment["if"]
    assert set(comment["env"]) == {"GH_TOKEN", "NUMBER"}


def test_the_workflow_on_the_page_uses_options_that_exist() -> None:
    """Each option that the page names is one of the plugin's."""
    plugin = Path(sys.modules["pytest_holdfast"].__file__ or "").read_text()
    named = set(re.findall(r"--holdfast-[a-z]+", PAGE.read_text()))
    assert named == set(re.findall(r'"(--holdfast-[a-z]+)"', plugin))


def test_options_that_make_no_sense_are_refused_before_anything_is_run(tmp_path: Path) -> None:
    """A misspelt verdict would allow nothing, and one text is one verdict."""
    (tmp_path / "test_it.py").write_text(
        "def scenario(world):\n"
        "    raise SystemExit('it was run')\n"
        "def test_verdict(holdfast_crash):\n"
        "    holdfast_crash(scenario, allow=['indoubt'])\n"
        "def test_time(holdfast_crash):\n"
        "    holdfast_crash(scenario, allow='in doubt', timeout_s=0)\n"
    )
    done = run_pytest(tmp_path, "-q")
    assert "allow='indoubt' is no verdict; there are 'same end', 'in doubt'" in done.stdout
    assert "timeout_s=0 must be more than 0" in done.stdout
    assert "it was run" not in done.stdout.replace("raise SystemExit('it was run')", "")
