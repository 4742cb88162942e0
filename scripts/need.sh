#!/bin/sh
# need.sh TOOL…: check that cmake or python3 in PATH is new enough. For one that is too old it prints
# one sentence and fails; a tool that is missing is left to packages.sh.
set -eu
cd "$(dirname "$0")/.."

# at_least VERSION WANTED
at_least() {
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

# check NAME VERSION WANTED WAY-OUT
check() {
    [ -n "$2" ] && ! at_least "$2" "$3" || return 0
    echo "diloco: $1 $2 is too old, and $3 or later is needed; $4" >&2
    exit 1
}

for tool in "$@"; do
    found=$(command -v "$tool") || continue
    have=$("$tool" --version 2>&1 | sed -n 's/^[A-Za-z]* *\(version \)\{0,1\}\([0-9][0-9.]*\).*/\2/p' | head -n 1)
    case $tool in
    cmake)
        wanted=$(sed -n 's/^cmake_minimum_required(VERSION \([0-9.]*\)).*/\1/p' CMakeLists.txt)
        check CMake "$have" "$wanted" "$found is used: put a newer one first in PATH (pip install cmake)" ;;
    python3)
        wanted=$(sed -n 's/^requires-python = ">=\([0-9.]*\)".*/\1/p' python/pyproject.toml)
        check Python "$have" "$wanted" "$found is used: put a newer one first in PATH" ;;
    *) echo "need.sh: it knows nothing of $tool" >&2; exit 2 ;;
    esac
done
