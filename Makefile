# make demo   build, analyse a recorded sample, draw it
# make test   everything that must hold; installs what is missing
# make crosscheck   a recorded job against its Score-P trace, or one of your own (CAPTURES, TRACE)
# make bench  throughput, beside other tools where they are installed
# make fuzz   every fuzz target for FUZZ_SECONDS (60), from the corpora in fuzz/
# make soak   the large ones: captures of 2 GiB, a fabric of 2000 hosts

SHELL := /bin/sh
CARGO ?= cargo
DEMO ?= demo
SAMPLE := samples/openib-mixed-4x1.pcap.zst

# Debian packages that the build needs: ssh links OpenSSL.
BUILD_PACKAGES := libssl-dev pkg-config
# Those that tests compare with, and those that the orchestrator is tried on. Not needed to build or to run ibscope.
TEST_PACKAGES := tshark
# Traces in OTF2: what reads them (ibscope crosscheck needs the first), what tests write them with, and what the large one is written with.
TRACE_PACKAGES := otf2-tools python3-otf2
LARGE_TRACE_PACKAGES := libotf2-trace-dev
# The HTML report is opened in a browser, and printed.
BROWSER_PACKAGES := chromium chromium-driver python3-venv poppler-utils
# libFuzzer is C++.
FUZZ_PACKAGES := g++
FABRIC_PACKAGES := ibsim-utils libumad2sim0 opensm infiniband-diags slurm-wlm munge openssh-server iproute2 tcpdump tcpreplay
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Installs those of the packages that are missing. RUNLEVEL=1 keeps Debian from starting their services: tests start their own.
define install
@missing=$$(for package in $(1); do \
	dpkg-query -W -f='$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || echo $$package; done); \
[ -z "$$missing" ] || { $(SUDO) apt-get update && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends $$missing; }
endef

.PHONY: all build build-deps demo crosscheck test deps lint unit docs bench soak fuzz

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
	@echo "The profile is $(DEMO)/openib-mixed-4x1.ibp; the figures are $(DEMO)/matrix.png and $(DEMO)/timeline.png (.svg beside them)."
	@echo "All of it as one page, for any browser: $(DEMO)/report.html"

# For a job of one's own: make crosscheck CAPTURES="n1.pcap n2.pcap" TRACE=scorep-run/traces.otf2 OUT=check
# (notebooks/04-cross-check.ipynb says how to record both).
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

# The packages ask no questions; a shell without root goes through sudo.
deps: build-deps
	$(call install,$(TEST_PACKAGES) $(TRACE_PACKAGES) $(BROWSER_PACKAGES) $(FABRIC_PACKAGES))
	@$(CARGO) nextest --version >/dev/null 2>&1 || $(CARGO) install cargo-nextest --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings

# One profile for everything, so that polars is built once. The documentation's examples first: nextest's closing line
# is to be the last one.
unit:
	$(CARGO) test --release --workspace --doc --locked
	$(CARGO) nextest run --release --workspace --locked

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps --locked

bench: build-deps
	$(CARGO) bench --locked
	benches/benchmarks.py

soak: deps
	$(call install,$(LARGE_TRACE_PACKAGES))
	$(CARGO) nextest run --release --locked --test soak --no-capture
	IBSCOPE_SOAK=1 $(CARGO) nextest run --release --locked --test fabric --no-capture -E 'test(2000_hosts)'

# What is found is kept in FUZZ, what fails in FUZZ/failures.
FUZZ ?= target/fuzz
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(notdir $(wildcard fuzz/corpus/*))

fuzz: build-deps
	$(call install,$(FUZZ_PACKAGES))
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/fuzz/instrument $(CARGO) build --release --locked -p ibscope-fuzz --features libfuzzer --bins
	for target in $(FUZZ_TARGETS); do fuzz/run $$target $(FUZZ_SECONDS) $(FUZZ) || exit 1; done
