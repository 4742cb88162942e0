#!/bin/sh
# The README's commands work as they are printed (blocks.sh).
. "$(dirname "$0")/lib.sh"
. "$project/tests/e2e/blocks.sh"

# Here `diloco init` writes a configuration with batches of one sequence instead of four. The commands
# print nothing that depends on it, and train in less time. init.sh trains with the four.
rm "$work/bin/diloco"
cat >"$work/bin/diloco" <<EOF
#!/bin/sh
[ "\$1" = init ] || exec "$program" "\$@"
"$program" "\$@" && sed -i 's/^batch_size = 4\$/batch_size = 1/' run.toml
EOF
chmod +x "$work/bin/diloco"

run_blocks "$project/README.md"
grep -q '^batch_size = 1$' run.toml || fail "run.toml has no batch_size = 4"
grep -q '^verified: 30 entries' block*.out || fail "the run did not verify"
grep -q '^entry .*: 2 replicas' block*.out || fail "the second machine did not take part"
