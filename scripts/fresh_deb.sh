#!/bin/sh
# fresh_deb.sh ROOT DEB: install the Debian package with apt in the root file system ROOT, train two
# replicas that synchronise, and read the manual.
set -eu
root=$1 deb=$2
. "$(dirname "$0")/fresh_lib.sh"
need man-db
inside sh -c 'apt-get -qq purge -y diloco >/dev/null 2>&1 || true'
cp "$deb" "$root/tmp/diloco.deb"
# minimal roots leave manuals out; this one shall keep ours
printf 'path-include=/usr/share/man/*\n' >"$root/etc/dpkg/dpkg.cfg.d/zz-man"
begin=$(date +%s%3N)
inside sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends /tmp/diloco.deb' >"$root/tmp/apt.log" 2>&1 ||
    { tail -n 20 "$root/tmp/apt.log" >&2; fail "apt install"; }
installed=$(since "$begin")
two_replicas diloco
inside sh -c 'MANPAGER=cat man diloco' | grep -q 'diloco - training' || fail "man diloco"
printf '%s: package of %s kB; apt install %s ms; two replicas trained, synchronised and verified after %s ms\n' \
    "$(. "$root/etc/os-release" && echo "$PRETTY_NAME")" $(($(stat -c %s "$deb") / 1000)) "$installed" "$(since "$begin")"
