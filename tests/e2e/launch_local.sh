#!/bin/sh
# diloco launch on this machine: replicas outlive the launcher, the same command finds them, killed ones are
# started again, cancel stops them, and the run completes and verifies.
. "$(dirname "$0")/lib.sh"

# A run waits for a replica that is started again, however long that takes here.
sed -i 's/^rounds = 6/rounds = 80/; s/^patience = 5/patience = 1200/' tiny.toml
cat >>tiny.toml <<'TOML'
[launch]
poll = 0.1
TOML
expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)

# keeper NAME, alive NAME: by the files that docs/launch.md describes
keeper() { cat "$1/pid"; }
started() { [ -s "$1/pid" ]; }
ended() { [ -s "$1/exit" ]; }
folder() { # RANK GENERATION
    for f in cut.launch/diloco-*-r"$1"-g"$2"; do [ ! -d "$f" ] || echo "$f"; done
}
is_started() { # RANK GENERATION
    f=$(folder "$1" "$2")
    [ -n "$f" ] && started "$f"
}
# The process group of the replica itself: the keeper's child.
replica_of() { children "$(keeper "$(folder "$1" "$2")")" | cut -d' ' -f1; }
has_replica() { [ -n "$(replica_of "$1" "$2")" ]; }
state() { # RANK
    diloco launch status cut --json >status.json 2>/dev/null || return 1
    sed 's/.*"replicas":\[//' status.json | tr '{}' '\n\n' | sed -n "s/.*\"rank\":$1,.*\"state\":\"\([A-Z]*\)\".*/\1/p"
}
is_state() { [ "$(state "$1")" = "$2" ]; }
run_is_complete() {
    ended "$(folder 0 0)" && ended "$(folder 1 0)"
}
launcher() {
    diloco launch tiny.toml --store cut "$@" >launch.out 2>launch.err &
    launcher=$!
    started="$started $launcher"
}

# Nothing is sent in a dry run, and what is secret is not printed.
DILOCO_TEST_WORD=swordfish expect 0 diloco launch tiny.toml --store cut --dry-run \
    --set launch.secrets=DILOCO_TEST_WORD --set launch.env=COLOR=blue
grep -q "^diloco-newrunid-r0-g0: in .*/cut.launch: .*DILOCO_RANK=0 .*/diloco join $PWD/cut --rank 0 " out || fail "not the command"
# Replicas of one machine share its cores, unless the user says otherwise.
share=$(($(nproc) / 2))
[ "$share" -gt 0 ] || share=1
grep -q "/diloco join .* --set run.threads=$share " out || fail "not its share of the cores"
expect 0 diloco launch tiny.toml --store cut --dry-run --set run.threads=7
grep -q " --set run.threads=7 " out || fail "not the user's number of threads"
DILOCO_TEST_WORD=swordfish expect 0 diloco launch tiny.toml --store cut --dry-run \
    --set launch.secrets=DILOCO_TEST_WORD --set launch.env=COLOR=blue
grep -q "COLOR=blue DILOCO_TEST_WORD=\*\*\*" out || fail "not the variables"
! grep -q swordfish out err || fail "a secret is printed"
[ ! -e cut ] && [ ! -e cut.launch ] || fail "a dry run made something"

# A launcher that is killed leaves the replicas running; the same command finds them.
launcher
wait_for has_entry cut 3
kill -9 "$launcher"
wait_for gone "$launcher"
before=$(keeper "$(folder 0 0)")
kill -0 "$before" || fail "the replica died with its launcher"
launcher
wait_for has_entry cut 6
[ "$(keeper "$(folder 0 0)")" = "$before" ] || fail "a replica was started twice"

# A second launcher beside it starts nothing.
diloco launch tiny.toml --store cut --detach >out 2>err || fail "a second launcher fails"
[ "$(folder 0 1)$(folder 1 1)" = "" ] || fail "a second launcher has started replicas"

