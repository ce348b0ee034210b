"""The Python in the README and in `docs/` does what the pages say, and has the types they show."""

import re
import textwrap
from pathlib import Path

import pytest
from mypy import api as mypy

from tests.agent.provider_server import serve
from tests.docs.blocks import PAGES, ROOT, find_blocks, run_page
from tests.docs.conftest import own_providers
from tests.stores import drop

# Of the library itself, its public names count here; what providers' packages say takes minutes to read.
_USERS_MYPY = """
[mypy]
mypy_path = {src}
follow_imports = silent
[mypy-pydantic_ai.*,genai_prices.*,langchain_core.*,langgraph.*,openai.*,anthropic.*]
follow_imports = skip
[mypy-page_pydantic-ai]
disallow_untyped_decorators = False
[mypy-page_langgraph]
disallow_subclassing_any = False
disallow_untyped_decorators = False
"""
_LANGUAGES = {"python", "sh", "sql", "json", "toml", "text", "yaml"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Who copies the blocks of a page one after another gets what the page promises. So does who runs them
    once more, in the same folder, with what the first time left there.

    Hosted models are spoken to over the wire, and answered on this machine.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")  # Its address is not on this machine.
    if page.stem == "postgres":
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("postgres"))
        drop(["agents"])
    with serve() as wire:
        for name, value in {**wire.environment, "LOCAL_MODELS": f"{wire.url}/v1"}.items():
            monkeypatch.setenv(name, value)
        for _ in range(2):
            with own_providers():
                run_page(page)
            monkeypatch.chdir(tmp_path)  # A page may have gone to a folder of its own.


_ACTS = re.compile(r"""side_effects=\{?"mutate"|mutate\(""")


def test_the_first_tool_of_a_page_that_acts_says_how_it_fails_without_a_doubt() -> None:
    """Whoever copies it has `NotDone` or `harmless=` in it: else every exception leaves a doubt. A tool of an
    MCP server has neither; that page says what the server does."""
    found: dict[str, bool] = {}
    for page in PAGES:
        for block in find_blocks(page, "python"):
            if _ACTS.search(block.source):
                text = "\n".join(page.read_text().splitlines()[: block.line + block.source.count("\n")])
                found[page.stem] = "NotDone" in text or "harmless=" in text
                break
    assert [name for name, says in found.items() if not says] == ["mcp"]
    assert len(found) > 10


def test_the_first_example_pays_once_however_often_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page says next to it."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run_page(ROOT / "README.md")
    printed = capsys.readouterr().out
    assert printed.count("the bank pays 500 cents") == 1
    assert printed.count("completed Order 42 is refunded.") == 2


@pytest.mark.timeout(1800)  # A type checker takes what it takes: a minute, or many beside others.
def test_the_python_of_all_pages_is_typed(tmp_path: Path) -> None:
    """A user's own type checker accepts what was copied from a page."""
    for page in PAGES:
        # In a function, because `await` has no place outside of one.
        blocks = "\n".join(block.source for block in find_blocks(page, "python"))
        future = "from __future__ import annotations\n\n"
        body = textwrap.indent(blocks.replace(future, ""), "    ")
        (tmp_path / f"page_{page.stem.lower()}.py").write_text(
            f"{future}async def page() -> None:\n    ...\n{body}"
        )
    config = tmp_path / "mypy.ini"
    config.write_text(_USERS_MYPY.format(src=ROOT / "src"))
    options = ["--strict", "--python-version", "3.11", "--config-file", str(config)]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    output, errors, status = mypy.run([*options, *cache, *map(str, sorted(tmp_path.glob("*.py")))])
    assert status == 0, output + errors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    """Python is run; what is for a shell or only to be read says so."""
    odd = [f"{page.name}:{block.line} {block.language!r}" for block in find_blocks(page)]
    assert [one for one in odd if one.split("'")[1] not in _LANGUAGES] == []
