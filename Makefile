# `make demo` and `make test` are the two commands to know; both set up what they need.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Used by the build of etcd-client; only where protoc itself is absent.
PROTOX := $(CURDIR)/target/tools/bin/protox
export PROTOC ?= $(shell command -v protoc || { [ -x $(PROTOX) ] && echo $(PROTOX); } || echo protoc)
E2E := $(basename $(notdir $(wildcard tests/tests/e2e_* bench/tests/e2e_*)))
# Those that ask for no times; the bench's short form asks for ratios, far below what it finds, and comes last, when
# the other tiers are over.
INPUT := e2e_input
DATA := e2e_data e2e_mirror
# Those in which the engine `records`, which waits for leases, differs from the other: a worker killed, frozen, and
# a fleet without leases.
RECORDS := d2_ d3_ e5_
SOAK := KREPLICATOR_SOAK=1 KREPLICATOR_BIN=$(TARGET_DIR)/release/kreplicator
# Component tests that are longer in a soak.
LONG := component_batches component_records component_versions
DEMO_ARGS ?=
BENCH_ARGS ?=
# What `make bench-bounds` asks for, beside MirrorMaker 2 and by itself.
AT_LEAST := lz4.cpu=15,lz4.memory=15,lz4.throughput=4,lz4.p99=5,lz4.records.cpu=1,single.cpu=3,rtt.mb_s=20
AT_MOST := repeats=0,missing=0,failover.seconds=2.5,quiet.memory_mb=150,quiet.core_percent=3

.PHONY: help demo test built unit store component input data e2e deploy-check bench-plan bench-mirror bench-bounds lint fmt build setup setup-test soak

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

test: setup-test built ## every tier, on real Kafka and etcd
	@# These mostly wait, each for its own; the last asks how long faults are felt, and has the machine alone.
	@$(MAKE) -j6 component data input unit store deploy-check
	@$(MAKE) e2e
	@.ci/summary.sh

# Everything at once; the binary among it. Each tier asks for the whole workspace, since what is asked for
# decides with which features dependencies are built.
built:
	cargo test --locked --workspace --no-run

unit: ## functions, properties, golden files, the harness itself: one process each
	.ci/tier.sh unit 6 --workspace --lib --bins --test '[!ce]*' --test corpus

store: ## the metadata store on a real etcd with faults
	.ci/tier.sh store 6 --workspace --test 'component_store_*'

component: ## one adapter at a time on real Kafka
	.ci/tier.sh component 3 --workspace --test 'component_[!s]*'

input: built ## the whole system on real brokers: every kind of input, by file, command and call
	.ci/tier.sh input 1 --workspace $(addprefix --test ,$(INPUT))

data: built ## the whole system on real brokers: every kind of data, and what copying costs
	.ci/tier.sh data 1 --workspace $(addprefix --test ,$(DATA))

e2e: built ## the whole system on real brokers: faults and changes under load, and how long they are felt
	.ci/tier.sh e2e 1 --workspace $(addprefix --test ,$(filter-out $(DATA) $(INPUT),$(E2E)))
	KREPLICATOR_ENGINE=records .ci/tier.sh records 1 --workspace --test e2e_flow -- $(RECORDS)

soak: setup-test built build ## the end-to-end scenarios at full length, with the optimised binary (five hours)
	@# What is said of the engine `records` is asked also where the other has failed.
	failed=; $(SOAK) .ci/tier.sh soak 1 --workspace --test 'e2e_*' $(addprefix --test ,$(LONG)) || failed=1; \
	$(SOAK) KREPLICATOR_ENGINE=records .ci/tier.sh soak-records 1 --workspace --test e2e_flow --test e2e_links || failed=1; \
	test -z "$$failed"

deploy-check: built ## manifests against Kubernetes' schemas, their settings against the binary
	deploy/check.sh

bench-plan: setup ## the planner alone: 200,000 tasks on 1,000 workers
	cargo run --release --locked --quiet --package kreplicator-bench -- plan

bench-mirror: setup-test build ## copying beside MirrorMaker 2; BENCH_ARGS='--records 200000 --loads lz4'
	cargo run --release --locked --quiet --package kreplicator-bench -- mirror $(BENCH_ARGS)

bench-bounds: setup-test build ## the same at full length, with everything else it measures: fails when a bound is not kept
	cargo run --release --locked --quiet --package kreplicator-bench -- mirror --failover --quiet 5000 --rtt 200ms \
		--link-mbit 100 --also-peers batches --at-least $(AT_LEAST) --at-most $(AT_MOST) $(BENCH_ARGS)

lint: setup ## format, clippy, docs, dependency rules
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@# With examples, of which there are none, dependencies get the features that clippy has checked them with.
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --lib --bins --examples --no-deps --locked --quiet
	.ci/deny.sh

fmt:
	cargo fmt --all
