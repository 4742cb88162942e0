#!/bin/sh
# demo.sh PROGRAM: show what DiLoCo is for, in about 90 seconds on 2 cores. The same small GPT is
# trained three times:
#
#     a  by one replica alone, on the whole text
#     b  by four replicas with DiLoCo, each on its quarter, which exchange every 10 steps
#     c  by four replicas that exchange after every step (data-parallel), on the same quarters
#
# All three have the same initial parameters, schedule, batch and steps per replica. a and b train with
# Muon, c with AdamW at its best learning rate: preset data_parallel has no Muon. bench/demo.md has
# data-parallel training with Muon, too. The demo then compares how well each model predicts text that
# none has seen, and what b and c sent for it. DEMO_ROUNDS (56) is the number of b's exchanges.
#
# The text is $DILOCO_DATA (a file or a folder), else tinyshakespeare if it can be downloaded in five
# seconds, else this project's own sources and documentation. build/demo holds everything, and is
# emptied first.
set -eu
export LC_ALL=C

shown=$1
program=$(readlink -f "$1")
data=${DILOCO_DATA:+$(readlink -f "$DILOCO_DATA")}
cd "$(dirname "$0")/.."
work=build/demo
config=examples/demo.toml
rounds=${DEMO_ROUNDS:-56}
case $rounds in
'' | *[!0-9]* | 0*) echo "demo.sh: DEMO_ROUNDS=$rounds is no number of rounds" >&2; exit 2 ;;
esac
steps=$((rounds * 10)) # of demo.toml: local_steps_per_round
unquantized="--set server.diloco.codec=f32 --set server.diloco.error_feedback=0"
url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
sha256=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed

is_shakespeare() {
    echo "$sha256  $1" | sha256sum --check --status 2>/dev/null
}

find_text() {
    shakespeare=$work/tinyshakespeare.txt
    if [ -n "$data" ]; then
        text=$data
        echo "text: $text (DILOCO_DATA)"
    elif is_shakespeare $shakespeare || { curl -m 5 -sSfo $shakespeare $url 2>/dev/null &&
        is_shakespeare $shakespeare; }; then
        text=$shakespeare
        echo "text: tinyshakespeare"
    else
        text=$work/project.txt
        find src include docs tests examples -name '*.[ch]' -o -name '*.md' | sort |
            xargs cat >$text
        echo "text: no DILOCO_DATA, and tinyshakespeare is out of reach: this project's own" \
            "sources and documentation"
    fi
}

# run NAME TITLE FLAGS…
run() {
    name=$1
    printf '\n%s  %s\n' "$name" "$2"
    shift 2
    "$program" train $config --store $work/"$name" --set data.train_path="$text" --json "$@" \
        >$work/"$name".json
    "$program" eval $work/"$name" --set data.train_path="$text" --json >$work/"$name".eval.json
}

# of KEY FILE: a value of a JSON object.
of() {
    tr ',{}' '\n\n\n' <"$2" | sed -n "s/^\"$1\":\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" | head -1
}

# row NAME TITLE BYTES
row() {
    awk -v name="$1" -v title="$2" -v bytes="$3" -v loss="$(of loss $work/"$1".eval.json)" \
        -v wall="$(of wall_s $work/"$1".json)" \
        'BEGIN { sent = bytes ? sprintf("%.1f MB", bytes / 1e6) : "-"
                 printf "  %s  %-32s %15.4f %14s %8.0f s\n", name, title, loss, sent, wall }'
}

# loss_of RUN
loss_of() {
    of loss $work/"$1".eval.json
}

mkdir -p $work
rm -rf $work/[abc] $work/[abc].local $work/[abc].*json $work/loss.svg
cat <<TEXT
This demo trains the same small GPT (0.43 M parameters) three times, for $steps steps of each replica:
by one replica alone, by four with DiLoCo, and by four with data-parallel training.
It takes about $((rounds * 90 / 56)) seconds on 2 cores, and keeps the runs in $work.
TEXT
find_text

run a "one replica alone, on the whole text" --preset single --set run.replicas=1 \
    --set trainer.rounds="$rounds" --set trainer.optimizer=muon $unquantized
run b "DiLoCo: four replicas, each on its quarter" --set trainer.rounds="$rounds" \
    --set run.retain=all
run c "data-parallel: four replicas, each on its quarter, exchange after every step" \
    --preset data_parallel --set trainer.local_steps_per_round=1 --set trainer.rounds=$steps \
    --set trainer.eval_every=80 --set parameters.optimizer.lr=3e-3 $unquantized

printf '\nEvery entry of b can be recomputed from its log:\n'
"$program" verify $work/b
printf '\n200 characters that b writes:\n\n'
"$program" sample $work/b --tokens 200
"$program" report $work/a --compare $work/b --compare $work/c --out $work/loss.svg >/dev/null

printf '\n     %-32s %15s %14s %10s\n' "$steps steps of every replica" "validation loss" \
    "bytes sent" time
row a "one replica, the whole text" ""
row b "four replicas, DiLoCo with Muon" "$(of bytes_sent $work/b.json)"
row c "four replicas, data-parallel" "$(of bytes_sent $work/c.json)"
awk -v a="$(loss_of a)" -v b="$(loss_of b)" -v c="$(loss_of c)" \
    -v b_sent="$(of bytes_sent $work/b.json)" -v c_sent="$(of bytes_sent $work/c.json)" '
    function apart(x) { return sprintf("%.3f %s", x < 0 ? -x : x, x < 0 ? "below" : "above") }
    BEGIN { printf "\nDiLoCo sent %.1f times fewer bytes than data-parallel. Its loss is %s that of one\n" \
                "replica alone and %s that of data-parallel (lower is better).\n",
                c_sent / b_sent, apart(b - a), apart(b - c) }'
cat <<TEXT
The curves are drawn in $work/loss.svg.

Next:
  $shown status $work/b                 # what the run is, and which replicas took part
  $shown sample $work/b --prompt "The " # let the model write
  $shown train examples/demo.toml --set data.train_path=YOUR.txt --store runs/mine
TEXT
