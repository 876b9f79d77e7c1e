# Every command of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MANIFEST ?= examples/hello.yaml
RIG := tests/rig
BUILT := $(or $(CARGO_TARGET_DIR),target)/debug

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

.PHONY: test
test: ## Everything that needs no pods: units, stores on a real Redis, the operator on a real kube-apiserver
	@$(RIG)/tools redis-server etcd kube-apiserver kubectl > /dev/null
	@cargo test --locked --workspace

.PHONY: e2e
e2e: cluster-up images ## The suites that need pods, on a kind cluster of three nodes
	@$(RIG)/suites

.PHONY: soak
soak: ## The long runs: a million simulated schedules
	@cargo build --locked --release -p holdfast-sidecar --features failpoints
	@HOLDFAST_CHAOS_CALLS=20000 HOLDFAST_CHAOS_FAULTS=1000 cargo test --locked --release -p holdfast-tests --test chaos -- --nocapture
	@HOLDFAST_SIM_SCHEDULES=1000000 cargo test --locked --release -p holdfast-sidecar --test simulation -- --nocapture

.PHONY: lint
lint: ## Formatting, clippy, licences and duplicates, stale generated files
	@cargo fmt --all --check
	@cargo clippy --locked --workspace --all-targets -- -D warnings
	@$(RIG)/deny
	@$(RIG)/generated check

.PHONY: generate
generate: ## Write what is made from the code: the CRD, its chart, the OpenAPI document
	@$(RIG)/generated write

.PHONY: images
images: ## Build the container images and load them into the cluster
	@$(RIG)/images
	@$(RIG)/cluster load holdfast-sidecar:dev holdfast-operator:dev holdfast-redis:7 holdfast-tools:dev

.PHONY: cluster-up
cluster-up: ## A kind cluster of three nodes, kept until `make cluster-down`
	@$(RIG)/cluster up

.PHONY: cluster-down
cluster-down: ## End what `make cluster-up` started
	@$(RIG)/cluster down

.PHONY: clean
clean: ## Remove build output; the cache outside the clone stays
	@cargo clean
