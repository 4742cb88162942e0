#!/bin/sh
# Rounds of several lengths (trainer.local_steps_phases): the due points are where the option puts
# them, and a killed run resumes to the same bits.
. "$(dirname "$0")/lib.sh"

sed -i 's/^local_steps_per_round = 20/local_steps_per_round = 6\nlocal_steps_phases = "2x4, 2x12"/' tiny.toml

# positions STORE: of all contributions of r0.
positions() {
    diloco log "$1" --events |
        sed -n 's/.*"event":"contribution","replica":"r0".*"position":\([0-9]*\).*/\1/p' | tr '\n' ' '
}

expect 0 diloco train tiny.toml --store whole --quiet
[ "$(positions whole)" = "4 8 20 32 38 44 " ] || fail "contributions at $(positions whole)"

# The second of two fragments is due in the middle of the next round.
expect 0 diloco train tiny.toml --store two --quiet --set server.diloco.fragments=2
[ "$(positions two)" = "4 6 8 14 20 26 32 35 38 41 44 47 " ] || fail "contributions at $(positions two)"
expect 0 diloco verify two

diloco train tiny.toml --store cut --quiet >out 2>err &
started=$!
wait_for has_entry cut 1
kids=$(children "$started")
# shellcheck disable=SC2086 # several; one may be gone
kill -9 "$started" $kids 2>/dev/null || true
wait "$started" || true
for pid in $kids; do wait_for gone "$pid"; done
expect 0 diloco train tiny.toml --store cut --quiet
[ "$(digest cut)" = "$(digest whole)" ] || fail "the resumed run has other bits"

expect_error 2 ROUNDSxSTEPS diloco train tiny.toml --store none --set trainer.local_steps_phases=4x
expect 0 diloco plan tiny.toml --gbit 1
