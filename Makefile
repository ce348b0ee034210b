# Two commands need nothing but Python 3.11 or newer, pip and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip -qq --disable-pip-version-check

# Tests wait for disks and for children half of the time: twice as many as there are processors.
WORKERS = $(shell $(VENV)/bin/python -c 'import os; print(os.cpu_count() * 2)')

# The locks name everything: pip has nothing to resolve, and a release of today breaks nothing.
# Stamps: what they depend on is older than they are, or is installed anew.
MADE := $(VENV)/.made
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
LOWEST := $(VENV)/lowest
DEEPAGENTS := $(VENV)/deepagents
PEERS := $(VENV)/peers
AZURITE := $(VENV)/azurite/.made
AXE := $(VENV)/axe/.made
MCP_SERVERS := $(VENV)/mcp-servers
SDK_SESSIONS := $(VENV)/sdk-sessions

.PHONY: help demo test test-long test-lowest test-deepagents test-busy check bench docs axe azurite mcp-servers sdk-sessions lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(CORE) ## an agent is killed right after it paid, and pays once; installs the core only
	@$(VENV)/bin/python -m holdfast.demo

test: $(DEV) ## every test but the full-size suites
	@$(VENV)/bin/pytest -m "not long" -n $(WORKERS) --dist worksteal

test-long: $(DEV) ## the full-size crash, chaos and power-cut suites
	@$(VENV)/bin/pytest -m long -n auto --dist worksteal

test-lowest: $(LOWEST)/.made ## the tests of adapters, under the lowest supported versions of their frameworks
	@PYTHONPATH=$(CURDIR)/$(LOWEST) $(VENV)/bin/pytest -m "not long" -n auto tests/langgraph

test-deepagents: $(DEEPAGENTS)/.made ## the tests of agents of deepagents, which is not among the development tools
	@PYTHONPATH=$(CURDIR)/$(DEEPAGENTS) $(VENV)/bin/pytest tests/langchain/test_deepagents.py

test-busy: $(DEV) ## what `make test` runs, three times, while all processors are loaded: no test may depend on that
	@$(VENV)/bin/python -m tests.busy

check: $(DEV) ## format, lint, types and tidiness
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/pytest tests/tidy -q
	@$(VENV)/bin/python tools/call_paths.py

bench: $(PEERS)/.made ## measure holdfast, its peers and the raw floor side by side: bench/results.md (QUICK=1: five minutes)
	@$(PEERS)/bin/python -m bench $(if $(QUICK),--quick)

docs: $(DEV) ## run the examples of the documentation
	@$(VENV)/bin/pytest tests/docs

axe: $(AXE) ## install the checks of accessibility for the viewer's pages (needs npm); without it, that test is skipped

azurite: $(AZURITE) ## install the server that az:// is tested against (needs npm); without it, those tests are skipped

mcp-servers: $(MCP_SERVERS)/.made ## install the MCP servers that the proxy is tested with (needs npm); without them, those tests are skipped

sdk-sessions: $(SDK_SESSIONS)/.made ## the session tests of the OpenAI Agents SDK, with sessions of holdfast
	@$(SDK_SESSIONS)/bin/python tools/sdk_session_tests.py $(SDK_SESSIONS)/source

lock: ## choose the versions in requirements/*.lock anew (needs uv)
	@requirements/lock.sh --upgrade

clean: ## remove .venv, caches and builds
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Some systems ship venv without the pip that goes into it; then the pip outside puts one there.
$(MADE):
	@for python in $(PYTHON) python3.13 python3.12 python3.11; do \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    $$python -m venv --clear $(VENV) >/dev/null 2>&1 \
	        || { $$python -m venv --clear --without-pip $(VENV) \
	            && $$python -m pip -qq --disable-pip-version-check --python $(VENV) install pip; } \
	        || exit 1; \
	    touch $@; exit 0; \
	done; \
	echo "holdfast needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2; \
	exit 1

