#!/bin/sh
# demo_seeds.sh PROGRAM TEXT [SEED…]: the demo's three runs from several seeds, for bench/demo.md. a, b
# and c are trained as in examples/demo.sh. d is data-parallel training with Muon: one replica with the
# batches of four, which gives the same gradients.
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

unquantized="--set server.diloco.codec=f32 --set server.diloco.error_feedback=0"
muon="--preset single --set run.replicas=1 --set trainer.optimizer=muon $unquantized"

echo "| seed | a, one replica | b, four with DiLoCo | c, data-parallel, AdamW | d, data-parallel, Muon |"
echo "|---|---|---|---|---|"
for seed in "$@"; do
    a=$(loss "a$seed" $muon)
    b=$(loss "b$seed")
    c=$(loss "c$seed" --preset data_parallel --set trainer.local_steps_per_round=1 \
        --set trainer.rounds="$steps" --set parameters.optimizer.lr=3e-3 $unquantized)
    d=$(loss "d$seed" $muon --set trainer.batch_size=16)
    echo "$seed $a $b $c $d"
done | awk '
    { printf "| %s | %.4f | %.4f | %.4f | %.4f |\n", $1, $2, $3, $4, $5; fflush()
      n++; for (i = 2; i <= 5; i++) { sum[i] += $i; square[i] += $i * $i } }
    function spread(i) { return n > 1 ? sqrt((square[i] - sum[i] * sum[i] / n) / (n - 1)) : 0 }
    END { printf "| mean | %.4f | %.4f | %.4f | %.4f |\n", sum[2] / n, sum[3] / n, sum[4] / n, sum[5] / n
          printf "| spread (standard deviation) | %.4f | %.4f | %.4f | %.4f |\n", spread(2), spread(3),
              spread(4), spread(5) }'
