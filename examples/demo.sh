#!/bin/sh
# demo.sh PROGRAM - what DiLoCo is for, in a few minutes: the same small GPT trained
#
#     a  by one replica alone, on the whole text
#     b  by four replicas with DiLoCo, each on its quarter, which meet every 30 steps
#     c  by four replicas that meet after every step (data-parallel), on the same quarters
#
# from the same first parameters, with the same schedule, batch and steps per replica; then how
# well each predicts text that none has seen, and what b and c sent for it.
#
# The text: $DILOCO_DATA (a file or a folder), else tinyshakespeare, if it can be had in five
# seconds, else this project's own sources and documentation. All is kept in build/demo and
# begun afresh each time.
set -eu
export LC_ALL=C

program=$(readlink -f "$1")
data=${DILOCO_DATA:+$(readlink -f "$DILOCO_DATA")}
cd "$(dirname "$0")/.."
work=build/demo
config=examples/demo.toml
steps=900 # of demo.toml: rounds x local_steps_per_round
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

mkdir -p $work
rm -rf $work/[abc] $work/[abc].local $work/[abc].*json
echo "fresh runs in $work; any of them can be looked at with: diloco status|log|verify $work/b"
find_text

run a "one replica alone, on the whole text" --preset single --set run.replicas=1 \
    --set outer_momentum=0
run b "DiLoCo: four replicas, each on its quarter" --set run.retain=all
run c "data-parallel: four replicas, each on its quarter, together after every step" \
    --preset data_parallel --set trainer.local_steps_per_round=1 --set trainer.rounds=$steps \
    --set trainer.eval_every=150 --set outer_momentum=0

printf '\n     %-32s %15s %14s %10s\n' "$steps steps of every replica" "validation loss" \
    "bytes sent" time
row a "one replica, the whole text" ""
row b "four replicas, DiLoCo" "$(of bytes_sent $work/b.json)"
row c "four replicas, data-parallel" "$(of bytes_sent $work/c.json)"
awk -v b="$(of bytes_sent $work/b.json)" -v c="$(of bytes_sent $work/c.json)" \
    'BEGIN { printf "\nDiLoCo sent %.1f times less than data-parallel.\n", c / b }'

printf '\n200 characters from b:\n\n'
"$program" sample $work/b --tokens 200
printf '\n'
"$program" verify $work/b
