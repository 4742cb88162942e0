#!/bin/sh
# fresh_wheel.sh ROOT WHEEL: install the wheel in the root file system ROOT, which has Python with venv
# and no compiler, and train two replicas that synchronise. Prints the times and the size. ROOT is a
# Debian that debootstrap made (python3-venv is installed where it is missing). Prints
# "left out" and exits with 77 where chroot cannot be used.
set -eu
root=$1 wheel=$2
. "$(dirname "$0")/fresh_lib.sh"
need python3 python3-venv
for tool in cc gcc clang cmake; do
    ! inside sh -c "command -v $tool" >/dev/null || fail "$root has $tool, so it proves nothing"
done
inside rm -rf /root/venv /root/wheel
inside python3 -m venv /root/venv
mkdir "$root/root/wheel"
cp "$wheel" "$root/root/wheel/"

begin=$(date +%s%3N)
inside env PIP_ROOT_USER_ACTION=ignore /root/venv/bin/pip install --quiet --no-index \
    --disable-pip-version-check "/root/wheel/$(basename "$wheel")" 2>"$root/tmp/pip.log" || { cat "$root/tmp/pip.log" >&2; fail "pip install"; }
installed=$(since "$begin")
two_replicas /root/venv/bin/diloco
trained=$(since "$begin")
inside /root/venv/bin/python -c '
import array, diloco, sys
diloco._c.lib()
w = array.array("f", [0] * 8)
with diloco.Run("/root/try/python", sync_every=5, rounds=2) as run:
    run.tensor("w", w)
    run.join()
    while not run.done:
        w[0] += 1
        run.step(loss=1)
assert len(diloco.run("/root/try/python").history()) == 2
print("import diloco:", diloco.__version__, "on Python", sys.version.split()[0])' || fail "import diloco"
printf '%s: wheel of %s kB; pip install %s ms; two replicas trained, synchronised and verified after %s ms\n' \
    "$(. "$root/etc/os-release" && echo "$PRETTY_NAME")" $(($(stat -c %s "$wheel") / 1000)) "$installed" "$trained"
