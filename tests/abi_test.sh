#!/bin/sh
# abi_test.sh [--renew] - the binary interface of include/diloco is that of tests/abi/diloco.abi: no
# function gone or of other arguments, no struct, enumerator or callback changed. New functions are
# no change, nor are members after those that a struct had (include/diloco/status.h).
#
# The compared objects are compiled from the headers alone: a pointer to each function that they declare,
# and by it all types that callers see. That the libraries have these functions, and show no others,
# is what install_test.sh asks.
#
# tests/abi_test.sh --renew writes a new baseline: when a release has added something, or when the
# interface is to change (a new series of versions). The change of the baseline shows in review what callers will meet. Needs
# abigail-tools; without them the test is left out.
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
base=$source/tests/abi/diloco.abi
command -v abidw >/dev/null && command -v abidiff >/dev/null ||
    { echo "left out: the binary interface (no abigail-tools)"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "left out: the binary interface (its baseline is of x86-64)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

describe() { # folder with include/ (below this one: paths are in the output), output
    cat "$1"/include/diloco/*.h | tr '\n' ' ' | sed 's/;/;\n/g' | sed -n 's/.*DILOCO_API//p' |
        sed -n 's/[^(]*[ *]\(diloco_[a-z0-9_]*\)(.*/\1/p' | sort -u >names
    [ "$(wc -l <names)" -gt 50 ] || { echo "abi_test: no declarations were read" >&2; exit 1; }
    {
        echo '#include <diloco/diloco.h>'
        echo '#include <diloco/train.h>'
        sed 's/.*/__typeof__(\&&) abi_&;/' names
    } >interface.c
    ${CC:-cc} -std=gnu11 -g -gdwarf-4 -fPIC -shared -I"$1/include" interface.c -o interface.so
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-write-default-sizes interface.so >"$2"
}

mkdir here && cp -r "$source/include" here
describe here now.abi
if [ "${1-}" = --renew ]; then
    cp now.abi "$base"
    exit
fi

# Of abidiff's report on the types that have changed, only members at or after the old size pass.
same() {
    abidiff --no-added-syms --leaf-changes-only "$@" >report || [ $? = 4 ] || return 1
    awk '
        /^Removed\/Changed\/Added/ { if (!/ 0 Removed, 0 Changed/) exit bad = 1; next }
        /^(Leaf changes|Changed leaf types) summary/ || /^$/ || /^\x27struct .*changed:$/ { next }
        /^  type size changed from/ { size = $5; next }
        /^  [0-9]+ data member insertions?:$/ { next }
        /^    .*, at offset [0-9]+ \(in bits\)/ {
            sub(/.*, at offset /, ""); if ($1 + 0 < size) exit bad = 1; next
        }
        { exit bad = 1 }
        END { exit bad }' report
}
if ! same "$base" now.abi; then
    cat report >&2
    echo "abi_test: the interface has changed (above): if that is meant, see the head of this file" >&2
    exit 1
fi

# It would notice, and lets grow what may:
changed() { # sed script, header
    rm -rf other && mkdir other && cp -r "$source/include" other
    sed -i "$1" "other/include/diloco/$2"
    describe other other.abi
    same now.abi other.abi
}
unnoticed() { echo "abi_test: $1 goes unnoticed" >&2; exit 1; }
! changed 's/^    uint64_t samples;/    uint32_t samples;/' run.h || unnoticed "another type"
! changed 's/^    uint64_t samples;/    int more;\n&/' run.h || unnoticed "a member between"
! changed 's/^    uint64_t tokens;//' run.h || unnoticed "a member gone"
! changed 's/DILOCO_BUFFER = 2/DILOCO_BUFFER = 7/' tensor.h || unnoticed "an enumerator"
! changed 's/diloco_run_save(diloco_run \*run)/diloco_run_save(diloco_run *run, int how)/' run.h ||
    unnoticed "an argument"
changed 's/^} diloco_step_report;/    double more;\n&/' run.h ||
    { cat report >&2; echo "abi_test: a struct may grow at its end" >&2; exit 1; }
