#!/bin/sh
# in_chroot.sh ROOT COMMAND…: run a command in the root file system ROOT, as root. It has its own
# mounts and process ids, so that nothing stays mounted and no process runs after it. It may read the
# folders that FRESH_BIND lists, and gets the settings of proxies, of pip's wheel folders and of the
# certificates that pip and npm trust.
set -eu
root=$1
shift
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root \
    TERM=dumb DEBIAN_FRONTEND=noninteractive ROOT="$root" FRESH_BIND="${FRESH_BIND:-}" ${CI:+CI="$CI"} \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    ${PIP_FIND_LINKS:+PIP_FIND_LINKS="$PIP_FIND_LINKS"} \
    ${PIP_CERT:+PIP_CERT="$PIP_CERT"} \
    ${NODE_EXTRA_CA_CERTS:+NODE_EXTRA_CA_CERTS="$NODE_EXTRA_CA_CERTS"} \
    unshare --mount --pid --fork --kill-child sh -euc '
        mount --bind "$ROOT" "$ROOT" # a mount point, as / of a machine is: ip netns needs one
        mount -t proc proc "$ROOT/proc"
        mount --rbind /dev "$ROOT/dev"
        mount --rbind /sys "$ROOT/sys"
        for folder in $FRESH_BIND; do
            mkdir -p "$ROOT$folder"
            mount --bind -o ro "$folder" "$ROOT$folder"
        done
        exec chroot "$ROOT" "$@"' sh "$@"
