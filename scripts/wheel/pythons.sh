#!/bin/bash
# pythons.sh WHEEL: install the wheel in a new virtual environment of each Python from 3.9 to 3.13 that
# this machine has, with no network. In each one the package finishes a run of two entries, and the
# program verifies it. PYTHONS lists programs or paths (default: python3.9 to python3.13). A Python that
# is missing is left out, which is printed; without any the exit status is 77.
set -euo pipefail
wheel=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset DILOCO_LIBRARY PYTHONPATH
fail() { echo "pythons: $*" >&2; exit 1; }

tried=0
for python in ${PYTHONS:-python3.9 python3.10 python3.11 python3.12 python3.13}; do
    "$python" -c 'import ensurepip, venv' 2>/dev/null || { echo "left out: the wheel in $python (it is missing, or has no venv)"; continue; }
    "$python" -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --no-index --disable-pip-version-check "$wheel" || fail "$python: pip install"
    "$work/venv/bin/python" - <<'P' || fail "$python: a run"
import array, diloco, sys
w = array.array("f", [0] * 8)
with diloco.Run("run", sync_every=5, rounds=2) as run:
    run.tensor("w", w)
    run.join()
    while not run.done:
        w[0] += 1
        run.step(loss=1)
assert len(diloco.run("run").history()) == 2
print("pythons:", diloco.__version__, "on Python", sys.version.split()[0])
P
    "$work/venv/bin/diloco" verify run >"$work/said" || fail "$python: diloco verify"
    rm -rf "$work/venv" run run.local
    tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || exit 77
