# Targets for developers and CI. `make` alone lists them.

CONTROL_PLANE := tests/control-plane

# Tests wait far more than they compute, so more of them may run than there are processors.
export RUST_TEST_THREADS ?= 16

# What `make install` installs, and where. BINARY is built first if it is not there.
NAME := replicaset-controller
BINARY ?= target/release/$(NAME)
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
# Where debuggers look for the line tables and symbols that are split off the program.
DEBUGDIR ?= /usr/lib/debug
OBJCOPY ?= objcopy
# Prints man page and completions. Another program than BINARY if that is for another kind of machine.
PRINTER ?= $(BINARY)
program = $(DESTDIR)$(PREFIX)/bin/$(NAME)
# Under this name the program is kubectl's plugin: `kubectl rs-explain`.
plugin = $(DESTDIR)$(PREFIX)/bin/kubectl-rs_explain
debug = $(DESTDIR)$(DEBUGDIR)$(PREFIX)/bin/$(NAME).debug
shared = $(DESTDIR)$(PREFIX)/share
documents = $(shared)/doc/$(NAME)
units = $(DESTDIR)$(PREFIX)/lib/systemd/system
generated = $(units)/$(NAME).service $(shared)/man/man8/$(NAME).8 \
	$(shared)/bash-completion/completions/$(NAME) $(shared)/zsh/site-functions/_$(NAME) \
	$(shared)/fish/vendor_completions.d/$(NAME).fish

# Links of the manual, rewritten in the rendered pages (to pages, sources and other files) and as installed,
# without those to what is not installed.
rendered_links := s|href="([a-z]+)\.md|href="../\1/index.html|g; \
	s|href="\.\./(kubernetes)/([a-z_/]+\.rs)"|href="../../../src/\1/\2.html"|g; \
	s|href="\.\./(devserver)/([a-z_/]+\.rs)"|href="../../../src/\1/\2.html"|g; \
	s|href="\.\./([a-z_/]+\.rs)"|href="../../../src/replicaset_controller/\1.html"|g; \
	s|href="\.\./\.\./([a-z]+/)|href="../../../../../\1|g; \
	s,src="([a-z-]+\.(svg|png))",src="../../../../../src/manual/\1",g
installed_links := s|](src/manual/|](manual/|g; s|](\.\./\.\./config/|](../|g; s|](config/|](|g; \
	s|](\.\./\.\./\([A-Z]\)|](../\1|g; s|\[\([^]]*\)\]([^)]*\.rs)|\1|g; \
	s,\[\([^]]*\)\](\(\.\./\.\./\|tests/\|\(\.\./\)*CONTRIBUTING\)[^)]*),\1,g; \
	s|\nmake build[^\n]*||g; s,\nmake \(demo\|dev\)\>,\n$(NAME) \1,g; s|-f config/|-f |g

# What `make image` builds with, and the name that it gives the image.
ENGINE ?= podman
IMAGE ?= $(NAME):$(shell sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml | head -n 1)

# The context has the layout of a release tarball.
define build_image # FOLDER-OF-THE-BINARY, IMAGE, FEATURE-FLAG
	install -d $(addprefix target/image/context/,bin share/doc/$(NAME))
	$(OBJCOPY) --strip-all $(1)/$(NAME) target/image/context/bin/$(NAME)
	install -m 644 LICENSE target/image/context/share/doc/$(NAME)
	config/packages/notices.sh $(MUSL) target/image/context/share/doc/$(NAME) $(3)
	$(ENGINE) build -f config/Containerfile -t $(2) target/image/context
endef

# Further arguments of the program: `make demo ARGS=--fast`, `make dev ARGS='--port 9000'`.
ARGS ?=

# So that eu-stack, perf and gdb walk the stacks of a release binary at little cost.
build build-static bench bench-million image $(BINARY): export RUSTFLAGS += -C force-frame-pointers=yes

# The commit that `--version` names. Debug builds have none, or each commit would rebuild them.
build build-static bench bench-million image $(BINARY): export REPLICASET_CONTROLLER_COMMIT ?= $(shell \
	git describe --always --dirty --exclude='*' 2>/dev/null)

# `make demo` and `make dev` run the release binary if it is newer than every source. Otherwise they
# run a binary without optimisation, which shares all dependencies with `make test`.
RELEASE := target/release/$(NAME)
DEBUG := target/debug/$(NAME)
define run_with_devserver
@if [ -x $(RELEASE) ] && [ -z "$$(find Cargo.toml Cargo.lock src config -newer $(RELEASE))" ] && \
	$(RELEASE) $@ --help >/dev/null 2>&1; then \
	exec $(RELEASE) $@ $(ARGS); \
fi; \
[ -x $(DEBUG) ] || echo "Building once, without optimisation: 1 to 3 minutes on 2 processors."; \
exec cargo run --locked -- $@ $(ARGS)
endef

