#!/bin/sh
# tidy.sh BUILD NODES: clang-tidy over the sources, as a build of clang's compiles them. Its
# analyzer follows a function's paths for NODES nodes; 225000 is its own limit and takes some five
# times as long as 30000.
set -eu
cd "$(dirname "$0")/.."
git ls-files 'src/*.c' | grep -v '_test\.c$' |
    xargs -P "$(nproc)" -n 4 clang-tidy -p "$1" --quiet --warnings-as-errors='*' \
        --extra-arg=-Xclang --extra-arg=-analyzer-config \
        --extra-arg=-Xclang --extra-arg="max-nodes=$2" 2>/dev/null