$(CORE): requirements/core.lock pyproject.toml $(MADE)
	@echo "installing the core into $(VENV)"
	@$(PIP) install --no-deps --require-hashes -r requirements/core.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(AZURITE): requirements/azurite/package.json requirements/azurite/package-lock.json $(MADE)
	@echo "installing Azurite into $(VENV)"
	@mkdir -p $(@D)
	@cp requirements/azurite/package.json requirements/azurite/package-lock.json $(@D)
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

$(AXE): requirements/axe/package.json requirements/axe/package-lock.json $(MADE)
	@echo "installing axe into $(VENV)"
	@mkdir -p $(@D)
	@cp requirements/axe/package.json requirements/axe/package-lock.json $(@D)
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

# An interpreter of their own: servers that run beside holdfast, clients, and Node.js for those from npm.
$(MCP_SERVERS)/.made: requirements/mcp-servers.lock requirements/mcp-servers/package.json \
		requirements/mcp-servers/package-lock.json $(MADE)
	@echo "installing MCP servers into $(MCP_SERVERS)"
	@$(VENV)/bin/python -m venv --clear --without-pip $(MCP_SERVERS)
	@$(PIP) --python $(MCP_SERVERS) install --no-deps --require-hashes -r requirements/mcp-servers.lock
	@cp requirements/mcp-servers/package.json requirements/mcp-servers/package-lock.json $(MCP_SERVERS)
	@npm ci --prefix $(MCP_SERVERS) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

$(DEV): requirements/dev.lock $(CORE)
	@echo "installing the development tools into $(VENV)"
	@$(PIP) install --no-deps --require-hashes -r requirements/dev.lock
	@touch $@

# In front of what is installed: a framework's own packages, and nothing of what they need.
$(LOWEST)/.made: requirements/langgraph-lowest.lock $(DEV)
	@echo "installing the lowest versions of frameworks into $(LOWEST)"
	@rm -rf $(LOWEST)
	@$(PIP) install --no-deps --require-hashes --target $(LOWEST) -r requirements/langgraph-lowest.lock
	@touch $@

$(DEEPAGENTS)/.made: requirements/deepagents.lock $(DEV)
	@echo "installing deepagents into $(DEEPAGENTS)"
	@rm -rf $(DEEPAGENTS)
	@$(PIP) install --no-deps --require-hashes --target $(DEEPAGENTS) -r requirements/deepagents.lock
	@touch $@

# An interpreter of its own: what peers need never meets what holdfast needs, but here.
$(PEERS)/.made: requirements/peers.lock pyproject.toml $(MADE)
	@echo "installing the peers into $(PEERS)"
	@$(VENV)/bin/python -m venv --clear --without-pip $(PEERS)
	@$(PIP) --python $(PEERS) install --no-deps --require-hashes -r requirements/peers.lock
	@$(PIP) --python $(PEERS) install --no-deps --no-build-isolation -e .
	@touch $@

# Its tests are in its source distribution only, which is the version of the lock.
$(SDK_SESSIONS)/.made: requirements/sdk-sessions.lock pyproject.toml $(MADE)
	@echo "installing the OpenAI Agents SDK and what its tests need into $(SDK_SESSIONS)"
	@$(VENV)/bin/python -m venv --clear --without-pip $(SDK_SESSIONS)
	@$(PIP) --python $(SDK_SESSIONS) install --no-deps --require-hashes -r requirements/sdk-sessions.lock
	@$(PIP) --python $(SDK_SESSIONS) install --no-deps --no-build-isolation -e .
	@sed -n '/^openai-agents==/,/^    #/{/^    #/!p}' requirements/sdk-sessions.lock > $(SDK_SESSIONS)/source.txt
	@$(PIP) --python $(SDK_SESSIONS) download --no-deps --no-build-isolation --no-binary openai-agents \
	    --require-hashes -r $(SDK_SESSIONS)/source.txt -d $(SDK_SESSIONS)
	@mkdir -p $(SDK_SESSIONS)/source
	@tar -xzf $(SDK_SESSIONS)/openai_agents-*.tar.gz -C $(SDK_SESSIONS)/source --strip-components 1
	@touch $@
