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
LLM := .cache/llm
RUN_BENCH = $(DEV)/bin/python bench/runner.py --llm $(LLM)/bin/llm --peers $(PEERS)/bin --portkey $(PORTKEY)
TEST_ARGS ?=
OLD ?= HEAD
# Tests of a server mostly wait, so there are more workers than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)) * 3 // 2 + 1)')
# Without bytecode files every worker and every command of the tests would compile all modules.
unexport PYTHONDONTWRITEBYTECODE
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate --python-version 3.11

.PHONY: demo test tests coverage surface screenshots docs docs-links docs-run check format lint types contracts torture clients differential bench bench-quick bench-quick-update bench-report bench-startup bench-cli bench-growth bench-store bench-wire bench-window bench-server bench-streams bench-page bench-local bench-window-local bench-path bench-programs package sbom live lock clean

demo: $(DEMO)/ready
	@PATH="$(CURDIR)/$(DEMO)/bin:$$PATH" sh examples/demo.sh

$(DEMO)/ready: pyproject.toml requirements/local.txt $(shell find src -name '*.py')
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/local.txt
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
	$(DEV)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	$(DEV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Writes everything that a user can notice to tests/surface; a test fails if it differs.
surface: $(DEV)/ready
	$(DEV)/bin/python -m tests.surface_generator
	@git --no-pager diff --stat -- tests/surface

# Writes the pictures of the documentation (docs/images) with `cllm demo`, Chromium and the local model.
screenshots: $(DEV)/ready
	$(DEV)/bin/python -m tests.terminal_picture
	$(DEV)/bin/python -m tests.screenshots

# Builds the documentation site in .cache/site; a warning is an error. `make docs-links` also
# requests every link to another site.
docs: $(DEV)/ready
	$(DEV)/bin/sphinx-build --fail-on-warning --keep-going -q -b html docs .cache/site
	@echo "The site is .cache/site/index.html."

docs-links: $(DEV)/ready
	$(DEV)/bin/sphinx-build --fail-on-warning --keep-going -q -b linkcheck docs .cache/site-links

# Runs every block of the README and the tutorial in an empty environment, as `make test` does too.
docs-run: $(DEV)/ready
	$(DEV)/bin/python -m tests.document_blocks README.md docs/tutorial.md

check: format lint types contracts coverage

# Compares an older version (OLD: a commit, wheel or folder) with the working tree.
differential: $(DEV)/ready
	$(DEV)/bin/python -m tests.differential --old "$(OLD)" $(if $(ONLY),--only "$(ONLY)") $(if $(CASES),--cases $(CASES)) $(DIFFERENTIAL_ARGS)

format: $(DEV)/ready
	$(DEV)/bin/ruff format --check src tests bench docs hatch_build.py

lint: $(DEV)/ready
	$(DEV)/bin/ruff check src tests bench docs hatch_build.py

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
	$(CLIENTS)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/clients.txt
	@touch $@

$(SDKS)/ready: requirements/sdks.txt
	$(PYTHON) -m venv $(SDKS)
	$(SDKS)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/sdks.txt
	@touch $@

# Measures everything in up to 40 minutes: results in bench/results, report in docs/benchmarks.md.
bench: bench-programs $(DEV)/ready $(PEERS)/ready $(LLM)/ready $(PORTKEY)
	$(RUN_BENCH)

# Compares ratios with bench/results/quick.json in about one minute, without network and other tools.
bench-quick: $(DEV)/ready
	$(DEV)/bin/python bench/quick.py

bench-quick-update: $(DEV)/ready
	$(DEV)/bin/python bench/quick.py --update

# Writes docs/benchmarks.md and its pictures again from bench/results.
bench-report: $(DEV)/ready $(PEERS)/ready
	$(DEV)/bin/python bench/report.py
	$(PEERS)/bin/python bench/plots.py

bench-startup: $(DEV)/ready $(LLM)/ready
	$(RUN_BENCH) startup

bench-cli: $(DEV)/ready
	$(RUN_BENCH) cli

bench-growth: $(DEV)/ready $(PEERS)/ready $(LLM)/ready
	$(RUN_BENCH) history_growth conversation_growth

bench-store: $(DEV)/ready
	$(RUN_BENCH) store_sqlite store_postgres store_json branches

bench-wire: $(DEV)/ready
	$(RUN_BENCH) wire

bench-window: $(DEV)/ready $(PEERS)/ready
	$(RUN_BENCH) window

bench-server: $(DEV)/ready $(PEERS)/ready $(PORTKEY)
	$(RUN_BENCH) server recording

bench-streams: $(DEV)/ready $(PEERS)/ready
	$(RUN_BENCH) streams

bench-page: $(DEV)/ready
	$(RUN_BENCH) page

bench-local: $(DEV)/ready
	$(RUN_BENCH) local

bench-window-local: $(DEV)/ready
	$(RUN_BENCH) window_local

bench-path: $(DEV)/ready
	$(RUN_BENCH) path

# Fails before anything is installed if a system program is missing.
bench-programs:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; for program in chromium nginx node npm; do \
		command -v $$program >/dev/null || { echo "Install $$program: make bench compares with it or measures in it."; exit 1; }; \
	done

# Installs the tools that the benchmarks compare with.
$(PORTKEY):
	npm install --silent --no-audit --no-fund --prefix .cache/portkey @portkey-ai/gateway@1.15.2

$(PEERS)/ready: requirements/bench.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/bench.txt
	@touch $@

$(LLM)/ready: requirements/bench-llm.txt
	$(PYTHON) -m venv $(LLM)
	$(LLM)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/bench-llm.txt
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
	$(COMPILE) requirements/bench-llm.in --output-file requirements/bench-llm.txt
	$(COMPILE) requirements/clients.in --output-file requirements/clients.txt
	$(COMPILE) requirements/sdks.in --output-file requirements/sdks.txt

clean:
	rm -rf $(DEMO) $(DEV) $(PEERS) $(CLIENTS) $(SDKS) .cache .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
