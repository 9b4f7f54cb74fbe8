#!/bin/sh
# Fills FOLDER with the files to install: the program, its manual, completions for bash, zsh and
# fish, documents, and the bill of materials.
# usage: packaging/stage.sh PROGRAM FOLDER
set -eu
cd "$(dirname "$0")/.."
program=$1 root=$2/usr
share=$root/share
mkdir -p "$root/bin" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/vendor-completions" \
	"$share/fish/vendor_completions.d" "$share/doc/ibscope"
install -m 755 "$program" "$root/bin/ibscope"
# Debug symbols are half of the file, and useless without the sources.
strip --strip-debug "$root/bin/ibscope"
"$program" manual "$share/man/man1" 2>/dev/null
gzip -9nf "$share/man/man1"/*.1
"$program" completions bash >"$share/bash-completion/completions/ibscope"
"$program" completions zsh >"$share/zsh/vendor-completions/_ibscope"
"$program" completions fish >"$share/fish/vendor_completions.d/ibscope.fish"
mkdir -p "$share/doc/ibscope/docs"
install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE src/render/figure/DEJAVU-LICENSE.txt "$share/doc/ibscope"
install -m 644 docs/* "$share/doc/ibscope/docs"
install -D -m 644 packaging/grafana/ibscope.json "$share/ibscope/grafana/ibscope.json"
mkdir -p "$root/lib/systemd/system"
install -m 644 packaging/systemd/* "$root/lib/systemd/system"
install -D -m 644 packaging/logrotate/ibscope "$share/ibscope/logrotate/ibscope"
mkdir -p "$share/ibscope"
cp -R packaging/ansible "$share/ibscope"
install -D -m 644 packaging/spank/ibscope.c "$share/ibscope/spank/ibscope.c"
install -D -m 644 packaging/sudo/ibscope "$share/ibscope/sudo/ibscope"
install -D -m 644 packaging/sudo/node.toml "$share/ibscope/sudo/node.toml"
install -D -m 644 packaging/tmpfiles/ibscope.conf "$root/lib/tmpfiles.d/ibscope.conf"
packaging/sbom.sh "$program" >"$share/doc/ibscope/sbom.cdx.json"
# Packages must not depend on the umask.
find "$2" -type d -exec chmod 755 {} +
find "$2" -type f ! -path "$root/bin/*" -exec chmod 644 {} +
