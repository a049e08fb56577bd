# `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := bash
PYTHON ?= python3.11
RUN := .venv/bin/
READY := .venv/.ready

.PHONY: help up example test test-fast sim soak check fix bench pins clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(READY) ## start a sample cluster and watch it; Ctrl-C ends it
	@$(RUN)celeriac up

example: $(READY) ## read a captured event file and print its tasks
	@$(RUN)python examples/first_tasks.py

test: $(READY) ## run every test
	$(RUN)pytest -n 2 --dist loadfile

test-fast: $(READY) ## run the unit tests alone, in seconds
	$(RUN)pytest tests/unit

sim: $(READY) ## simulate 20,000 elections of each mode: make sim ELECTIONS=1000000, make sim SEED=… MODE=… PROFILE=…
	@$(RUN)python -m tests.simulation $(if $(ELECTIONS),--elections $(ELECTIONS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(MODE),--mode $(MODE)) $(if $(PROFILE),--profile $(PROFILE))

soak: $(READY) ## try the laws, the gate, brokers' restarts, clusters of Spark and every pair of versions, for hours
	HYPOTHESIS_PROFILE=long $(RUN)pytest tests/property tests/fuzz tests/chaos tests/interop tests/spark

check: $(READY) ## formatting, lint, types and import contracts
	$(RUN)ruff format --check .
	$(RUN)ruff check .
	$(RUN)mypy
	$(RUN)lint-imports

fix: $(READY) ## format, and mend what the linter can mend
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

bench: $(READY) ## run one benchmark: make bench NAME=fold
	@$(RUN)python -m benchmarks $(NAME)

pins: $(READY) ## pin the dependencies anew, with hashes
	scripts/pin

clean: ## remove what make built
	rm -rf .venv .peers .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml requirements/dev.txt requirements/celery56.txt requirements/celery57.txt scripts/setup
	@PYTHON=$(PYTHON) scripts/setup
	@touch $@