# How long `make simulate` runs. It continues where the last run ended.
SIMULATION_MINUTES ?= 10

# How long `make fuzz` runs, all targets together. It continues where the last run ended.
FUZZ_MINUTES ?= 10

# How long `make chaos` runs. It continues where the last run ended. CHAOS_SEED repeats one round.
CHAOS_MINUTES ?= 10
export CHAOS_SEED ?=

# What `make mutants-of-change` compares with.
SINCE ?= HEAD~1

# The target of `make build-static`, and what it makes.
MUSL := $(shell uname -m)-unknown-linux-musl
STATIC := target/$(MUSL)/release/$(NAME)

.DEFAULT_GOAL := help
.PHONY: help build build-static install uninstall demo dev test control-plane test-control-plane bench bench-million picture lint deny fmt doc check clean
.PHONY: report simulate fuzz chaos mutants mutants-missed mutants-of-change check-without-devserver dist libraries deb image image-dev test-packages test-samples test-clients api-types test-upstream

help: ## List these targets
	@awk -F ':.*## ' '/^## /{print "\n" substr($$0, 4)} /^[a-z-]+:.*## /{printf "  %-24s%s\n", $$1, $$2}' \
		$(MAKEFILE_LIST)

## Use

demo: ## Watch the controller converge sample ReplicaSets, no cluster needed (ARGS)
	$(run_with_devserver)

dev: ## Run dev API server, simulated kubelet and controller until stopped (ARGS)
	$(run_with_devserver)

build: ## Build the release binary into target/release
	cargo build --release --locked

build-static: ## Build a static binary, which needs musl's target and compiler
	cargo build --release --locked --target $(MUSL)
	@echo $(STATIC)

$(BINARY):
	cargo build --release --locked

install: $(BINARY) ## Install binary, unit, manual, man page and completions below DESTDIR, PREFIX
	install -d $(dir $(program)) $(dir $(debug)) $(units) $(shared)/man/man8 $(documents)/manual \
		$(shared)/zsh/site-functions $(shared)/bash-completion/completions \
		$(shared)/fish/vendor_completions.d
	$(OBJCOPY) --only-keep-debug --compress-debug-sections=zlib $(BINARY) $(debug)
	$(OBJCOPY) --strip-all --add-gnu-debuglink=$(debug) $(BINARY) $(program).new
	chmod 644 $(debug)
	chmod 755 $(program).new
	mv $(program).new $(program)
	ln -sf $(NAME) $(plugin)
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|; s|/etc/$(NAME)|$(SYSCONFDIR)/$(NAME)|' \
		config/$(NAME).service >$(units)/$(NAME).service
	$(PRINTER) man >$(shared)/man/man8/$(NAME).8
	$(PRINTER) completions bash >$(shared)/bash-completion/completions/$(NAME)
	$(PRINTER) completions zsh >$(shared)/zsh/site-functions/_$(NAME)
	$(PRINTER) completions fish >$(shared)/fish/vendor_completions.d/$(NAME).fish
	chmod 644 $(generated)
	install -m 644 README.md SECURITY.md CHANGELOG.md LICENSE config/*.yaml config/Containerfile \
		config/$(NAME).service $(documents)
	install -D -m 644 -t $(documents)/static-pod config/static-pod/*.yaml
	install -D -m 644 -t $(documents)/sidecar config/sidecar/*.yaml
	install -D -m 644 -t $(documents)/monitoring config/monitoring/*
	install -D -m 644 -t $(documents)/shadow config/shadow/*.yaml
	install -m 644 src/manual/*.md src/manual/*.svg src/manual/*.png $(documents)/manual
	sed -z -i '$(installed_links)' $(addprefix $(documents)/,README.md SECURITY.md CHANGELOG.md) \
		$(documents)/manual/*.md
	install -d -m 700 $(DESTDIR)$(SYSCONFDIR)/$(NAME)
	test -e $(DESTDIR)$(SYSCONFDIR)/$(NAME)/config.yaml || \
		install -m 600 config/config.yaml $(DESTDIR)$(SYSCONFDIR)/$(NAME)/config.yaml

uninstall: ## Remove what was installed, but not the configuration
	rm -f $(program) $(plugin) $(debug) $(generated)
	rm -rf $(documents)

## Change the code

check: ## What CI runs: format, lint, docs, tests
	cargo fmt --check
	$(MAKE) lint
	$(MAKE) doc
	$(MAKE) test
	$(MAKE) check-without-devserver

test: ## Run all tests that need only Rust
	cargo test --locked

lint: ## Run clippy with warnings denied
	cargo clippy --locked --workspace --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt

doc: ## Build the documentation with warnings denied
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items
	sed -i -E '$(rendered_links)' target/doc/replicaset_controller/manual/*/index.html

