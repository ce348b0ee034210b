#!/usr/bin/env bash
# Regenerate core.lock, dev.lock, peers.lock, mcp-servers.lock and sdk-sessions.lock from pyproject.toml; arguments
# go to uv, e.g. --upgrade-package rich. And the frameworks in their lowest and newest supported version, under which the tests of
# their adapters run as well.
#
# Universal: one file for every platform and every Python from 3.11 on, with the hashes of all wheels.
# The index is whatever uv is configured to use, and is not written down.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=${UV:-uv}
command -v "$uv" >/dev/null || { echo "make lock needs uv (pip install uv), or UV=/path/to/uv" >&2; exit 1; }

compile() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links "$@"
}

compile pyproject.toml --group build --output-file requirements/core.lock "$@"
# The dev lock lands in the same .venv, so whatever both name has the version of the core.
compile pyproject.toml --group dev --constraints requirements/core.lock --output-file requirements/dev.lock "$@"

# The peers that the benchmarks measure, in an environment of their own, around the same core.
compile pyproject.toml --group peers --constraints requirements/core.lock --output-file requirements/peers.lock "$@"

# Servers that are other programs' processes: nothing of holdfast is installed beside them.
compile --group mcp-servers --output-file requirements/mcp-servers.lock "$@"

# The SDK of the dev lock, and what its own tests need.
compile pyproject.toml --group sdk-sessions --constraints requirements/dev.lock \
    --output-file requirements/sdk-sessions.lock "$@"

# Without what they need: these are put before the packages of the dev lock.
overlay() {
    printf '%s\n' "pydantic-ai-slim$2" "pydantic-graph$2" | "$uv" pip compile --quiet --universal --no-deps \
        --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
        --upgrade --output-file "requirements/pydantic-ai-$1.lock" -
}

overlay lowest "==2.62.0"
overlay newest ">=2.62,<3"
