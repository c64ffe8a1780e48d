# Every target does its own set-up: the first one makes .venv, later ones find it up to date.
# Several processes run the tests, a file each and those on Spark together: tests/support/schedule.py.
# PYTHON=/path/to/python picks the interpreter (3.11 or newer); PYTEST="-k name" narrows a test run.
# DEMO="--quick" is for the demo's options (DEMO=--help).  SEEDS=17 or SEEDS=1..1000 is for the simulation.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PARALLEL := -n auto --dist loadfile --durations=10 --durations-min=1
# Compiled modules are kept: else every worker rewrites all tests, and each of a thousand processes compiles its own.
unexport PYTHONDONTWRITEBYTECODE
PYTEST ?=
DEMO ?=
SEEDS ?= 1..100

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-fast test-spark sim fmt docs proto soak bench anchors compat-java compat-go java clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install everything into it

$(STAMP): pyproject.toml .ci/setup
	@.ci/setup $(VENV)

demo: $(STAMP) ## a shop's clicks and orders through both protocols and a pipeline on Spark, proved
	@$(BIN)/python -m demo $(DEMO)

check: $(STAMP) ## format, lint, types, and the rules the tree keeps (quick)
	$(BIN)/ruff format --check --quiet . || { echo "not formatted; run: make fmt" >&2; exit 1; }
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/tidy --ignore=tests/tidy/test_lint.py --ignore=tests/tidy/test_documents_run.py

test: $(STAMP) ## all tests, and with them all that check looks at
	$(BIN)/python -m pytest -q $(PARALLEL) $(PYTEST)

test-fast: $(STAMP) ## the tests without clients, processes and Java: less than two minutes
	$(BIN)/python -m pytest -q $(PARALLEL) -n logical --dist worksteal \
		tests/unit tests/model tests/wire tests/conform tests/tidy --ignore=tests/tidy/test_documents_run.py $(PYTEST)

test-spark: $(STAMP) ## the tests that start a JVM
	$(BIN)/python -m pytest -q $(PARALLEL) -n 2 -m jvm tests/spark tests/pipelines tests/demo $(PYTEST)

sim: $(STAMP) ## simulated clusters with faults, one for each of SEEDS=a..b
	PYTHONPATH=src:. PYTHONHASHSEED=0 $(BIN)/python -m tests.sim.run $(SEEDS) --jobs $$(nproc)

fmt: $(STAMP) ## format, and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## write the pages that are made from the code
	$(BIN)/python docs/configuration.py

proto: $(STAMP) ## compile the .proto files
	$(BIN)/python docs/protobuf.py

soak: $(STAMP) ## the tests again, the long variants
	ANABRANCH_SOAK=1 $(BIN)/python -m pytest -q --durations=20 --timeout=3600 $(PYTEST)
	ANABRANCH_SOAK=1 ANABRANCH_BROKER=double $(BIN)/python -m pytest -q --durations=20 --timeout=3600 tests/compat $(PYTEST)

bench: $(STAMP) ## measure this tree alone, a few minutes (see bench/README.md)
	$(BIN)/python bench/run.py

anchors: $(STAMP) java ## measure side by side with Apache Kafka, about an hour (needs Java, Maven)
	$(BIN)/python bench/anchors/run.py

compat-java: $(STAMP) java ## Kafka's own tools and Streams, Spark's Kafka connector, Pulsar's Java clients, on our brokers, 40 minutes (needs Java, Maven)
	$(BIN)/python bench/anchors/dump_log_segments.py
	$(BIN)/python bench/anchors/java_tools.py
	$(BIN)/python bench/anchors/java_cluster.py
	$(BIN)/python bench/anchors/java_groups.py
	$(BIN)/python bench/anchors/java_share_groups.py
	$(BIN)/python bench/anchors/java_transactions.py
	$(BIN)/python bench/anchors/java_verifiable.py
	$(BIN)/python bench/anchors/java_verifiable.py --brokers 3
	$(BIN)/python bench/anchors/java_share_consumers.py
	$(BIN)/python bench/anchors/word_count.py
	$(BIN)/python bench/anchors/word_count.py --brokers 3
	$(BIN)/python bench/anchors/spark_connector.py
	$(BIN)/python bench/anchors/differential.py
	$(BIN)/python bench/anchors/cluster_differential.py
	$(BIN)/python bench/anchors/pulsar_flows.py java
	$(BIN)/python bench/anchors/pulsar_flows.py java --transactions
	$(BIN)/python bench/anchors/pulsar_flows.py java --compaction

compat-go: $(STAMP) java ## Kafka's and Pulsar's Go clients, on our brokers and on Apache Pulsar (needs Go, Java, Maven)
	$(BIN)/python bench/anchors/kafka_go.py
	$(BIN)/python bench/anchors/pulsar_flows.py go
	$(BIN)/python bench/anchors/pulsar_flows.py go --transactions

java:
	@command -v java >/dev/null || { echo "this needs Java 17 or newer; there is no 'java' on the PATH" >&2; exit 1; }
	@command -v mvn >/dev/null || { echo "this fetches Apache Kafka by Maven; there is no 'mvn' on the PATH" >&2; exit 1; }

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench demo -name __pycache__ -type d -prune -exec rm -rf {} +
