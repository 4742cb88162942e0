#!/bin/sh
# diloco launch --on slurm on a cluster with accounting: slurmdbd and a MariaDB server, beside the Slurm of the other
# tests. The controller forgets jobs that a person has cancelled, and the launcher still knows that from the database.
accounting=yes
. "$(dirname "$0")/slurm_lib.sh"

launcher
wait_for grep -q '^r0: RUNNING' launch.out
wait_for grep -q '^r1: RUNNING' launch.out
id=$(task 0 0)
both="$id,$(task 1 0)"
wait_for has_replica "$(basename "$(folder 0 0)")"
wait_for has_replica "$(basename "$(folder 1 0)")"

# While the launcher is held, the jobs are cancelled, their replicas save and end, and the controller forgets them.
kill -STOP "$launcher"
scancel --user="$(id -un)"
accounted() { [ "$(sacct --allocations --noheader --jobs="$both" --format=State%20 | sort -u | tr -d ' ')" = "$1" ]; }
wait_for accounted CANCELLEDby"$(id -u)"
are_over() { [ -z "$(squeue --noheader 2>/dev/null)" ]; }
wait_for are_over
kill -TERM "$controller"
wait_for gone "$controller"
slurmctld -D -i -c >slurm/ctld.out 2>&1 &
controller=$!
started="$started $controller"
wait_for nodes_are idle
[ -z "$(squeue --noheader --states=all)" ] || fail "the controller has not forgotten its jobs"
kill -CONT "$launcher"

# The launcher does not start them again: a person has cancelled them.
code=0
wait "$launcher" || code=$?
[ $code = 1 ] || fail "a launch whose jobs were cancelled by another ends with $code: $(cat launch.err)"
grep -q 'r0: CANCELLED' launch.err || fail "not said that r0 was cancelled: $(cat launch.err launch.out)"
[ -z "$(folder 0 1)" ] || fail "a cancelled replica was started again"
expect 0 diloco launch tiny.toml --store cut
[ "$(digest cut)" = "$want" ] || fail "launched again, the run ends elsewhere"
