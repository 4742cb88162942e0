#!/bin/sh
# diloco launch --on slurm where the controller enforces limits of an association and of a QOS, which slurmdbd has. Slurm
# refuses jobs beyond a limit of submitted jobs, and lets tasks wait for the limits of running ones. The launch says
# which, and continues once they are raised.
accounting=yes
limits=yes
rounds=20
. "$(dirname "$0")/slurm_lib.sh"
echo 'account = "tests"' >>tiny.toml

# limit TEXT NAME=VALUE…: set limits of the association, -1 for none, and wait until the controller's record has TEXT.
limit() {
    limit_text=$1
    shift
    sacctmgr --immediate modify user "$(id -un)" where account=tests set "$@" >>slurm/dbd.out 2>&1 ||
        fail "sacctmgr does not set $*: $(tail -n 3 slurm/dbd.out)"
    wait_for has_limit "$limit_text"
}
has_limit() {
    scontrol show assoc_mgr flags=assoc "users=$(id -un)" 2>/dev/null | sed -n '/Account=tests UserName=[a-z]/,$p' | grep -q "$1"
}
# limit_qos NAME=VALUE…: the same for the QOS that every job has. Its priority is the number of the change, since the
# controller does not show limits of users without jobs.
changes=0
limit_qos() {
    changes=$((changes + 1))
    sacctmgr --immediate modify qos normal set Priority=$changes "$@" >>slurm/dbd.out 2>&1 ||
        fail "sacctmgr does not set $*: $(tail -n 3 slurm/dbd.out)"
    wait_for has_change
}
has_change() { scontrol show assoc_mgr flags=qos qos=normal 2>/dev/null | grep -q "Priority=$changes\$"; }
has_reason() { # REASON: r1 waits for it
    diloco launch status cut >out 2>err && grep -q "^r1 *PENDING .* $1\$" out
}
no_job() { [ -z "$(squeue --noheader --states=all)" ] || fail "a refused replica was submitted: $(squeue --states=all)"; }

# An account that Slurm does not have, and more tasks than the association may submit.
limit 'MaxSubmitJobs=1(' MaxSubmitJobs=1
expect_error 3 'Invalid account' diloco launch tiny.toml --store cut --set launch.account=nobody
says '; set launch.account to an account that may use launch.queue'
expect_error 3 'sbatch: error: AssocMaxSubmitJobLimit; Batch job submission failed: ' diloco launch tiny.toml --store cut
says '; sacctmgr show assoc, or show qos, has the limits: ask for higher ones, start fewer replicas'
no_job
limit 'MaxSubmitJobs= ' MaxSubmitJobs=-1

# The same by the QOS, and by a QOS that refuses what exceeds a limit of one job.
limit_qos MaxSubmitJobsPerUser=1
expect_error 3 'sbatch: error: QOSMaxSubmitJobPerUserLimit; Batch job submission failed: ' \
    diloco launch tiny.toml --store cut
says '; sacctmgr show assoc, or show qos, has the limits: ask for higher ones, start fewer replicas'
limit_qos MaxSubmitJobsPerUser=-1 MaxTRESPerJob=cpu=1 Flags=DenyOnLimit
expect_error 3 'sbatch: error: QOSMaxCpuPerJobLimit; Batch job submission failed: ' diloco launch tiny.toml --store cut \
    --set launch.cpus=2
says '; a job exceeds a limit that sacctmgr show qos or show assoc has: ask for a higher one, or for less by launch.cpus'
no_job
limit_qos MaxTRESPerJob=cpu=-1 Flags=-1

# One task may run: the other waits, with Slurm's reason, and is not given up.
limit 'MaxJobs=1(' MaxJobs=1
expect 0 diloco launch tiny.toml --store cut --detach
wait_for has_reason 'AssocMaxJobsLimit, a limit of the association: .* raised (sacctmgr show assoc)'
launcher --set launch.lost_after=1
wait_for grep -q '^r1: PENDING for 1 s: AssocMaxJobsLimit, a limit of the association: .*\. It is not given up' launch.out
limit 'GrpTRES=cpu=1(' MaxJobs=-1 GrpTRES=cpu=1
wait_for has_reason 'AssocGrpCpuLimit, .*'

# A task that its user or an administrator holds says how it is released. The script's own user is Slurm's administrator.
waiting=$(squeue --noheader --states=PENDING --format=%i)
scontrol uhold "$waiting" || fail "scontrol does not hold $waiting"
wait_for has_reason 'JobHeldUser: held; scontrol release .*'
scontrol release "$waiting" && scontrol hold "$waiting" || fail "scontrol does not hold $waiting"
wait_for has_reason 'JobHeldAdmin: held by an administrator; scontrol release, by one, .*'
scontrol release "$waiting" || fail "scontrol does not release $waiting"

# The limits of the QOS, one of running jobs and one of processors.
limit_qos MaxJobsPerUser=1
limit 'GrpTRES=cpu=N(' GrpTRES=cpu=-1
wait_for has_reason 'QOSMaxJobsPerUserLimit, a limit of the QOS: .* raised (sacctmgr show qos)'
limit_qos MaxJobsPerUser=-1 GrpTRES=cpu=1
wait_for has_reason 'QOSGrpCpuLimit, a limit of the QOS: .*'

# Without the limits it starts, in the same generation.
limit_qos GrpTRES=cpu=-1
wait_for grep -q '^r1: RUNNING' launch.out
code=0
wait "$launcher" || code=$?
[ $code = 0 ] || fail "the launch ends with $code: $(cat launch.err launch.out)"
[ "$(digest cut)" = "$want" ] || fail "the launched run ends elsewhere"
! grep -q 'LOST' launch.out || fail "a replica that waited was given up: $(cat launch.out)"
