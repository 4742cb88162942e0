#!/bin/sh
# demo_seeds.sh PROGRAM TEXT [SEED…]: the demo's three runs from several seeds, for bench/demo.md. a
# and b are trained as examples/demo.sh does it, c too.
set -eu
program=$(readlink -f "$1")
text=$(readlink -f "$2")
shift 2
[ $# -gt 0 ] || set -- 1 2 3
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# loss RUN FLAGS…: train it, and print its validation loss.
loss() {
    store=$work/$1
    shift
    "$program" train examples/demo.toml --store "$store" --seed "$seed" --quiet \
        --set data.train_path="$text" --set trainer.eval_every=0 "$@" >/dev/null 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
    "$program" eval "$store" --set data.train_path="$text" --json |
        tr ',{}' '\n\n\n' | sed -n 's/^"loss"://p'
}

steps=$("$program" train examples/demo.toml --print-config 2>/dev/null | awk '
    $1 == "trainer.rounds" { rounds = $3 } $1 == "trainer.local_steps_per_round" { h = $3 }
    END { print rounds * h }')

echo "| seed | a, one replica alone | b, four with DiLoCo | c, four data-parallel | a - b |"
echo "|---|---|---|---|---|"
for seed in "$@"; do
    a=$(loss "a$seed" --preset single --set run.replicas=1 --set outer_momentum=0)
    b=$(loss "b$seed")
    c=$(loss "c$seed" --preset data_parallel --set trainer.local_steps_per_round=1 \
        --set trainer.rounds="$steps" --set outer_momentum=0)
    echo "$seed $a $b $c"
done | awk '
    { printf "| %s | %.4f | %.4f | %.4f | %.4f |\n", $1, $2, $3, $4, $2 - $3; fflush()
      n++; for (i = 2; i <= 4; i++) { sum[i] += $i; square[i] += $i * $i }
      gap += $2 - $3; gaps += ($2 - $3) ^ 2 }
    function spread(s, q) { return n > 1 ? sqrt((q - s * s / n) / (n - 1)) : 0 }
    END { printf "| mean | %.4f | %.4f | %.4f | %.4f |\n", sum[2] / n, sum[3] / n, sum[4] / n, gap / n
          printf "| spread (standard deviation) | %.4f | %.4f | %.4f | %.4f |\n", spread(sum[2], square[2]),
              spread(sum[3], square[3]), spread(sum[4], square[4]), spread(gap, gaps) }'
