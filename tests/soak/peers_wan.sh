#!/bin/sh
# Members with 100 ms to the hub, and so 200 ms to each other, read from each other (SWM-13). Eight
# exchange in about the time of two, not with one more delay for each. All but their own comes from
# members, and the bits are those of a run in a folder.
. "$(dirname "$0")/../net/lib.sh"
network 100ms 8 --mesh

sed -i 's/^rounds = 6/rounds = 5/; s/^local_steps_per_round = 20/local_steps_per_round = 2/
    s/^heartbeat = .*/heartbeat = 2/; s/^patience = .*/patience = 30/' tiny.toml
start_hub

# members N: a run of N members; $least is the shortest of all exchanges after the first.
members() {
    sed "s/^replicas = 2/replicas = $1/" tiny.toml >"of$1.toml"
    expect 0 diloco train "of$1.toml" --store "plain$1" --quiet
    store=http://10.78.0.1:8765/of$1
    for i in $(seq 1 "$1"); do
        dir=of$1-r$i
        mkdir -p "$dir"
        cp "of$1.toml" text.txt "$dir/"
        set -- "$1" --record record.jsonl --set run.threads=1 --set run.peers=true \
            --set run.peers_listen="10.78.0.$((i + 1)):0"
        n=$1
        shift
        if [ "$i" = 1 ]; then
            start "$dir" 1 diloco train "of$n.toml" --store "$store" --replicas 1 "$@"
        else
            start "$dir" "$i" diloco join "$store" --set data.train_path=text.txt "$@"
        fi
        set -- "$n"
        eval "r$i=$pid"
        wait_for test -e "hub/runs/of$n/gen/r$((i - 1)).0000"
    done
    for i in $(seq 1 "$1"); do
        eval "ended of$1-r$i \"\$r$i\""
    done
    [ "$(digest "hub/runs/of$1")" = "$(digest "plain$1")" ] || fail "the run of $1 ends elsewhere"
    grep -h '"event":"commit"' of"$1"-r*/record.jsonl | grep '"from_peers":[1-9]' >commits
    least=$(sed 's/.*"exchange_s":\([0-9.e-]*\).*/\1/' commits | sort -g | head -1)
    # Of the last entries all but one's own came from members.
    awk -F'"from_peers":' -v n="$1" '{
        split($2, a, ","); split($2, b, "\"from_store\":"); split(b[2], c, ",")
        if (a[1] >= (n - 1) * c[1]) good++
    } END { exit !(good >= n) }' commits || fail "with $1 members too much came from the store"
}

members 2
two=$least
members 8
echo "shortest exchange: $two s of two members, $least s of eight"
awk -v two="$two" -v eight="$least" 'BEGIN { exit !(eight < two + 0.6) }' ||
    fail "eight members take $least s, two $two s: more than a delay or two"
