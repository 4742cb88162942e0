#!/bin/sh
# large.sh PROGRAM N_PARAMETERS: large.c in a folder that goes away with it (SWM-34). A parameter
# takes 20 bytes of memory and 16 of the folder, TMPDIR's; without these it is left out (exit 77).
set -eu
available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
if [ "$available" -lt $(($2 / 1024 * 21 + 200000)) ]; then
    echo "left out: a model of $2 parameters: 21 bytes of memory each are not available"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" "$2" "$work/run"
