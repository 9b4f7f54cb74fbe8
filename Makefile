# make demo   build, analyze a recorded sample, draw it, and list further commands
# make test   all checks and tests; installs the programs that they need
# make build  build the program, target/release/ibscope; installs the packages that the build needs
# make crosscheck   compare a recorded job with its Score-P trace, or a job of your own (CAPTURES, TRACE)
# make bench  measure the throughput, and that of other tools if they are installed
# make fuzz   run every fuzz target for FUZZ_SECONDS (60), from the corpora in fuzz/
# make soak   the large tests: captures of 2 GiB, a page of 4096 ranks, crafted slow captures, 20 000 distorted captures, 50 million messages, a fabric of 2000 hosts, 1000 hooks under attack, the newest Slurm of Debian, two controllers, the role of Ansible, each fault at each step of a hook
# make dist   packages: .deb, .rpm, tarball; make static: one file without libraries
# make release-check   slow checks before a release: licenses, advisories, the oldest Rust, cargo install, packages, a repeated build

SHELL := /bin/sh
CARGO ?= cargo
DEMO ?= demo
SAMPLE := samples/openib-mixed-4x1.pcap.zst

# Debian packages that the build needs: ssh links OpenSSL.
BUILD_PACKAGES := libssl-dev pkg-config
# Programs that tests compare ibscope with. Nothing from here on is needed to build or run ibscope.
TEST_PACKAGES := tshark
# OTF2 traces: otf2-tools reads them (for ibscope crosscheck); python3-otf2 and libotf2-trace-dev
# write those of the tests.
TRACE_PACKAGES := otf2-tools python3-otf2
LARGE_TRACE_PACKAGES := libotf2-trace-dev
# Tests read the graphs of `ibscope matrix` with these.
GRAPH_PACKAGES := graphviz scotch python3-venv
# The metrics of `ibscope watch` are checked and scraped with this.
METRICS_PACKAGES := prometheus
# Tests open the HTML report in a browser, and print it.
BROWSER_PACKAGES := chromium chromium-driver python3-venv poppler-utils
# libFuzzer is C++.
FUZZ_PACKAGES := g++
FABRIC_PACKAGES := ibsim-utils libumad2sim0 opensm infiniband-diags slurm-wlm libslurm-dev gcc libc6-dev munge openssh-server sudo iproute2 tcpdump tcpreplay logrotate
ANSIBLE_PACKAGES := ansible-core
# Installs the newest Debian into a folder, for its version of Slurm.
NEWEST_DEBIAN_PACKAGES := debootstrap
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Installs the missing packages. RUNLEVEL=1 keeps Debian from starting their services: tests start
# their own.
define install
@missing=$$(for package in $(1); do \
	dpkg-query -W -f='$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || echo $$package; done); \
[ -z "$$missing" ] || { $(SUDO) apt-get update && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends $$missing; }
endef

# Packages that build and check the packages of a release.
PACKAGING_PACKAGES := dpkg-dev rpm musl-tools groff man-db zsh fish cpio
# Tools that build a release. Its bytes depend on their versions. cargo-auditable writes the list of
# crates into the program; auditable2cdx converts this list to a bill of materials.
RELEASE_TOOLS := cargo-auditable-0.7.7 auditable2cdx-0.1.0

# Installs the missing tools, named NAME-VERSION.
define install_tools
@for tool in $(1); do \
	$(CARGO) install --list | grep -qx "$${tool%-*} v$${tool##*-}:" || \
		$(CARGO) install "$${tool%-*}" --version "=$${tool##*-}" --locked || exit 1; \
done
endef

.PHONY: all build build-deps demo crosscheck test deps lint unit docs bench soak fuzz dist auditable static release-tools deny msrv reproducible install-check release-check packaging-deps

all: build

build-deps:
	$(call install,$(BUILD_PACKAGES))

build: build-deps
	$(CARGO) build --release --locked

demo: build
	rm -rf $(DEMO)
	mkdir -p $(DEMO)
	target/release/ibscope analyze $(SAMPLE) --hosts samples/hosts-native.csv -o $(DEMO)/openib-mixed-4x1.ibp
	@echo
	target/release/ibscope matrix $(DEMO)/openib-mixed-4x1.ibp --by rank --svg $(DEMO)/matrix.svg --png $(DEMO)/matrix.png
	target/release/ibscope timeline $(DEMO)/openib-mixed-4x1.ibp --bin 50ms --format csv --svg $(DEMO)/timeline.svg --png $(DEMO)/timeline.png > $(DEMO)/timeline.csv
	target/release/ibscope report $(DEMO)/openib-mixed-4x1.ibp -o $(DEMO)/report.html
	@echo
	@echo "Results of the demo:"
	@echo "  $(DEMO)/report.html            everything on one page; open it in a browser"
	@echo "  $(DEMO)/matrix.png             who sent how much to whom (also .svg)"
	@echo "  $(DEMO)/timeline.png           traffic over time (also .svg, .csv)"
	@echo "  $(DEMO)/openib-mixed-4x1.ibp   the profile, which the other commands read"
	@echo
	@echo "To run ibscope yourself, go to this folder and put the program into the PATH:"
	@echo "  cd $(CURDIR)"
	@echo "  export PATH=\"$(CURDIR)/target/release:\$$PATH\""
	@echo "Then, for example:"
	@echo "  ibscope summary $(DEMO)/openib-mixed-4x1.ibp"
	@echo "  ibscope phases $(DEMO)/openib-mixed-4x1.ibp"
	@echo "  ibscope latency $(DEMO)/openib-mixed-4x1.ibp --by rank"
	@echo "  ibscope --help"
	@echo "README.md continues with a tour, docs/tutorial.md with a tutorial."

# For a job of your own: make crosscheck CAPTURES="n1.pcap n2.pcap" TRACE=scorep-run/traces.otf2 OUT=check
# (notebooks/04-cross-check.ipynb shows how to record both).
CHECKED := samples/runs/scorep-ompi-rc-halo-4x1
CAPTURES ?= $(CHECKED)/sink.ib.pcap.zst
TRACE ?= $(CHECKED)/trace/traces.otf2
OUT ?= crosscheck

crosscheck: build
	$(call install,otf2-tools)
	mkdir -p $(OUT)
	target/release/ibscope analyze $(CAPTURES) -o $(OUT)/job.ibp
	target/release/ibscope crosscheck $(CAPTURES) $(TRACE) --svg $(OUT)/crosscheck.svg --png $(OUT)/crosscheck.png > $(OUT)/crosscheck.txt; \
		code=$$?; cat $(OUT)/crosscheck.txt; echo "The figure is $(OUT)/crosscheck.png (.svg beside it), the profile $(OUT)/job.ibp."; exit $$code

test: deps lint docs unit

# The packages ask no questions. Without root, apt-get runs through sudo.
deps: build-deps
	$(call install,$(TEST_PACKAGES) $(TRACE_PACKAGES) $(GRAPH_PACKAGES) $(METRICS_PACKAGES) $(BROWSER_PACKAGES) $(FABRIC_PACKAGES))
	@$(CARGO) nextest --version >/dev/null 2>&1 || $(CARGO) install cargo-nextest --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings

# One profile for everything, so that polars is built once. Only the crates of this repository are
# optimized less (tests/rustc changes the flags of rustc) and have no line tables, because optimizing
# them takes longer than all tests. `make build` builds the optimized program. The examples in the
# documentation run first, so that the summary of nextest is the last line.
unit: export CARGO_PROFILE_RELEASE_OPT_LEVEL = 1
unit: export CARGO_PROFILE_RELEASE_DEBUG = false
unit: export RUSTC_WORKSPACE_WRAPPER = $(CURDIR)/tests/rustc
unit:
	$(CARGO) test --release --workspace --doc --locked
	NEXTEST_TEST_THREADS=$$(($$(nproc) + 1)) $(CARGO) nextest run --release --workspace --locked

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps --locked

bench: build-deps
	$(CARGO) bench --locked
	benches/benchmarks.py

soak: deps
	$(call install,$(LARGE_TRACE_PACKAGES) $(ANSIBLE_PACKAGES) $(NEWEST_DEBIAN_PACKAGES))
	$(CARGO) nextest run --release --locked --test soak --no-capture
	$(CARGO) nextest run --release --locked --test hard --test suite --run-ignored only --no-capture
	IBSCOPE_SOAK=1 $(CARGO) nextest run --release --locked --test fabric --no-capture -E 'test(2000_hosts) | test(eight_leaves) | test(a_thousand) | test(faults_at_all_steps) | test(newest_slurm) | test(prologs_of_slurms_user) | test(what_an_epilog_of_slurms_user) | test(for_slurms_user) | test(ansible)'

# New inputs are kept in FUZZ, failing ones in FUZZ/failures.
FUZZ ?= target/fuzz
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(notdir $(wildcard fuzz/corpus/*))

fuzz: build-deps
	$(call install,$(FUZZ_PACKAGES))
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/fuzz/instrument $(CARGO) build --release --locked -p ibscope-fuzz --features libfuzzer --bins
	for target in $(FUZZ_TARGETS); do fuzz/run $$target $(FUZZ_SECONDS) $(FUZZ) || exit 1; done

# PROGRAM: the program to package, if not the one that `make` builds; for example
# dist/ibscope-static.
PROGRAM ?= target/release/ibscope

dist: $(if $(filter target/release/ibscope,$(PROGRAM)),auditable,release-tools)
	packaging/dist.sh $(PROGRAM) dist

release-tools:
	$(call install,jq)
	$(call install_tools,$(RELEASE_TOOLS))

# Like `make build`, but the program contains the list of its crates for `cargo audit bin`.
auditable: build-deps release-tools
	$(CARGO) auditable build --release --locked --bin ibscope

STATIC_TARGET := x86_64-unknown-linux-musl

static: release-tools
	$(call install,musl-tools)
	rustup target add $(STATIC_TARGET)
	CC_x86_64_unknown_linux_musl=musl-gcc $(CARGO) auditable build --release --locked --bin ibscope --features vendored-openssl --target $(STATIC_TARGET)
	mkdir -p dist
	strip --strip-debug -o dist/ibscope-static target/$(STATIC_TARGET)/release/ibscope
	@if ldd dist/ibscope-static 2>/dev/null | grep -q '=>'; then echo "dist/ibscope-static is not static"; exit 1; fi
	dist/ibscope-static --version

# Checks of a release in addition to `make test`. They are separate because each takes minutes and
# rebuilds many crates.
release-check: packaging-deps deny msrv install-check reproducible dist static
	packaging/check.sh dist

packaging-deps:
	$(call install,$(PACKAGING_PACKAGES))

# Without network: make deny DENY_CHECKS="licenses bans sources". Advisories are downloaded.
DENY_CHECKS ?= licenses bans sources advisories

deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --locked
	$(CARGO) deny check $(DENY_CHECKS)

# The oldest Rust that Cargo.toml supports.
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

msrv: build-deps
	rustup toolchain install $(MSRV) --profile minimal
	CARGO_TARGET_DIR=target/msrv $(CARGO) +$(MSRV) check --workspace --all-targets --locked

install-check: build-deps
	rm -rf target/install-check
	$(CARGO) install --path . --locked --root target/install-check
	target/install-check/bin/ibscope analyze $(SAMPLE)

# Checks that two builds in two folders give the same bytes.
reproducible: build-deps release-tools
	packaging/reproducible.sh
