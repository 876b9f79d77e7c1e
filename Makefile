# Every command of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MANIFEST ?= examples/hello.yaml
RIG := tests/rig
BUILT := $(or $(CARGO_TARGET_DIR),target)/debug
OPTIMISED := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Serve examples/hello.yaml (or MANIFEST=...) on http://127.0.0.1:8080
	@cargo build --locked -p holdfast-sidecar
	@exec $(BUILT)/holdfast-sidecar run $(MANIFEST)

.PHONY: chat
chat: ## Talk to what `make run` serves
	@cargo build -q --locked -p holdfast-sidecar
	@exec $(BUILT)/holdfast-sidecar chat

.PHONY: demo
demo: ## Conversations on a Redis and three replicas, each restarted in turn, one killed with -9; under a minute, no cluster
	@$(RIG)/tools redis-server > /dev/null
	@cargo build -q --locked -p holdfast-sidecar -p holdfast-tests --bins
	@HOLDFAST_SIDECAR=$(BUILT)/holdfast-sidecar $(BUILT)/demo

.PHONY: test
test: ## Everything that needs no pods: units, stores on a real Redis, the operator on a real kube-apiserver
	@$(RIG)/tests

.PHONY: e2e
e2e: cluster-up images ## The suites that need pods, on a kind cluster of three nodes
	@$(RIG)/suites

.PHONY: soak
soak: ## The long runs: a million simulated schedules, a thousand faults on real processes, an hour of work; writes docs/soak/
	@$(RIG)/soak

.PHONY: bench-operator
bench-operator: ## What an Agent costs the operator: 100, 1 000 and 10 000 against an API server without latency
	@cargo build --locked --release -p holdfast-operator -p holdfast-tests --bin holdfast-operator --bin bench-operator
	@$(OPTIMISED)/bench-operator --json $(OPTIMISED)/bench/operator.json $(BENCH_ARGS)

.PHONY: bench
bench: ## What a turn costs, beside the least it can cost (BENCH="--quick --only turns" for a first look)
	@$(RIG)/tools redis-server valgrind > /dev/null
	@cargo build --locked --release -p holdfast-sidecar -p holdfast-tests $(foreach bin,sidecar bench floor,--bin holdfast-$(bin))
	@$(OPTIMISED)/holdfast-bench $(or $(BENCH),--publish docs/performance.md)

.PHONY: lint
lint: ## Formatting, clippy, licences and duplicates, stale generated files, charts
	@cargo fmt --all --check
	@cargo clippy --locked --workspace --all-targets -- -D warnings
	@$(RIG)/deny
	@$(RIG)/generated check
	@$(RIG)/charts

.PHONY: generate
generate: ## Write what is made from the code: the CRD, its chart, the OpenAPI document
	@$(RIG)/generated write

.PHONY: images
images: ## Build the container images and load them into the cluster
	@$(RIG)/images
	@$(RIG)/cluster load holdfast-{sidecar,operator,tools}:dev holdfast-redis:7 holdfast-sidecar:earlier

.PHONY: cluster-up
cluster-up: ## A kind cluster of three nodes, kept until `make cluster-down`
	@$(RIG)/cluster up

.PHONY: cluster-down
cluster-down: ## End what `make cluster-up` started
	@$(RIG)/cluster down

.PHONY: clean
clean: ## Remove build output; the cache outside the clone stays
	@cargo clean
