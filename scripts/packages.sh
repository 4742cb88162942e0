#!/bin/sh
# packages.sh SET…: see that the Debian packages of these sets are installed; say which are
# missing and install them (as root, or through sudo). Sets: build, test, check, servers (which
# the tests start on loopback).
set -eu

list() {
    case $1 in
    build) echo gcc g++ libc6-dev make cmake ninja-build pkg-config libxxhash-dev \
                libtomlplusplus-dev libcurl4-openssl-dev libssl-dev libexpat1-dev ;;
    test)  echo libcmocka-dev python3 ;;
    check) echo clang clang-format clang-tidy libclang-rt-14-dev gcc-aarch64-linux-gnu \
                libc6-dev-arm64-cross qemu-user ;;
    servers) echo ceph-mon ceph-osd ceph-common radosgw curl ;;
    *)     echo "packages.sh: no set $1" >&2; exit 2 ;;
    esac
}

missing=
for set in "$@"; do
    for package in $(list "$set"); do
        status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
        [ "$status" = "install ok installed" ] || missing="$missing $package"
    done
done
[ -n "$missing" ] || exit 0

echo "installing$missing"
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root apt-get update && $as_root apt-get install -y --no-install-recommends $missing; } \
    >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "packages.sh: apt could not install$missing" >&2
    exit 1
fi
