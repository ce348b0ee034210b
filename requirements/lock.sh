#!/usr/bin/env bash
# Regenerate core.lock and dev.lock from pyproject.toml; arguments go to uv, e.g. --upgrade-package rich.
#
# Universal: one file for every platform and every Python from 3.11 on, with the hashes of all wheels.
# The index is whatever uv is configured to use, and is not written down.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=${UV:-uv}
command -v "$uv" >/dev/null || { echo "make lock needs uv (pip install uv), or UV=/path/to/uv" >&2; exit 1; }

compile() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links pyproject.toml "$@"
}

compile --group build --output-file requirements/core.lock "$@"
# The dev lock lands in the same .venv, so whatever both name has the version of the core.
compile --group dev --constraints requirements/core.lock --output-file requirements/dev.lock "$@"
