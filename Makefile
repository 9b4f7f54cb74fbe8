# make demo   build, analyse a recorded sample, draw it
# make test   everything that must hold; installs what is missing
# make bench  throughput, beside other tools where they are installed
# make soak   the large ones: captures of 2 GiB

SHELL := /bin/sh
CARGO ?= cargo
DEMO ?= demo
SAMPLE := samples/openib-mixed-4x1.pcap.zst

# Debian packages that tests compare with. Not needed to build or to run ibscope.
TEST_PACKAGES := tshark
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: all build demo test deps lint unit docs bench soak

all: build

build:
	$(CARGO) build --release --locked

demo: build
	rm -rf $(DEMO)
	mkdir -p $(DEMO)
	target/release/ibscope analyze $(SAMPLE) --hosts samples/hosts-native.csv -o $(DEMO)/openib-mixed-4x1.ibp
	@echo
	target/release/ibscope matrix $(DEMO)/openib-mixed-4x1.ibp --by rank --svg $(DEMO)/matrix.svg --png $(DEMO)/matrix.png
	target/release/ibscope timeline $(DEMO)/openib-mixed-4x1.ibp --bin 50ms --format csv --svg $(DEMO)/timeline.svg --png $(DEMO)/timeline.png > $(DEMO)/timeline.csv
	@echo
	@echo "The profile is $(DEMO)/openib-mixed-4x1.ibp; the figures are $(DEMO)/matrix.png and $(DEMO)/timeline.png (.svg beside them)."

test: deps lint docs unit

# tshark asks no questions; a shell without root goes through sudo.
deps:
	@command -v tshark >/dev/null || { $(SUDO) apt-get update && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y --no-install-recommends $(TEST_PACKAGES); }
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

bench:
	$(CARGO) bench --locked
	benches/whole-process.sh

soak:
	$(CARGO) nextest run --release --locked --test soak --no-capture
