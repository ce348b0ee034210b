"""What `import holdfast` costs those who need none of the extras."""

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"

HEAVY = {
    "anthropic", "genai_prices", "google", "httpx", "httpx2", "obstore", "openai", "opentelemetry", "psycopg",
    "pydantic", "pydantic_ai", "starlette", "uvicorn",
}  # fmt: skip
"""Libraries of models and prices, web frameworks, drivers of servers, and what takes as long to import."""


def test_importing_the_package_imports_no_heavy_library() -> None:
    """They are imported by whoever uses them, when it is used."""
    code = "import json, sys, holdfast; print(json.dumps(sorted(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        check=True,
        text=True,
    )
    loaded = {name.partition(".")[0] for name in json.loads(found.stdout)}
    assert loaded & HEAVY == set()
