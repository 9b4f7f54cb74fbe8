#!/bin/sh
# Builds the program in two folders, each with its own target folder, and compares the results byte
# for byte.
# usage: packaging/reproducible.sh [CARGO-ARGUMENTS]   default: --bin ibscope
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
