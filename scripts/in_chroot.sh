#!/bin/sh
# in_chroot.sh ROOT COMMAND…: run a command in the root file system ROOT, as root. It has its own /proc
# and its own process ids, so that nothing keeps running after it, and /tmp as HOME.
set -eu
root=$1
shift
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
exec unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" \
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive \
    chroot "$root" "$@"
