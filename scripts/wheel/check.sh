#!/bin/bash
# check.sh WHEEL PREFIX FOLDER…: the wheel is what its name says. auditwheel finds that it needs no newer
# glibc and no other library; each RUNPATH is relative; the licence of each library in
# PREFIX/packages.tsv is there; no file names a path in a FOLDER, which are those of the build. Needs
# auditwheel and patchelf on PATH.
set -euo pipefail
wheel=$1 prefix=$2
folders=("${@:3}")
fail() { echo "wheel: $(basename "$wheel"): $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

auditwheel show "$wheel" >"$work/show"
# the tag after "consistent with", on one line or two
tr '\n' ' ' <"$work/show" | grep -oE 'following platform tag: *"manylinux_2_([0-9]|1[0-9]|2[0-8])_x86_64"' >"$work/tag" ||
    { cat "$work/show" >&2; fail "auditwheel finds that it needs more than glibc 2.28"; }
sed 's/.*: */auditwheel: /' "$work/tag"

python3 -m zipfile -e "$wheel" "$work/out"
cd "$work/out"
for folder in "${folders[@]}"; do
    ! grep -rlF "$folder/" . >"$work/found" ||
        fail "it names the folder $folder of the build, in $(tr '\n' ' ' <"$work/found"): $(xargs cat <"$work/found" | grep -aoE -m 1 "[^[:space:][:cntrl:]]*$folder/[^[:space:][:cntrl:]]*" | head -n 1)"
done
n=0
while read -r file; do
    n=$((n + 1))
    runpath=$(patchelf --print-rpath "$file")
    case :$runpath in *:/*) fail "$file has the RUNPATH $runpath" ;; esac
done < <(find . -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print)
[ "$n" -ge 7 ] || fail "it has $n libraries and programs, not 7 or more"
for library in $(cut -f1 "$prefix/packages.tsv"); do
    case $library in ziglang) library=libcxx ;; esac
    [ -s diloco-*.dist-info/licenses/bundled/"$library" ] || fail "the licence of $library is not in it"
done
