# `make demo` and `make test` work on a new machine. Each creates its own virtual environment and
# installs nothing elsewhere. CONTRIBUTING.md lists all targets.

PYTHON ?= python3
DEMO := .venv-demo
DEV := .venv
PEERS := .venv-bench
CLIENTS := .venv-clients
SDKS := .venv-sdks
AGENTS := .cache/clients
PORTKEY := .cache/portkey/node_modules/@portkey-ai/gateway/build/start-server.js
TEST_ARGS ?=
OLD ?= HEAD
# Tests of a server mostly wait, so there are more workers than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)) * 3 // 2 + 1)')
# Without bytecode files every worker and every command of the tests would compile all modules.
unexport PYTHONDONTWRITEBYTECODE
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate --python-version 3.11

.PHONY: demo test tests coverage surface screenshots check format lint types contracts torture clients differential bench bench-startup bench-cli bench-store bench-local bench-wire bench-window bench-window-local bench-server bench-page package sbom live lock clean

demo: $(DEMO)/ready
	@PATH="$(CURDIR)/$(DEMO)/bin:$$PATH" sh examples/demo.sh

$(DEMO)/ready: pyproject.toml requirements/local.txt $(shell find src -name '*.py')
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/local.txt
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check '.[local]'
	@touch $@

test tests: $(DEV)/ready
	$(DEV)/bin/pytest --numprocesses $(WORKERS) --dist worksteal $(TEST_ARGS)

# Runs the same tests with coverage, which is slower. Fails if a package is below `fail_under` in
# pyproject.toml; `.venv/bin/coverage report` then lists the lines that did not run.
coverage: $(DEV)/ready
	$(DEV)/bin/coverage erase
	$(DEV)/bin/coverage run -m pytest --numprocesses $(WORKERS) --dist worksteal $(TEST_ARGS)
	$(DEV)/bin/coverage combine --quiet
	$(DEV)/bin/coverage json --quiet --fail-under=0 -o .cache/coverage.json
	$(DEV)/bin/python -m tests.package_coverage .cache/coverage.json

$(DEV)/ready: pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(DEV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Writes everything that a user can notice to tests/surface; a test fails if it differs.
surface: $(DEV)/ready
	$(DEV)/bin/python -m tests.surface_generator
	@git --no-pager diff --stat -- tests/surface

# Writes the pictures of the documentation (docs/images) with `cllm demo` and Chromium.
screenshots: $(DEV)/ready
	$(DEV)/bin/python -m tests.screenshots

check: format lint types contracts coverage

# Compares an older version (OLD: a commit, wheel or folder) with the working tree.
differential: $(DEV)/ready
	$(DEV)/bin/python -m tests.differential --old "$(OLD)" $(if $(ONLY),--only "$(ONLY)") $(if $(CASES),--cases $(CASES)) $(DIFFERENTIAL_ARGS)

format: $(DEV)/ready
	$(DEV)/bin/ruff format --check src tests bench

lint: $(DEV)/ready
	$(DEV)/bin/ruff check src tests bench

types: $(DEV)/ready
	$(DEV)/bin/mypy

contracts: $(DEV)/ready
	$(DEV)/bin/lint-imports

# Runs the stress, crash and Hypothesis tests with their full counts.
torture: $(DEV)/ready
	CLLM_TORTURE=1 $(DEV)/bin/pytest --timeout=3600 -m "torture or hypothesis"

# Runs Claude Code, Codex, opencode, aider and llm against a scripted provider, directly and through cllm;
# and the OpenAI Agents SDK, the Vercel AI SDK and pydantic-ai through cllm.
clients: $(DEV)/ready $(CLIENTS)/ready $(SDKS)/ready $(AGENTS)/ready
	$(DEV)/bin/pytest -m clients tests/clients $(TEST_ARGS)

# Calls OpenAI, Anthropic, Bedrock, Ollama and Gemini, with the keys in the environment. Costs some
# cents. CONTRIBUTING.md lists the variables.
live: $(DEV)/ready
	$(DEV)/bin/pytest -m live tests/live $(TEST_ARGS)

# Without a lock file: some registries do not have the packages of all platforms.
$(AGENTS)/ready: tests/clients/package.json
	mkdir -p $(AGENTS)
	cp tests/clients/package.json $(AGENTS)
	npm install --silent --no-audit --no-fund --no-package-lock --prefix $(AGENTS)
	@touch $@

$(CLIENTS)/ready: requirements/clients.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/clients.txt
	@touch $@

$(SDKS)/ready: requirements/sdks.txt
	$(PYTHON) -m venv $(SDKS)
	$(SDKS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/sdks.txt
	@touch $@

bench: bench-startup bench-cli bench-store bench-local bench-wire bench-window bench-window-local bench-server bench-page

bench-startup: $(DEV)/ready $(PEERS)/ready
	$(DEV)/bin/python bench/startup.py --llm $(CURDIR)/$(PEERS)/bin/llm

bench-cli: $(DEV)/ready
	$(DEV)/bin/python bench/cli.py

bench-store: $(DEV)/ready $(PEERS)/ready
	$(DEV)/bin/python bench/store_json.py
	$(DEV)/bin/python bench/store_sqlite.py --peers $(CURDIR)/$(PEERS)/bin/python
	$(DEV)/bin/python bench/store_postgres.py
	$(DEV)/bin/python bench/branches.py

bench-local: $(DEV)/ready
	$(DEV)/bin/python bench/local.py

bench-wire: $(DEV)/ready
	$(DEV)/bin/python bench/wire.py

bench-window: $(DEV)/ready $(PEERS)/ready
	$(DEV)/bin/python bench/window.py --peers $(CURDIR)/$(PEERS)/bin/python

bench-window-local: $(DEV)/ready
	$(DEV)/bin/python bench/window_local.py

bench-server: $(DEV)/ready $(PEERS)/ready $(PORTKEY)
	$(DEV)/bin/python bench/server.py --peers $(CURDIR)/$(PEERS)/bin --portkey $(CURDIR)/$(PORTKEY)

# Needs Chromium.
bench-page: $(DEV)/ready
	$(DEV)/bin/python bench/page.py

# Installs the tools that the benchmarks compare with.
$(PORTKEY):
	npm install --silent --no-audit --no-fund --prefix .cache/portkey @portkey-ai/gateway@1.15.2

$(PEERS)/ready: requirements/bench.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@

# Builds the wheel and the sdist in dist/ and tests the wheel in new environments.
package:
	PYTHON="$(PYTHON)" .ci/package

# Writes the software bill of materials: cllm[all] with its locked dependencies, as CycloneDX.
sbom:
	$(PYTHON) -m tests.sbom requirements/all.txt sbom/cllm.cdx.json

# Needs uv. The lock files contain versions and hashes, but no registry.
lock:
	$(COMPILE) --extra local pyproject.toml --output-file requirements/local.txt
	$(COMPILE) --extra all pyproject.toml --output-file requirements/all.txt
	$(COMPILE) --extra dev pyproject.toml --output-file requirements/dev.txt
	$(COMPILE) requirements/build.in --output-file requirements/build.txt
	$(COMPILE) requirements/bench.in --output-file requirements/bench.txt
	$(COMPILE) requirements/clients.in --output-file requirements/clients.txt
	$(COMPILE) requirements/sdks.in --output-file requirements/sdks.txt

clean:
	rm -rf $(DEMO) $(DEV) $(PEERS) $(CLIENTS) $(SDKS) .cache .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
