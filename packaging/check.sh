#!/bin/sh
# Checks the packages of packaging/dist.sh: the program runs, the manual has no warnings, shells read
# the completions, and each package has the files for hooks and the sweeper.
# usage: packaging/check.sh FOLDER
set -eu
cd "$(dirname "$0")/.."
dist=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar --extract --gzip --file "$dist"/ibscope-*.tar.gz --directory "$work" --strip-components=1
ibscope=$work/bin/ibscope share=$work/share
"$ibscope" analyze samples/openib-mixed-4x1.pcap.zst >/dev/null

# The bill of materials lists only crates of Cargo.lock, all crates that are built, and none that
# deny.toml bans. The program contains its own list.
sbom=$share/doc/ibscope/sbom.cdx.json
jq -r '.components[] | "\(.name) \(.version)"' "$sbom" | LC_ALL=C sort -u >"$work/listed"
awk '/^name = / { name = $3 } /^version = / { print name, $3 }' Cargo.lock | tr -d '"' | LC_ALL=C sort -u >"$work/locked"
# The first line is ibscope itself, the subject of the bill.
cargo tree --locked --package ibscope --edges normal,build --prefix none --no-dedupe |
	awk 'NR > 1 && NF { sub(/^v/, "", $2); print $1, $2 }' | LC_ALL=C sort -u >"$work/built"
[ "$(wc -l <"$work/built")" -gt 100 ]
unknown=$(LC_ALL=C comm -23 "$work/listed" "$work/locked")
[ -z "$unknown" ] || { echo "sbom.cdx.json: not in Cargo.lock: $unknown"; exit 1; }
missing=$(LC_ALL=C comm -13 "$work/listed" "$work/built")
[ -z "$missing" ] || { echo "sbom.cdx.json: built, but not listed: $missing"; exit 1; }
for crate in $(sed -n 's/.*{ crate = "\(.*\)" }.*/\1/p' deny.toml); do
	! grep "^$crate " "$work/listed" || { echo "sbom.cdx.json: lists $crate, which deny.toml bans"; exit 1; }
done
auditable2cdx "$ibscope" | jq --exit-status '.components | length > 100' >/dev/null
echo "the bill of materials lists $(wc -l <"$work/listed") crates, $(wc -l <"$work/built") of them are built on this system"

pages=0
for page in "$share"/man/man1/*.gz; do
	zcat "$page" >"$work/page.1"
	warnings=$(groff -man -ww -z -Tutf8 "$work/page.1" 2>&1)
	[ -z "$warnings" ] || { echo "$page: $warnings"; exit 1; }
	man -l "$work/page.1" | grep -q 'EXIT STATUS'
	pages=$((pages + 1))
done
echo "$pages manual pages, no warnings"

# bash completes a command, an option and a value.
completed() {
	bash -c '. "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _ibscope ibscope "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s " "${COMPREPLY[@]}"' \
		completed "$share/bash-completion/completions/ibscope" "$1"
}
[ "$(completed 'ibscope mat')" = 'matrix ' ]
[ "$(completed 'ibscope matrix --traf')" = '--traffic ' ]
[ "$(completed 'ibscope matrix --traffic col')" = 'collective ' ]
echo "bash completes"
if command -v zsh >/dev/null; then zsh -n "$share/zsh/vendor-completions/_ibscope" && echo "zsh reads its completions"; fi
if command -v fish >/dev/null; then
	[ "$(fish -c "source $share/fish/vendor_completions.d/ibscope.fish; complete -C 'ibscope collec'" | cut -f1)" = collectives ] && echo "fish completes"
fi

# The files for hooks and the sweeper, below a folder that has the content of a package's /usr.
check_site_files() {
	for file in systemd/ibscope-sweep.service=lib/systemd/system systemd/ibscope-sweep.timer=lib/systemd/system \
		tmpfiles/ibscope.conf=lib/tmpfiles.d logrotate/ibscope=share/ibscope/logrotate spank/ibscope.c=share/ibscope/spank \
		grafana/ibscope.json=share/ibscope/grafana sudo/ibscope=share/ibscope/sudo sudo/node.toml=share/ibscope/sudo; do
		from=packaging/${file%=*} to=$1/${file#*=}/$(basename "${file%=*}")
		cmp "$from" "$to"
		[ "$(stat -c %a "$to")" = 644 ] || { echo "$to: mode $(stat -c %a "$to")"; exit 1; }
	done
	diff -r packaging/ansible "$1/share/ibscope/ansible"
}
check_site_files "$work"
if command -v visudo >/dev/null; then visudo -c -f packaging/sudo/ibscope; fi
if [ -e /usr/include/slurm/spank.h ]; then
	gcc -Wall -Wextra -Werror -shared -fPIC -o "$work/spank.so" "$share/ibscope/spank/ibscope.c" && echo "the SPANK plugin compiles"
fi

deb=$(echo "$dist"/ibscope_*.deb)
if [ -e "$deb" ]; then
	dpkg-deb --extract "$deb" "$work/deb"
	cmp "$work/deb/usr/bin/ibscope" "$ibscope"
	cmp "$work/deb/usr/share/doc/ibscope/sbom.cdx.json" "$sbom"
	check_site_files "$work/deb/usr"
	(cd "$work/deb" && dpkg-deb --info "$deb" md5sums >"$work/sums" && md5sum --quiet --check "$work/sums")
	# A dynamic program depends on the packages of its libraries.
	if ldd "$ibscope" 2>/dev/null | grep -q '=>'; then dpkg-deb --field "$deb" Depends | grep 'libc6 (>=' | grep -q libssl; fi
	echo ".deb: the same program, checksums match, depends on: $(dpkg-deb --field "$deb" Depends)"
fi
rpm=$(echo "$dist"/ibscope-*.rpm)
if [ -e "$rpm" ]; then
	rpm --query --list --package "$rpm" | grep -q '^/usr/bin/ibscope$'
	mkdir "$work/rpm"
	(cd "$work/rpm" && rpm2cpio "$rpm" | cpio --quiet --extract --make-directories)
	cmp "$work/rpm/usr/share/doc/ibscope/sbom.cdx.json" "$sbom"
	check_site_files "$work/rpm/usr"
	rpm --checksig --nosignature "$rpm" | grep -q 'digests OK'
	echo ".rpm: digests match"
fi
