# `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := bash
PYTHON ?= python3.11
RUN := .venv/bin/
READY := .venv/.ready
TESTABLE := .peers/.ready
# Containers often forbid bytecode; without it each of the many processes of a run compiles all it loads.
export PYTHONDONTWRITEBYTECODE :=
# A whole run: progress without a terminal, and a list of failures at the end.
PYTEST := $(RUN)python -m pytest -p tests.kit.summary
# Four for each of two cores: tests with servers wait about half of their time.
PROCESSES ?= 8

.PHONY: help up example test durations test-fast sim soak hostile-shell check fix dist docs docs-serve pictures bench pins clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(READY) ## start a sample cluster with the dashboard; Ctrl-C stops it
	@$(RUN)celeriac up

example: $(READY) ## read a captured event file and print its tasks
	@$(RUN)python examples/first_tasks.py

test: $(TESTABLE) ## run every test
	$(PYTEST) -n $(PROCESSES) $(TESTS)

durations: $(TESTABLE) ## run every test and record durations per file, which balances the processes
	$(PYTEST) -n $(PROCESSES) --write-durations

test-fast: $(READY) ## run unit and property tests, which need no server (1 minute)
	$(PYTEST) -n 2 tests/unit tests/property

sim: $(READY) ## simulate 20,000 elections of each mode: make sim ELECTIONS=1000000, make sim SEED=… MODE=… PROFILE=…
	@$(RUN)python -m tests.simulation $(if $(ELECTIONS),--elections $(ELECTIONS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(MODE),--mode $(MODE)) $(if $(PROFILE),--profile $(PROFILE))

soak: $(TESTABLE) hostile-shell dist ## run the long tests for hours: properties, broker restarts, Spark clusters, version pairs, extras, other shells
	HYPOTHESIS_PROFILE=long $(PYTEST) -o faulthandler_timeout=0 tests/property tests/fuzz tests/attack tests/chaos tests/interop tests/spark tests/browser

hostile-shell: ## run the tests in a clean clone in other environments: make hostile-shell ENV="sigint home"
	scripts/hostile-shell $(ENV)

check: $(READY) ## check formatting, lint, types and import contracts
	$(RUN)ruff format --check .
	$(RUN)ruff check .
	$(RUN)mypy
	$(RUN)lint-imports

fix: $(READY) ## format, and apply the fixes of the linter
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

dist: $(READY) ## build wheel and sdist into build/dist, and test each extra in a fresh environment: make dist EXTRAS="web tui"
	@$(RUN)python -m scripts.dist $(EXTRAS)

docs: $(READY) ## build the docs site, with references generated from the code, into build/site
	NO_MKDOCS_2_WARNING=1 $(RUN)python -m mkdocs build
	@echo "open build/site/index.html; the search works with make docs-serve"

docs-serve: $(READY) ## serve the docs on http://127.0.0.1:8000, and rebuild on changes
	NO_MKDOCS_2_WARNING=1 $(RUN)python -m mkdocs serve

pictures: $(TESTABLE) ## update the screenshots of the docs
	rm -rf build/pictures
	PICTURE_POINTS=8 $(RUN)pytest -q tests/browser/test_tour.py tests/browser/test_history.py tests/tui/test_picture.py
	cp build/pictures/* docs/screenshots/

bench: $(TESTABLE) ## run a benchmark: make bench NAME=fold
	@$(RUN)python -m benchmarks $(NAME)

pins: $(READY) ## update the pinned dependencies, with hashes
	scripts/pin

clean: ## remove everything that make built
	rm -rf .venv .peers .tools build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml requirements/dev.txt requirements/uv.txt scripts/setup scripts/setup-steps
	@PYTHON=$(PYTHON) scripts/setup
	@touch $@

$(TESTABLE): requirements/celery56.txt requirements/celery57.txt scripts/setup-tests scripts/setup-steps | $(READY)
	@PYTHON=$(PYTHON) scripts/setup-tests
	@touch $@
