# Verbs for people and for CI. `make` alone lists them.

CONTROL_PLANE := tests/control-plane

# Tests wait far more than they compute, so more of them may run than there are processors.
export RUST_TEST_THREADS ?= 16

.DEFAULT_GOAL := help
.PHONY: help build demo dev test control-plane test-control-plane bench lint fmt doc check clean

help: ## List these verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 22

build: ## Build the release binary into target/release
	cargo build --release --locked

demo: ## Watch the controller converge sample ReplicaSets, no cluster needed
	cargo run --release --locked -- demo

dev: ## Run dev API server, simulated kubelet and controller until stopped
	cargo run --release --locked -- dev

test: ## Run all tests that need nothing but Rust
	cargo test --locked

control-plane: ## Build a real etcd, kube-apiserver and kubectl into target/control-plane
	$(CONTROL_PLANE)/build.sh

test-control-plane: ## Run the integration tests against the real control plane
	$(CONTROL_PLANE)/run.sh cargo test --locked --test it

bench: control-plane ## Compare with kube-controller-manager on one API server (BENCH_ARGS)
	$(CONTROL_PLANE)/run.sh cargo bench --locked --bench side_by_side -- $(BENCH_ARGS)

lint: ## Run clippy with warnings denied
	cargo clippy --locked --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt

doc: ## Build the documentation with warnings denied
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items

check: ## What CI runs: format, lint, docs, tests
	cargo fmt --check
	$(MAKE) lint
	$(MAKE) doc
	$(MAKE) test

clean: ## Remove everything that was built here
	cargo clean
