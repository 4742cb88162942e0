#!/bin/sh
# sources.sh FOLDER: put the source packages of the wheel's libraries into FOLDER, by apt and with
# Debian's patches, from the mirrors that this machine's apt uses. Needs dpkg-dev. FOLDER/packages.tsv
# lists them: package, version.
#
# A security update whose source a mirror lacks is replaced by the release's own version, which is
# printed.
set -eu
packages="zlib libzstd xxhash expat openssl curl gmp nettle gnutls28 libmicrohttpd"
mkdir -p "$1/apt/sources.d" "$1/apt/lists/partial" "$1/apt/cache/archives/partial"
cd "$1"
here=$(pwd)

# apt's own lists, asked for sources instead of packages, in a state of their own
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ -f "$list" ] && grep -q debian "$list" || continue
    sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$list" >"apt/sources.d/${list##*/}"
done
[ -n "$(ls apt/sources.d)" ] || { echo "sources.sh: apt on this machine lists no Debian mirror" >&2; exit 1; }
apt() {
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$here/apt/sources.d" \
        -o Dir::State::lists="$here/apt/lists" -o Dir::Cache="$here/apt/cache" \
        -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
: >found.tsv
for package in $packages; do
    if ! apt source "$package" >"$package.log" 2>&1; then
        echo "sources.sh: the mirror lacks the newest source of $package; using that of $release"
        apt source "$package/$release" >"$package.log" 2>&1 || { cat "$package.log" >&2; exit 1; }
    fi
    dsc=$(ls -t "$package"_*.dsc | head -n 1)
    printf '%s\t%s\n' "$package" "$(sed -n 's/^Version: //p' "$dsc" | head -n 1)" >>found.tsv
done
mv found.tsv packages.tsv # complete