# kill -9 of a replica's processes, its keeper included: LOST, and started again.
# The process that trains holds the lock, so r1 is not over before that has ended, too.
wait_for has_replica 1 0
replica=$(replica_of 1 0)
holds_lock() {
    trainer=$(children "$replica" | cut -d' ' -f1)
    [ -n "$trainer" ] && [ "$(find "/proc/$trainer/fd" -lname "*/$(basename "$(folder 1 0)")/lock" 2>/dev/null)" != "" ]
}
holds_lock || fail "r1 would be over while a process of it runs"
kill -9 "$(keeper "$(folder 1 0)")" "-$replica"
wait_for is_started 1 1
# The same of the replica alone: its keeper reports the signal.
wait_for has_replica 0 0
kill -9 "-$(replica_of 0 0)"
wait_for is_started 0 1
grep -q '^r1: LOST: its process and the keeper of its process have ended' launch.out || fail "not said that r1 was lost"
wait_for grep -q '^r0: LOST: killed by signal 9 (Killed)' launch.out

code=0
wait "$launcher" || code=$?
[ $code = 0 ] || fail "the launch ends with $code: $(cat launch.err)"
grep -q '^the run is complete; ' launch.out || fail "not said that it is complete"
[ "$(digest cut)" = "$want" ] || fail "the launched run ends elsewhere"
expect 0 diloco launch collect cut
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded"
expect 0 diloco launch logs cut --rank 0
grep -q . out || fail "no output of r0"
long_output "$(find cut.launch -path "*-r0-*/log" | sort | tail -1)" diloco launch logs cut --rank 0

# On a complete run nothing is started.
expect 0 diloco launch tiny.toml --store cut
[ "$(folder 0 2)$(folder 1 2)" = "" ] || fail "replicas were started for a complete run"
expect 0 diloco launch cancel cut
[ "$(cat out)" = 'the run is complete, and no replica runs: nothing was stopped' ] || fail "not said that it is complete"
expect 0 diloco launch scale cut 3
[ "$(cat out)" = 'the run is complete, so no replica is started: nothing was changed' ] ||
    fail "a complete run is scaled: $(cat out)"
expect 0 diloco launch status cut
! grep -q 'cancelled' out || fail "a complete run is marked as cancelled: $(cat out)"

# A machine that is taken away sends SIGTERM to each process, more than once. The replica saves and ends by itself.
# It is started again.
diloco rm cut >/dev/null
rm -rf cut.launch
launcher
wait_for has_entry cut 3
wait_for has_replica 0 0
replica=$(replica_of 0 0)
all="$replica $(children "$replica")"
f=$(folder 0 0)
noticed() {
    # shellcheck disable=SC2086 # several; some have ended
    kill -TERM $all 2>/dev/null
    ended "$f"
}
wait_for noticed
[ "$(cat "$f/exit")" = "exit 130" ] || fail "a replica that was given notice ends with $(cat "$f/exit")"
wait_for grep -q '^r0: LOST: stopped by its machine, state saved' launch.out
code=0
wait "$launcher" || code=$?
[ $code = 0 ] || fail "after a notice the launch ends with $code: $(cat launch.err)"
[ "$(digest cut)" = "$want" ] || fail "after a notice the run ends elsewhere"