check-without-devserver: ## Lint and test the build without the feature `devserver`
	cargo clippy --locked --package $(NAME) --no-default-features --all-targets -- -D warnings
	cargo test --locked --package $(NAME) --no-default-features --lib

test-samples: ## Run the packages for pip, npm and Go in bare environments, without network
	cargo build --locked
	tests/samples/run.sh

test-clients: ## Run everyday calls of several languages' clients on the dev server
	cargo build --locked
	tests/rigs/clients/run.sh

api-types: ## Regenerate the dev server's table of the API's types from the Go types
	cd tests/rigs/clients/go && go run ./types ../../../../src/devserver/resource.rs >types.txt
	mv tests/rigs/clients/go/types.txt src/devserver/types.txt

report: ## Regenerate REPORT.md and BUGS.md from tests/records
	UPDATE_EXPECT=1 cargo test --locked --test it report::

picture: ## Take the manual's pictures of the dashboard and of the page / (Prometheus, Chromium)
	UPDATE_EXPECT=picture cargo test --locked --test it -- the_picture_of_the_dashboard a_browser_shows

deny: ## Check licences, sources and bans of the dependencies (installs cargo-deny)
	config/packages/deny.sh

clean: ## Remove all build output
	cargo clean

## Long tests

control-plane: ## Build a real etcd, kube-apiserver and kubectl into target/control-plane (K8S)
	$(CONTROL_PLANE)/build.sh

test-control-plane: ## Run the integration tests against the real control plane (K8S)
	$(CONTROL_PLANE)/run.sh cargo test --locked --test it

bench: ## Compare with kube-controller-manager on one API server (K8S, BENCH_ARGS)
	cargo build --release --locked
	CONTROL_PLANE_AUDIT_LOG= $(CONTROL_PLANE)/run.sh cargo bench --locked --package side-by-side -- $(BENCH_ARGS)

bench-million: ## Measure one daemon beside 1,000,000 pods (K8S, BENCH_ARGS)
	cargo build --release --locked
	CONTROL_PLANE_AUDIT_LOG= $(CONTROL_PLANE)/run.sh cargo bench --locked --package million -- $(BENCH_ARGS)

simulate: ## Simulate random histories of whole daemons, and all of small scopes (SIMULATION_MINUTES)
	SIMULATION_MINUTES=$(SIMULATION_MINUTES) cargo test --locked --profile simulation --lib -- \
		--nocapture manager::simulation::no_history scopes:: workqueue::queue::interleaving_tests

fuzz: ## Fuzz every parser of untrusted bytes (FUZZ_MINUTES)
	FUZZ_MINUTES=$(FUZZ_MINUTES) cargo test --locked --profile simulation --lib -- \
		--nocapture fuzzing::no_input

chaos: control-plane ## Break daemons, connections and a real control plane (CHAOS_MINUTES, CHAOS_SEED)
	CHAOS_MINUTES=$(CHAOS_MINUTES) cargo test --locked --test it -- --nocapture chaos::

test-upstream: ## Run Kubernetes' own integration and conformance tests on this daemon (K8S)
	cargo build --locked
	tests/upstream/run.sh
	tests/upstream/conformance.sh

mutants: ## Run the simulation and the unit tests on 300 mutants (needs cargo-mutants, jq)
	tests/mutants.sh

mutants-missed: ## Rerun the mutants that are recorded as missed
	tests/mutants.sh missed

mutants-of-change: ## Run mutants of the lines that changed since a commit (SINCE, needs cargo-mutants)
	mkdir -p target
	git diff $(SINCE) >target/change.diff
	cargo mutants --workspace --config tests/mutants.toml --output target --jobs 2 --in-diff target/change.diff

## Package

dist: ## Build reproducible tarballs, wheels and an npm package into target/dist (TARGETS)
	config/packages/tarballs.sh

libraries: $(BINARY) ## Pack a wheel, an npm package and a Go module for this machine into target/libraries
	rm -rf target/libraries
	install -d target/libraries/$(shell uname -m)
	$(OBJCOPY) --strip-all $(BINARY) target/libraries/$(shell uname -m)/$(NAME)
	config/packages/libraries.sh target/libraries target/libraries/$(shell uname -m)

deb: ## Build Debian packages for this machine into target/debian
	config/packages/deb.sh

image: ## Build the container image from a static binary (ENGINE, IMAGE)
	cargo build --profile dist --locked --package $(NAME) --no-default-features --target $(MUSL) --target-dir target/image
	$(call build_image,target/image/$(MUSL)/dist,$(IMAGE),--no-default-features)

image-dev: build-static ## Build the image with the dev server, for the sidecar
	$(call build_image,target/$(MUSL)/release,$(NAME)-dev:$(lastword $(subst :, ,$(IMAGE))))

test-packages: ## Install, run and remove what dist, deb and image built, as root
	tests/packages/run.sh
