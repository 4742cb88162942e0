#!/bin/sh
# offline_test.sh BUILD: the program built there with -DDILOCO_CLOUD=OFF links no library of the network
# (STO-2), trains over a folder, and refuses the other stores by name. Builds all of it: for `make soak`.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
cmake -S "$root" -B "$build" -G Ninja -DDILOCO_CLOUD=OFF >"$build/configure.log"
cmake --build "$build" --target diloco >"$build/build.log" || { tail -20 "$build/build.log"; exit 1; }

set -- "$build/diloco"
. "$root/tests/e2e/lib.sh"
ldd "$build/diloco" >linked
! grep -E 'curl|ssl|crypto|expat|microhttpd|gnutls|aws|google|azure' linked || fail "it links that"
expect 0 diloco train tiny.toml --store folder --quiet
expect 0 diloco verify folder
for scheme in http https s3 gs az etcd etcds; do
    expect_error 3 "$scheme:// stores are left out of this program" diloco doctor "$scheme://host/run"
done
echo "without network stores: $(wc -l <linked) libraries, a run, and the refusals"