# Cancelled: no replica is left, its state is saved, and launch continues from there.
diloco rm cut >/dev/null
rm -rf cut.launch
[ ! -e cut ] || fail "rm left $(find cut)"
launcher
wait_for has_entry cut 3
expect 0 diloco launch cancel cut
code=0
wait "$launcher" || code=$?
[ $code = 130 ] || fail "a cancelled launch ends with $code"
grep -q 'the launch was cancelled' launch.err || fail "not said that it was cancelled"
expect 0 diloco launch collect cut
[ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled"
expect 0 diloco launch tiny.toml --store cut
[ "$(digest cut)" = "$want" ] || fail "launched again after cancel, the run ends elsewhere"

# A launcher that is asked to stop leaves the replicas, and says how to come back.
diloco rm cut >/dev/null
rm -rf cut.launch
launcher
wait_for has_entry cut 2
kill -TERM "$launcher"
code=0
wait "$launcher" || code=$?
[ $code = 130 ] || fail "an interrupted launch ends with $code"
grep -q 'the replicas run on. The same command follows them again: diloco launch tiny.toml --store cut' launch.err ||
    fail "not said how to come back: $(cat launch.err)"
wait_for run_is_complete
expect 0 diloco launch cancel cut # the book has no end of these replicas yet
grep -q '^the run is complete, and no replica runs' out || fail "not said that it is complete: $(cat out)"
expect 0 diloco launch collect cut
[ "$(digest cut)" = "$want" ] || fail "the replicas have not finished by themselves"

# A replica that cannot run is not started again; its output says why.
cat >false.sh <<'SH'
#!/bin/sh
echo no luck
exit 7
SH
chmod +x false.sh
rm -rf bad bad.launch
expect_error 1 'r0: FAILED: exit code 7' diloco launch tiny.toml --store bad --set launch.binary=false.sh
expect 0 diloco launch logs bad --rank 1
[ "$(cat out)" = 'no luck' ] || fail "not its output"
expect 0 diloco launch cancel bad
grep -q '^no replica was running' out || fail "replicas that failed before were asked to stop: $(cat out)"

# Restarts have an end.
cat >killed.sh <<'SH'
#!/bin/sh
kill -9 $$
SH
chmod +x killed.sh
rm -rf bad bad.launch
expect_error 1 'r0: LOST: killed by signal 9' diloco launch tiny.toml --store bad --replicas 1 \
    --set run.replicas=1 --set launch.binary=killed.sh --set launch.restarts=2
[ "$(find bad.launch -maxdepth 1 -name 'diloco-*-r0-g*' | wc -l)" = 3 ] || fail "not started three times"

# Its store did not answer: --detach does not wait for the pause, and says so.
printf '#!/bin/sh\nexit 4\n' >four.sh
chmod +x four.sh
detach() {
    expect 0 diloco launch tiny.toml --store four --replicas 1 --set run.replicas=1 --set launch.binary=four.sh \
        --set launch.poll=100 --detach
}
detach
has_failed() { diloco launch status four | grep -q '^r0 *FAILED '; }
wait_for has_failed
detach
grep -q '^r0: FAILED: exit code 4. It may be started again after a pause, which this command does not wait for: ' out ||
    fail "not said that r0 has a pause: $(cat out)"

# One that runs too long.
cat >long.sh <<'SH'
#!/bin/sh
exec sleep 600
SH
chmod +x long.sh
rm -rf bad bad.launch
expect_error 1 'r0: FAILED: stopped after launch.timeout' diloco launch tiny.toml --store bad \
    --set launch.binary=long.sh --set launch.timeout=0.2

# Costs by a table, and a budget.
cat >prices.toml <<'TOML'
date = "2026-01-31"
currency = "EUR"
machine_hour = 3600
TOML
rm -rf bad bad.launch
expect_error 3 'launch.budget is used up' diloco launch tiny.toml --store bad --replicas 1 --set run.replicas=1 \
    --set launch.binary=killed.sh --set launch.restarts=1000000 --set launch.prices=prices.toml --budget 0.3
expect 0 diloco launch status bad
grep -q '^machine time: .* EUR (3600.00 EUR an hour and replica, prices of 2026-01-31)$' out || fail "not the cost"

# The store is part of the cost: a run whose exchanges have used up the budget gets no replica.
printf 'date = "2026-01-31"\ncurrency = "EUR"\nmachine_hour = 0.001\nput_per_1000 = 1000\n' >dear.toml
rm -rf bad bad.launch
launch_dear() {
    diloco launch tiny.toml --store bad --set trainer.rounds=9000 --set launch.prices=dear.toml "$@"
}
expect 0 launch_dear --detach
has_recorded() {
    diloco launch status bad --json >out 2>err && grep -q '"requests_write":[1-9]' out
}
wait_for has_recorded
expect 0 diloco launch cancel bad
expect 0 diloco launch collect bad
expect_error 3 'launch.budget is used up (machine time 0.00, store ' launch_dear --budget 1
expect_error 3 'launch.budget is used up (machine time 0.00, store ' launch_dear --budget 1 --detach
expect 0 diloco launch status bad
grep -q '^budget: [1-9][0-9.]* of 1.00 EUR$' out || fail "not what the budget has paid: $(cat out)"
# Prices that the table lacks are named where a provider may ask for them.
expect 0 diloco launch status bad --json
grep -q '"unpriced":\["egress_per_gb","ingress_per_gb","get_per_1000"\]' out ||
    fail "not the prices that are missing: $(cat out)"

# The forecast: before the start by --step-seconds, in status by the speed of the replicas. 2 replicas have 1,600 steps.
echo 'put_per_1000 = 1000' >>prices.toml
expect 0 diloco launch status cut --set launch.prices=prices.toml
grep -q '^store: .* and [1-9][0-9]* requests of exchanges recorded so far, [1-9][0-9]*.00 EUR; other requests and bytes: about [1-9][0-9.]* EUR (estimate)$' out ||
    fail "not the cost of the store: $(cat out)"
expect 0 diloco launch status cut --set launch.prices=prices.toml --json
grep -q '"traffic":{"bytes_sent":[1-9][0-9]*,.*"requests_write":\([0-9]*\),.*"cost":\1[,}]' out ||
    fail "a write of this store costs 1 EUR: $(cat out)"
expect 0 diloco launch tiny.toml --store ahead --dry-run --step-seconds 3.6 --set launch.prices=prices.toml --budget 12000
grep -q '^# forecast: .* to the end, 11520.00 EUR of machine time and [1-9][0-9.]* EUR of the store (prices of 2026-01-31, without egress_per_gb, ingress_per_gb, get_per_1000); more than launch.budget$' out ||
    fail "not the forecast: $(cat out)"
expect 0 diloco launch tiny.toml --store ahead --dry-run --set launch.prices=prices.toml
grep -q '^# no forecast of the cost: .*; add --step-seconds S' out || fail "not said what is missing"
expect 0 diloco launch tiny.toml --store ahead --detach --set trainer.rounds=9000 --set launch.prices=prices.toml
has_forecast() {
    diloco launch status ahead >out 2>err && grep -q '^forecast: .* to the end, .* EUR of the store' out
}
wait_for has_forecast
diloco launch status ahead --json >out
grep -q '"forecast":{"wall_s":[0-9.]*,"machine_cost":[0-9.]*,"store_cost":[0-9.]*}' out || fail "not the forecast in JSON"
# The launch has its folder: another one is refused by name, except where machines would cost meanwhile.
expect_error 3 'launch.dir (--set) has no effect here' diloco launch status ahead --set launch.dir=elsewhere
expect_error 3 'launch.ssh_config (--set) has no meaning with the executor local' \
    diloco launch logs ahead --rank 0 --set launch.ssh_config=config
expect 0 diloco launch cancel ahead --set launch.dir=elsewhere
says 'launch.dir (--set) has no effect here'
expect 0 diloco launch collect ahead
! grep -q '^forecast' out || fail "a cancelled launch has a forecast"
expect_error 2 'launch.budget needs launch.prices' diloco launch tiny.toml --store no3 --budget 5

# The number of replicas is compared with the one that the run waits for: a new run is refused, an existing one
# gets a warning.
expect_error 3 '--replicas 1: the new run waits for more, run.replicas = 2 (' \
    diloco launch tiny.toml --store no4 --replicas 1
[ ! -e no4 ] || fail "a launch that was refused has created the run"
expect 0 diloco launch tiny.toml --store no4 --replicas 1 --set run.min_replicas=1 --prepare
says '--replicas 1 starts fewer: the first entry waits'
expect 0 diloco launch tiny.toml --store no4 --replicas 1 --dry-run
says 'the first entry of this run waits for 2 replicas (run.replicas), and with those of this launch it has 1'
expect 0 diloco launch tiny.toml --store no4 --dry-run
! grep -q 'the first entry' err || fail "a launch of all replicas gets a warning: $(cat err)"

# A senseless request is refused by name.
expect_error 2 'there is no executor sulrm; there are: local' diloco launch tiny.toml --on sulrm
expect_error 2 'local takes no place' diloco launch tiny.toml --on local://here
expect_error 3 'launch.gpus (--set) has no meaning with the executor local' \
    diloco launch tiny.toml --set launch.gpus=1
expect_error 2 '--replicas 4..2 is neither' diloco launch tiny.toml --replicas 4..2
expect_error 2 'launch.secrets holds names' diloco launch tiny.toml --store no --set launch.secrets=A=b
expect_error 2 'the environment has no NOT_THERE' diloco launch tiny.toml --store no2 --set launch.secrets=NOT_THERE
expect_error 1 'nothing was launched' diloco launch status whole
expect_error 3 'mem:// store exists in one process' diloco launch tiny.toml --store mem://x
