#!/bin/bash
# fresh.sh [PIECE…]: prove the ways in on bare machines. A machine here is a chroot that debootstrap
# made, with git, make and nothing else; the commit that is checked out is cloned into it. Pieces:
#
#     demo12 demo13    `make demo` on Debian 12 and 13
#     deb12 deb13      `make deb` on one machine, `apt install` of its package on another, then
#                      `diloco train` and `man diloco` there
#     test12 test13    `make test`, PyTorch included
#
# Without PIECE all but the tests run; the piece "full" is all of these and test12. It needs root and debootstrap, and says
# "left out" without them. FRESH_DIR (build/fresh) gets 1 to 5 GB for each machine, which is removed
# after its piece; the bare ones stay for the next time. FRESH_MIRROR is the archive (default: the
# one that this system uses). FRESH_BIND lists folders of this system that the machines may read,
# such as a folder of wheels that PIP_FIND_LINKS names.
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

# bare SUITE: the folder of a machine that nothing was done to.
bare() {
    local base=$work/$1.bare
    if [ ! -e "$base/made" ]; then
        rm -rf "$base"
        debootstrap --variant=minbase --include=git,make,ca-certificates "$1" "$base" "$(mirror)" \
            >"$work/$1.log" 2>&1 || { tail -n 5 "$work/$1.log" >&2; fail "debootstrap $1"; }
        # what this system needs to reach its archives is no part of a package
        cp /etc/resolv.conf /etc/hosts "$base/etc/"
        cp -r /usr/local/share/ca-certificates/. "$base/usr/local/share/ca-certificates/"
        chroot "$base" update-ca-certificates >>"$work/$1.log" 2>&1
        touch "$base/made"
    fi
    echo "$base"
}

# machine NAME SUITE: a copy of the bare one.
machine() {
    local base
    base=$(bare "$2")
    rm -rf "${work:?}/$1"
    cp -a "$base" "$work/$1"
}

# on NAME COMMAND: run it by sh in the machine, as root, with mounts and processes that end with it.
on() {
    local name=$1 command=$2
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8 \
        ${CI:+CI="$CI"} ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        ${PIP_FIND_LINKS:+PIP_FIND_LINKS="$PIP_FIND_LINKS"} FRESH_BIND="${FRESH_BIND:-}" \
        unshare --mount --pid --fork sh -euc '
            mount --make-rprivate /
            mount -t proc proc "$0/proc"
            mount --rbind /dev "$0/dev"
            mount --rbind /sys "$0/sys"
            for folder in $FRESH_BIND; do
                mkdir -p "$0$folder"
                mount --bind -o ro "$folder" "$0$folder"
            done
            exec chroot "$0" sh -euc "$1"' "$work/$name" "$command"
}

# clone NAME: this commit, in /root/diloco of the machine.
clone() {
    git -c advice.detachedHead=false clone --quiet --no-local "$root" "$work/$1/root/diloco"
}

# source PIECE TARGET: `make TARGET` in a clone on a bare machine.
source_piece() {
    machine "$1" "$(suite "$1")"
    clone "$1"
    say "$1: make $2"
    SECONDS=0
    on "$1" "cd /root/diloco && make $2" || fail "$1: make $2 failed"
    echo "fresh: $1: make $2 took $SECONDS s from the clone"
}

deb_piece() {
    source_piece "$1" deb
    machine "$1-user" "$(suite "$1")"
    cp "$work/$1"/root/diloco/build/release/diloco_*.deb "$work/$1-user/root/"
    say "$1: apt install of the package, train, man"
    on "$1-user" '
        export DEBIAN_FRONTEND=noninteractive
        rm -f /etc/dpkg/dpkg.cfg.d/*
        apt-get update -q >/dev/null
        apt-get install -qy --no-install-recommends man-db /root/diloco_*.deb >/root/install.log 2>&1 ||
            { tail -n 20 /root/install.log; exit 1; }
        ! command -v cc
        cd /root
        yes "a text to train on, of one line," | head -n 5000 >text.txt
        printf "[run]\nreplicas = 2\n[trainer]\nrounds = 2\nlocal_steps_per_round = 2\n[parameters.model]\nlayers = 1\nchannels = 32\n[data]\ntrain_path = \"text.txt\"\n" >run.toml
        diloco train run.toml
        diloco verify runs/run
        man diloco | grep -q DiLoCo' || fail "$1: the package does not work on a bare machine"
    rm -rf "${work:?}/$1-user"
}

run_piece() {
    case $1 in
    demo1[23]) source_piece "$1" demo
               [ -s "$work/$1/root/diloco/build/demo/loss.svg" ] || fail "$1: the demo drew no picture" ;;
    test1[23]) source_piece "$1" test ;;
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
full) set -- demo12 demo13 deb12 deb13 test12 ;;
esac
[ -z "$(git status --porcelain --untracked-files=no)" ] ||
    echo "fresh: changes that are not committed are no part of this"
for piece in "$@"; do
    run_piece "$piece"
done
say "passed: $*"
