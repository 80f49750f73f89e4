# `make demo` and `make test` are the two commands to know; both set up what they need.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Used by the build of etcd-client; only where protoc itself is absent.
PROTOX := $(CURDIR)/target/tools/bin/protox
export PROTOC ?= $(shell command -v protoc || { [ -x $(PROTOX) ] && echo $(PROTOX); } || echo protoc)
DEMO_ARGS ?=

.PHONY: help demo test unit component e2e deploy-check bench-plan lint fmt build setup setup-test soak

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:
	@.ci/setup.sh build

setup-test:
	@.ci/setup.sh test

build: setup ## the binary, optimised: target/release/kreplicator
	cargo build --release --locked --package kreplicator-cli

demo: setup ## two embedded Kafka clusters, a controller and workers; DEMO_ARGS='--for 30s'
	cargo run --release --locked --quiet --package kreplicator-cli -- demo $(DEMO_ARGS)

test: setup-test unit component e2e deploy-check ## every tier, on real Kafka and etcd
	@.ci/summary.sh

unit: ## functions, properties, golden files: no network
	.ci/tier.sh unit --workspace --exclude kreplicator-tests

component: ## one real edge against one adapter
	.ci/tier.sh component --package kreplicator-tests --lib --test 'component_*'

e2e: ## the whole system on real brokers
	cargo build --locked --package kreplicator-cli
	.ci/tier.sh e2e --package kreplicator-tests --test 'e2e_*'

soak: setup-test ## the end-to-end scenarios at full length (about an hour)
	cargo build --locked --package kreplicator-cli
	KREPLICATOR_SOAK=1 .ci/tier.sh soak --package kreplicator-tests --test 'e2e_*'

deploy-check: ## manifests against Kubernetes' schemas, their settings against the binary
	cargo build --locked --package kreplicator-cli
	deploy/check.sh

bench-plan: setup ## the planner alone: 200,000 tasks on 1,000 workers
	cargo run --release --locked --quiet --package kreplicator-bench -- plan

lint: setup ## format, clippy, docs, dependency rules
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
	.ci/deny.sh

fmt:
	cargo fmt --all
