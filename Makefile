# Every command of the project by its name. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_SECONDS ?=
DEMO_FOLDER ?= .wal2lake/demo
SOAK_SECONDS ?= 600
TEST_WORKERS ?= 2
BENCH ?=
BENCH_JSON ?= .wal2lake/freshness.json

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv and install everything the commands need

$(STAMP): pyproject.toml tools/setup.sh
	@bash tools/setup.sh $(VENV)
	@touch $@

servers: $(STAMP) ## Install the tests' PostgreSQL 15 and browser, where the system lets us
	@bash tools/install_servers.sh

demo: $(STAMP) ## Run the whole product on an embedded PostgreSQL (DEMO_SECONDS=90 for an unattended run)
	@$(BIN)/wal2lake demo --folder $(DEMO_FOLDER) $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS))

test: servers ## Set up and pass every test (but the browser's: make test-ui)
	@$(BIN)/python -m pytest -q -m "not ui" --durations=15 -n $(TEST_WORKERS) --dist worksteal tests

test-quick: $(STAMP) ## Only the tests without server or Spark
	@$(BIN)/python -m pytest -q tests/unit tests/house

test-ui: servers ## Drive Dagster's UI with a real browser and take the screenshots in docs/
	@$(BIN)/python -m pytest -q -m ui tests/ui

lint: $(STAMP) ## ruff, mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(STAMP) ## Write the generated pages of docs/
	@$(BIN)/python -m tools.gen_configuration_doc
	@$(BIN)/python -m tools.gen_types_doc

bench: $(STAMP) ## Slot to lake beside pg_recvlogical; freshness, cost of rounds, start (two hours; BENCH=F1,F6 for some)
	@$(BIN)/python -m benchmarks.macro.stream
	@$(BIN)/python -m benchmarks.macro.freshness $(if $(BENCH),--only $(BENCH)) --json $(BENCH_JSON)

bench-quick: $(STAMP) ## The same, small and short: proves that it runs
	@$(BIN)/python -m benchmarks.macro.stream --rows 100000 --runs 2
	@$(BIN)/python -m benchmarks.macro.freshness --quick $(if $(BENCH),--only $(BENCH)) --json $(BENCH_JSON)

clean: ## Remove what the commands made (not .venv)
	@rm -rf .wal2lake spark-warehouse metastore_db derby.log build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup servers demo test test-quick test-ui lint docs bench bench-quick clean
