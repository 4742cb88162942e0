#!/bin/sh
# The README's commands work as they are printed (blocks.sh).
. "$(dirname "$0")/lib.sh"
. "$project/tests/e2e/blocks.sh"

run_blocks "$project/README.md"
grep -q '^verified: 30 entries' block*.out || fail "the run did not verify"
grep -q '^entry .*: 2 replicas' block*.out || fail "the second machine did not take part"
