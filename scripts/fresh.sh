#!/bin/bash
# fresh.sh [PIECE…]: prove the ways in on bare machines. A machine here is a chroot that debootstrap
# made, with git, make and nothing else; the commit that is checked out is cloned into it. Pieces:
#
#     demo12 demo13    `make demo` on Debian 12 and 13
#     deb12 deb13      `make deb` on one machine; on another `apt install` of its package, a run of
#                      two replicas, and `man diloco`
#     wheel12 wheel13  `pip install` of build/wheel (`make wheel` makes it) without a compiler, and a
#                      run of two replicas
#     test12 test13    `make test`, PyTorch included
#     clang12 clang13  program, tests and benchmarks by clang, warnings are errors
#     image12          the container image, and a run of two replicas in it
#     full             all of these
#
# Without PIECE the demos and Debian packages. It needs root and debootstrap, and says "left out" without
# them. FRESH_DIR (build/fresh) gets 1 to 5 GB for each machine, which is removed after its piece; the
# bare ones stay for the next time. FRESH_MIRROR is the archive (default: the one that this system
# uses). FRESH_DEMO=14 passes DEMO_ROUNDS=14 to the demos, for a quarter of their training. FRESH_BIND
# lists folders of this system that the machines may read, such as a folder of wheels that
# PIP_FIND_LINKS names.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p "${FRESH_DIR:-build/fresh}"
work=$(cd "${FRESH_DIR:-build/fresh}" && pwd)

say() { printf '\n== fresh: %s\n' "$*"; }
fail() { echo "fresh.sh: $*" >&2; exit 1; }

suite() { case $1 in *12) echo bookworm ;; *13) echo trixie ;; *) fail "there is no piece $1" ;; esac; }

mirror() {
    [ -z "${FRESH_MIRROR:-}" ] || { echo "$FRESH_MIRROR"; return; }
    apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 -E '/debian/?$' ||
        echo http://deb.debian.org/debian
}

# bare SUITE: make the machine that nothing was done to, unless it is there.
bare() {
    local base=$work/$1.bare
    [ ! -e "$base/made" ] || return 0
    say "a bare $1"
    rm -rf "$base"
    # with mounts of its own: for trixie it leaves /proc mounted
    unshare --mount debootstrap --variant=minbase --include=git,make,ca-certificates "$1" "$base" "$(mirror)" \
        >"$work/$1.log" 2>&1 || { tail -n 5 "$work/$1.log" >&2; fail "debootstrap $1"; }
    # the certificates by which this system reaches its archives are no part of a package
    cp -r /usr/local/share/ca-certificates/. "$base/usr/local/share/ca-certificates/"
    chroot "$base" update-ca-certificates >>"$work/$1.log" 2>&1
    # as in Debian's container images: no file of a package is synced to disk by itself
    echo force-unsafe-io >"$base/etc/dpkg/dpkg.cfg.d/unsafe-io"
    touch "$base/made"
}

# machine NAME SUITE: a copy of the bare one.
machine() {
    bare "$2"
    rm -rf "${work:?}/$1"
    cp -a "$work/$2.bare" "$work/$1"
}

# source_piece PIECE TARGET: `make TARGET` in a clone on a bare machine.
source_piece() {
    machine "$1" "$(suite "$1")"
    git -c advice.detachedHead=false clone --quiet --no-local "$root" "$work/$1/root/diloco"
    say "$1: make $2"
    SECONDS=0
    scripts/in_chroot.sh "$work/$1" sh -c "cd /root/diloco && make $2" || fail "$1: make $2 failed"
    echo "fresh: $1: make $2 took $SECONDS s from the clone"
}

deb_piece() {
    source_piece "$1" deb
    machine "$1-user" "$(suite "$1")"
    say "$1: apt install of the package, train, man"
    scripts/fresh_deb.sh "$work/$1-user" "$work/$1"/root/diloco/build/release/diloco_*.deb
    ! chroot "$work/$1-user" sh -c 'command -v cc' || fail "$1: the package brought a compiler"
    rm -rf "${work:?}/$1-user"
}

wheel_piece() {
    local wheel
    wheel=$(ls build/wheel/diloco-*.whl 2>/dev/null) || fail "$1: there is no wheel; make wheel"
    machine "$1" "$(suite "$1")"
    say "$1: pip install of the wheel, train"
    scripts/fresh_wheel.sh "$work/$1" "$wheel"
}

image_piece() {
    machine "$1" "$(suite "$1")"
    say "$1: the container image, train"
    scripts/fresh_image.sh "$work/$1"
}

run_piece() {
    case $1 in
    demo1[23]) source_piece "$1" "demo${FRESH_DEMO:+ DEMO_ROUNDS=$FRESH_DEMO}"
               [ -s "$work/$1/root/diloco/build/demo/loss.svg" ] || fail "$1: the demo drew no picture" ;;
    test1[23]) source_piece "$1" test ;;
    clang1[23]) source_piece "$1" "everything CC=clang CXX=clang++" ;;
    image12) image_piece "$1" ;;
    wheel1[23]) wheel_piece "$1" ;;
    deb1[23]) deb_piece "$1" ;;
    *) fail "there is no piece $1" ;;
    esac
    rm -rf "${work:?}/$1"
}

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null || ! unshare --mount --pid --fork true 2>/dev/null; then
    echo "left out: bare machines (needs root, debootstrap and namespaces)"
    exit 0
fi
case $* in
'') set -- demo12 demo13 deb12 deb13 ;;
full) set -- demo12 demo13 deb12 deb13 wheel12 wheel13 image12 clang12 clang13 test12 test13 ;;
esac
[ -z "$(git status --porcelain --untracked-files=no)" ] ||
    echo "fresh: changes that are not committed are no part of this"
for piece in "$@"; do
    run_piece "$piece"
done
say "passed: $*"
