#!/bin/sh
# The README's commands work as they stand there. A block that begins with
#
#     ```sh runnable                   is run, in order, and must succeed
#     ```sh runnable &                 is run beside what follows, and must have succeeded at the end
#     ```sh runnable & until FILE      likewise; what follows waits until the file is there
. "$(dirname "$0")/lib.sh"

awk '/^```sh runnable/ { n++; open = 1; head = $0; sub(/^```sh runnable */, "", head)
                         print head >("block" n ".head"); next }
     /^```/ { open = 0 }
     open { print >("block" n) }' "$project/README.md"
[ -e block4 ] || fail "the README has no runnable blocks"

n=1
beside=
while [ -e block$n ]; do
    read -r background _ file <block$n.head || true
    if [ "$background" = '&' ]; then
        sh -eu block$n >block$n.out 2>&1 &
        beside="$beside $!:$n"
        started="$started $!"
        [ -z "$file" ] || wait_for test -e "$file"
    else
        sh -eu block$n >block$n.out 2>&1 || fail "$(cat block$n block$n.out)"
    fi
    n=$((n + 1))
done
for job in $beside; do
    wait "${job%:*}" || fail "$(cat block"${job#*:}" block"${job#*:}".out)"
done
grep -q '^verified: 8 entries' block2.out || fail "the run did not verify"
grep -q '^entry .*: 2 replicas' block4.out || fail "the second machine did not take part"
