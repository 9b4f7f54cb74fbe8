#!/bin/sh
# Builds twice, in two folders with target folders of their own, and compares the programs byte for byte.
# usage: packaging/reproducible.sh [CARGO-ARGUMENTS]   default: the program as `make dist` builds it
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- --bin ibscope
cargo_home=${CARGO_HOME:-$HOME/.cargo}
for folder in "$work/one" "$work/another/place"; do
	mkdir -p "$folder"
	git archive HEAD | tar --extract --directory "$folder"
	(cd "$folder" && CARGO_TARGET_DIR=$folder/target RUSTFLAGS="--remap-path-prefix=$folder=/ibscope --remap-path-prefix=$cargo_home=/cargo" \
		cargo auditable build --release --locked "$@")
	(cd "$folder/target/release" && find . -maxdepth 1 -type f -perm -100 -exec sha256sum {} + | sort -k2) >"$work/sums.$(basename "$folder")"
done
cat "$work/sums.one"
cmp "$work/sums.one" "$work/sums.place"
echo "both builds gave the same bytes"
