#!/bin/sh
# Prints the bill of materials of a program that cargo-auditable built: its crates, as CycloneDX.
# usage: packaging/sbom.sh PROGRAM
set -eu
cd "$(dirname "$0")/.."
listed=$(auditable2cdx "$1" 2>/dev/null) || {
	echo "$1: has no list of its crates; build it with \`make dist\`, \`make static\` or \`cargo auditable build\`" >&2
	exit 1
}
features=
if echo "$listed" | jq --exit-status 'any(.components[]; .name == "openssl-src")' >/dev/null; then
	features=vendored-openssl
fi
# cargo-auditable also lists optional dependencies that no feature enables, such as HTTP clients.
# `cargo tree` does not.
built=$(cargo tree --locked --package ibscope --features "$features" --edges normal,build --prefix none --no-dedupe |
	awk 'NF { sub(/^v/, "", $2); print $1, $2 }' | LC_ALL=C sort -u)
echo "$listed" | jq --arg built "$built" '
	($built | split("\n") | map({key: ., value: true}) | from_entries) as $is_built
	| .components |= map(select($is_built["\(.name) \(.version)"]))
	# The suffix that crates of this repository have is not valid in a package URL.
	| (.metadata.component, .components[]).purl |= sub("&download_url=redacted$"; "")
	| ([.metadata.component, .components[]] | map({key: ."bom-ref", value: true}) | from_entries) as $stays
	| .dependencies |= map(select($stays[.ref]) | if .dependsOn then .dependsOn |= map(select($stays[.])) else . end)'
