#!/bin/sh
# packages.sh SET…: see that the Debian packages of these sets are installed; say which are
# missing and install them (as root, or through sudo). Sets: build, test, check, servers (which
# the tests start on loopback, and clients of our own; those of npm go into build/servers).
set -eu

list() {
    case $1 in
    build) echo gcc g++ libc6-dev make cmake ninja-build pkg-config libxxhash-dev zlib1g-dev \
                libtomlplusplus-dev libcurl4-openssl-dev libssl-dev libexpat1-dev \
                libmicrohttpd-dev libgnutls28-dev libzstd-dev ;;
    test)  echo libcmocka-dev python3 abigail-tools mandoc ;;
    check) echo clang clang-format clang-tidy libclang-rt-14-dev lld gcc-aarch64-linux-gnu \
                libc6-dev-arm64-cross qemu-user ;;
    servers) echo iproute2 ceph-mon ceph-osd ceph-common radosgw python3-swift curl awscli s3cmd rclone \
                prometheus etcd-server
             command -v npm >/dev/null || echo nodejs npm ;;
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
# The versions are those of tests/servers/package.json. Without them their tests are left out.
install_from_npm() {
    dir=$(cd "$(dirname "$0")/.." && pwd)
    cmp -s "$dir/tests/servers/package.json" "$dir/build/servers/package.json" && return
    echo "installing from npm into build/servers: azurite, s3rver"
    mkdir -p "$dir/build/servers"
    cp "$dir/tests/servers/package.json" "$dir/build/servers/package.json"
    if ! npm install --prefix "$dir/build/servers" --omit=optional --no-audit --no-fund \
        --loglevel=error >"$dir/build/servers/install.log" 2>&1; then
        tail -n 5 "$dir/build/servers/install.log" >&2
        rm "$dir/build/servers/package.json"
        echo "packages.sh: npm could not install them" >&2
    fi
}

install_from_apt() {
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
}

[ -z "$missing" ] || install_from_apt
case " $* " in
*" servers "*) install_from_npm ;;
esac
