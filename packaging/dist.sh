#!/bin/sh
# Packages a built program as a tarball, a .deb and, if rpmbuild is installed, an .rpm. The same
# program gives the same bytes.
# usage: packaging/dist.sh PROGRAM FOLDER
set -eu
cd "$(dirname "$0")/.."
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
version=$("$program" --version | cut -d' ' -f2)
arch=$(uname -m)
# Packages contain their build time: SOURCE_DATE_EPOCH, or the time of the last commit.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
packaging/stage.sh "$program" "$stage"
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

name=ibscope-$version-linux-$arch
tar --create --gzip --file "$out/$name.tar.gz" --directory "$stage" --sort=name --owner=0 --group=0 --numeric-owner \
	--mtime="@$SOURCE_DATE_EPOCH" --transform "s,^\./usr,$name," ./usr
echo "$out/$name.tar.gz"

if command -v dpkg-shlibdeps >/dev/null; then
	deb=$work/deb
	deb_arch=$(dpkg --print-architecture)
	# Packages of the libraries that the program links. A static program has none.
	mkdir -p "$work/sources/debian"
	echo 'Source: ibscope' >"$work/sources/debian/control"
	deb_depends=$(cd "$work/sources" && dpkg-shlibdeps -O "$stage/usr/bin/ibscope" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
	cp -a "$stage" "$deb"
	mkdir "$deb/DEBIAN"
	mv "$deb/usr/share/doc/ibscope/LICENSE-MIT" "$deb/usr/share/doc/ibscope/copyright"
	{
		echo "Package: ibscope"
		echo "Version: $version"
		echo "Architecture: $deb_arch"
		echo "Maintainer: ibscope developers <ibscope@localhost>"
		echo "Section: net"
		echo "Priority: optional"
		echo "Installed-Size: $(du -sk "$stage" | cut -f1)"
		[ -z "$deb_depends" ] || echo "Depends: $deb_depends"
		echo "Recommends: openssh-client"
		echo "Suggests: otf2-tools, infiniband-diags, slurm-client"
		echo "Description: packet-capture traffic analyzer for InfiniBand fabrics"
		echo " Communication matrices, timelines, latencies and health of MPI jobs, from packet"
		echo " captures alone."
	} >"$deb/DEBIAN/control"
	(cd "$deb" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$deb/DEBIAN/md5sums"
	find "$deb" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz --build "$deb" "$out/ibscope_${version}_$deb_arch.deb" >/dev/null
	echo "$out/ibscope_${version}_$deb_arch.deb"
else
	echo "no dpkg-shlibdeps: no .deb (Debian: apt install dpkg-dev)" >&2
fi

if command -v rpmbuild >/dev/null; then
	rpmbuild --quiet -bb --define "_topdir $work/rpm" --define "_rpmdir $out" --define "_rpmfilename ibscope-$version-1.$arch.rpm" \
		--define "stage $stage" --define "ibscope_version $version" --define "_buildhost localhost" \
		--define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" packaging/ibscope.spec
	echo "$out/ibscope-$version-1.$arch.rpm"
else
	echo "no rpmbuild: no .rpm (Debian: apt install rpm)" >&2
fi
