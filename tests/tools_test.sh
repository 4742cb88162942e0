#!/bin/sh
# tools_test.sh - tools and libraries that are too old or missing: `make` prints one sentence that names
# the version, the one that is needed and the way out, and builds nothing.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
fail() {
    echo "tools_test: $*" >&2
    [ ! -s "$work/said" ] || sed 's/^/  /' "$work/said" >&2
    exit 1
}

# pretend PROGRAM LINE: a program in $work/old that prints this and fails.
mkdir "$work/old" "$work/pc"
pretend() {
    printf '#!/bin/sh\necho "%s"\n[ "$*" = --version ]\n' "$2" >"$work/old/$1"
    chmod +x "$work/old/$1"
}

# refused TARGET LINES: `make TARGET` fails and prints at most this many lines, those of make left out.
refused() {
    if make -C "$root" --no-print-directory -o packages-build -o packages-test -o packages-python \
        BUILD="$work/build" "$1" >"$work/all" 2>&1; then
        fail "make $1 succeeds"
    fi
    grep -v '^make' "$work/all" >"$work/said" || true
    [ "$(wc -l <"$work/said")" -le "$2" ] || fail "make $1 prints more than $2 lines"
    [ ! -e "$work/build/build.ninja" ] || fail "make $1 goes on"
}

# says TEXT: in what make printed, its lines joined.
says() {
    tr '\n' ' ' <"$work/said" | tr -s ' ' | grep -qF -- "$1" || fail "it does not say: $1"
}

path=$PATH
pretend cmake 'cmake version 3.18.4'
PATH=$work/old:$path
for target in demo all; do
    refused $target 1
    says 'CMake 3.18.4 is too old, and 3.25 or later is needed'
    says "$work/old/cmake"
done
rm "$work/old/cmake"

# `make demo` says what follows and how long it takes before it builds. This build fails at once.
printf '#!/bin/sh\ncase $1 in --version) echo cmake version 3.30.0 ;; --build) exit 1 ;; esac\n' >"$work/old/cmake"
chmod +x "$work/old/cmake"
refused demo 1
says 'about a minute on 2 cores; then it trains three runs in about 90 seconds'
rm "$work/old/cmake"

pretend python3 'Python 3.7.3'
for target in tests torch sdist; do
    refused $target 1
    says 'Python 3.7.3 is too old, and 3.9 or later is needed'
done
rm "$work/old/python3"
PATH=$path

# Libraries: an old one before the others, and none at all.
printf 'Name: libcurl\nDescription: old\nVersion: 7.74.0\n' >"$work/pc/libcurl.pc"
PKG_CONFIG_PATH=$work/pc
export PKG_CONFIG_PATH
refused demo 8
says 'libcurl 7.74.0 is too old, and 7.85 or later is needed'
says '-DDILOCO_CLOUD=OFF'
rm -r "$work/build" "$work/pc/libcurl.pc"
PKG_CONFIG_LIBDIR=$work/pc
export PKG_CONFIG_LIBDIR
refused demo 8
says 'libxxhash is missing'
unset PKG_CONFIG_PATH PKG_CONFIG_LIBDIR

# Packages that are missing: where there is no apt-get, no right to use it, or no network.
mkdir "$work/few"
for program in dirname mktemp rm tail sh; do
    ln -s "$(command -v $program)" "$work/few/$program"
done
few() { # NAME LINES: a program of this name among the few
    printf '#!/bin/sh\n%s\n' "$2" >"$work/few/$1"
    chmod +x "$work/few/$1"
}
unprovided() {
    if PATH=$work/few /bin/sh "$root/scripts/packages.sh" deb >"$work/said" 2>&1; then
        fail "packages.sh installs without a package manager"
    fi
}
if "$root/scripts/packages.sh" build nothing >"$work/said" 2>&1; then
    fail "packages.sh takes a set that it does not have"
fi
says 'there is no set nothing'
few dpkg-query 'exit 1'
unprovided
says 'no apt-get; install what Debian calls: dpkg-dev file'
few apt-get 'echo Could not resolve the name; exit 100'
few id 'echo 1000'
unprovided
says 'only root can install packages, and sudo is not here; as root: apt-get install dpkg-dev file'
few id 'echo 0'
unprovided
says 'apt-get could not install: dpkg-dev file'
says 'is the network reachable?'
echo "tools_test: passed"
