#!/bin/bash
# release.sh VERSION [OUT]: build the release of the commit that is checked out into OUT
# (build/release-VERSION). It has a Debian package, a wheel, a source distribution for pip, a source
# archive, a bill of materials (SPDX) and SHA256SUMS. docs/releasing.md says when.
#
# Everything is dated with the commit's date and built from the committed files in a folder of its
# own. So two builds of one commit with the same tools give equal bytes.
set -euo pipefail
version=$1
cd "$(dirname "$0")/.."
root=$(pwd)
out=${2:-build/release-$version}
fail() { echo "release: $*" >&2; exit 1; }

[ -n "$version" ] || fail "no version is given. Run: make release VERSION=0.2.0"
scripts/agree.py "$version" || fail "the places above must name version $version first"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed, and a release is built from a commit"
! grep -q "^## $version - unreleased" CHANGELOG.md || echo "release: CHANGELOG.md calls $version unreleased; give it a date before the tag"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C.UTF-8
umask 022
rm -rf "$out"
mkdir -p "$out" build
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "release: source archive"
git archive --format=tar --prefix="diloco-$version/" HEAD | gzip -n9 >"$out/diloco-$version-source.tar.gz"
tar -xf "$out/diloco-$version-source.tar.gz" -C "$work"
cd "$work/diloco-$version"

echo "release: Debian package"
CFLAGS="-ffile-prefix-map=$PWD=." CXXFLAGS="-ffile-prefix-map=$PWD=." cmake -S . -B "$work/build" -G Ninja \
    -DDILOCO_TESTS=OFF -DDILOCO_BENCH=OFF >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "cmake"; }
cmake --build "$work/build" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "the build"; }
scripts/agree.py "$version" "$work/build/diloco" || fail "the places above must name version $version first"
cmake --build "$work/build" --target deb >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "the Debian package"; }
cp "$work"/build/diloco_*.deb "$out/"

echo "release: source distribution"
python3 - "$out" <<'P'
import sys
sys.path.insert(0, "python")
import _build
print(_build.build_sdist(sys.argv[1]))
P

echo "release: wheel"
export DILOCO_WHEEL_LIBRARIES=${DILOCO_WHEEL_LIBRARIES:-$root/build/wheel-libraries}
scripts/wheel/wheel.sh "$out"

echo "release: bill of materials and sums"
python3 scripts/sbom.py "$version" "$DILOCO_WHEEL_LIBRARIES/prefix/packages.tsv" "$out"/* >"$work/sbom"
mv "$work/sbom" "$out/diloco-$version.spdx.json"
cd "$out"
sha256sum ./* >"$work/sums"
sed 's,\./,,' "$work/sums" >SHA256SUMS
ls -l "$out"
