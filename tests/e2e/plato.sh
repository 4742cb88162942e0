#!/bin/sh
# Plato's files as they are (FED-1, 2, 3, 4, 21): they load, they run with one command, they leave a
# results file, also over kill -9. Rounds, clients and steps are shortened by --set alone, and the
# images are made here.
. "$(dirname "$0")/lib.sh"

configs=$project/configs
python3 - <<'PY'
import gzip, os, random, struct
rng = random.Random(1)
os.makedirs("data/MNIST/raw"), os.makedirs("data/cifar-10-batches-bin")
def image(label, side, channels):
    return bytes(min(255, 60 * (y * 10 // side == label) + rng.randrange(60))
                 for _ in range(channels) for y in range(side) for _ in range(side))
for name, n in (("train", 4000), ("t10k", 200)):
    labels = bytes(i % 10 for i in range(n))
    pixels = b"".join(image(k, 28, 1) for k in labels)
    with gzip.open(f"data/MNIST/raw/{name}-images-idx3-ubyte.gz", "wb", 1) as f:
        f.write(struct.pack(">4I", 0x803, n, 28, 28) + pixels)
    with gzip.open(f"data/MNIST/raw/{name}-labels-idx1-ubyte.gz", "wb", 1) as f:
        f.write(struct.pack(">2I", 0x801, n) + labels)
for name, n in (("data_batch_1", 400), ("test_batch", 40)):
    with open(f"data/cifar-10-batches-bin/{name}.bin", "wb") as f:
        for i in range(n):
            f.write(bytes([i % 10]) + image(i % 10, 32, 3))
PY

value() { # KEY: as --print-config says it
    sed -n "s/^$(echo "$1" | sed 's/\./\\./g') = \([^#]*[^# ]\) *#.*/\1/p" out
}
is() { # KEY VALUE
    [ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1"), not $2"
}

# FED-3: the exact keys, and Plato's defaults where they are left away.
for file in MNIST/diloco_lenet5 CIFAR10/diloco_resnet18 MNIST/diloco_lenet5_smoke; do
    expect 0 diloco train "$configs/$file.toml" --print-config
    is preset '"federated"'
    is server.diloco.outer_optimizer '"nesterov"'
    is server.diloco.outer_learning_rate 0.7
    is server.diloco.outer_momentum 0.9
    is server.diloco.aggregation_weighting '"uniform"'
    is server.diloco.apply_outer_optimizer_to '"parameters"'
    is trainer.optimizer '"adamw"'
    [ "$(grep -c 'not used here' err)" = 1 ] || fail "what is not used is not said once"
    grep -q 'server.address, server.port' err || fail "server.address is swallowed"
done
expect 0 diloco train "$configs/MNIST/diloco_lenet5.toml" --print-config
is clients.total_clients 50
is data.datasource '"MNIST"'
is data.partition_size 1000 # the including file wins
is trainer.local_steps_per_round 500
is trainer.epochs 250
is parameters.learning_rate.warmup_steps 1000
is parameters.optimizer.lr 0.0004
is trainer.gradient_clip 0
printf '[clients]\ntotal_clients = 5\n[server]\ntype = "diloco"\n' >bare.toml
expect 0 diloco train bare.toml --print-config
is server.diloco.outer_optimizer '"nesterov"'
is server.diloco.outer_learning_rate 0.7
is server.diloco.outer_momentum 0.9
is server.diloco.aggregation_weighting '"uniform"'
is server.diloco.apply_outer_optimizer_to '"parameters"'
for file in MNIST/fedavg_lenet5_diloco_comparison CIFAR10/fedavg_resnet18_diloco_comparison; do
    expect 0 diloco train "$configs/$file.toml" --print-config
    is preset '"fedavg"'
    is server.diloco.outer_optimizer '"sgd"'
    is server.diloco.aggregation_weighting '"num_samples"'
    is trainer.local_steps_per_round 0 # whole epochs
    is trainer.lr_scheduler '"LambdaLR"'
done

# A key of Plato that this program lacks is refused by name; an unknown key, with the nearest.
refused() { # CODE WORDS SETTING
    expect "$1" diloco train "$configs/MNIST/diloco_lenet5_smoke.toml" --set "$3"
    grep -q "$2" err || fail "$3 is refused in other words: $(cat err)"
    [ ! -e runs ] || fail "something was written before $3 was refused"
}
refused 2 'the only algorithm is fedavg' algorithm.type=diloco              # FED-4
refused 3 'server.type = "pfedgraph" is Plato.s' server.type=pfedgraph
refused 3 'counts completed optimizer steps' trainer.type=timm   # FED-43
refused 3 'leave it true' trainer.preserve_optimizer_state=false # FED-44
refused 3 'never sees the rest of its data' data.stream=restart  # FED-45
refused 3 'no filter may add' clients.outbound_processors=state  # FED-46
refused 3 'clients.do_test = true is Plato.s' clients.do_test=true
refused 3 'run.store = "s3:' server.s3_bucket=b
refused 2 'did you mean clients.per_round' clients.per_rond=1
refused 2 'keep one' preset=fedavg
refused 2 'name columns' results.types=round,mse
# FED-21: the file as it was before, with an upper bound that cannot reach H.
expect 3 diloco train "$configs/MNIST/diloco_lenet5.toml" --set trainer.epochs=5 \
    --set trainer.batch_size=32 --set clients.total_clients=4 --set clients.per_round=4
grep -q 'trainer.epochs = 5' err || fail "the bound is not named: $(cat err)"

# FED-2: one command each.
run() { # FILE COLUMN… settings behind it
    file=$1
    shift
    expect 0 diloco train "$configs/$file.toml" --quiet "$@"
}
rows() { # FILE: rounds of the results, in one line
    sed 1d "$1" | cut -d, -f1 | tr '\n' ' '
}
run MNIST/diloco_lenet5_smoke
[ "$(head -1 runs/diloco_lenet5_smoke.csv)" = round,accuracy,elapsed_time ] || fail "columns"
[ "$(rows runs/diloco_lenet5_smoke.csv)" = "1 2 " ] || fail "rows: $(cat runs/diloco_lenet5_smoke.csv)"

short="--set clients.total_clients=4 --set trainer.rounds=2"
# shellcheck disable=SC2086 # several words
{
    run MNIST/diloco_lenet5 $short --set clients.per_round=2 --set trainer.local_steps_per_round=3 \
        --set trainer.batch_size=16
    run MNIST/fedavg_lenet5_diloco_comparison $short --set clients.per_round=2 --set trainer.epochs=1 \
        --set data.partition_size=40
    ! grep -q warmup_steps err || fail "whole epochs are taken for single steps"
    run CIFAR10/diloco_resnet18 $short --set clients.per_round=1 --set trainer.local_steps_per_round=1 \
        --set trainer.batch_size=2 --set data.partition_size=8 --set trainer.eval_batches=1
    run CIFAR10/fedavg_resnet18_diloco_comparison $short --set clients.per_round=1 \
        --set trainer.epochs=1 --set data.partition_size=10 --set trainer.eval_batches=1
}
grep -q '^2,[0-9.e-]*,[0-9.e-]*,12,192$' runs/diloco_lenet5.csv || fail "steps: $(cat runs/diloco_lenet5.csv)"
grep -q '^2,[0-9.e-]*,[0-9.e-]*,8,160$' runs/fedavg_lenet5_diloco_comparison.csv ||
    fail "steps: $(cat runs/fedavg_lenet5_diloco_comparison.csv)"
for name in diloco_resnet18 fedavg_resnet18_diloco_comparison; do
    [ "$(rows runs/$name.csv)" = "1 2 " ] || fail "rows of $name: $(cat runs/$name.csv)"
done
diloco log runs/diloco_lenet5 --events | grep -q '"contract":"faithful"' ||
    fail "the record does not say faithful"

# FED-47: allowed and unfaithful is said on stderr and in the record.
expect 0 diloco train "$configs/MNIST/diloco_lenet5_smoke.toml" --json --store runs/other \
    --record other.jsonl --set server.diloco.codec=int8
grep -q 'unfaithful' err || fail "no warning on stderr: $(cat err)"
grep -q '"unfaithful_codec"' other.jsonl || fail "no warning in the record"
grep -q '"contract":"unfaithful"' other.jsonl || fail "the record says faithful"

# The target ends a run; the results of a run that is killed have each round once.
run MNIST/diloco_lenet5_smoke --store runs/target --record target.jsonl --set server.do_test=true \
    --set trainer.target_accuracy=0.0001 --set trainer.rounds=50
[ "$(rows runs/target.csv)" = "1 " ] || fail "the target was not seen: $(cat runs/target.csv)"
grep -q '"event":"end",.*"entry":1,"steps":4,' target.jsonl || fail "its record has no end"
run MNIST/diloco_lenet5_smoke --store runs/among --replicas 3 --set server.do_test=true \
    --set trainer.target_accuracy=0.0001 --set trainer.rounds=60 --set trainer.eval_every=15
[ "$(rows runs/among.csv | wc -w)" -lt 30 ] || fail "only who evaluates stops at the target"
killed() {
    diloco train "$configs/MNIST/diloco_lenet5_smoke.toml" --store runs/killed --quiet \
        --set trainer.rounds=30 --set server.do_test=true "$@"
}
for moment in 0.3 0.6 0.9 1.2; do
    killed >out 2>err &
    parent=$!
    started="$started $parent"
    sleep "$moment"
    kill -STOP "$parent" 2>/dev/null || true # so that all its replicas are known
    kids=$(children "$parent")
    # shellcheck disable=SC2086 # several
    kill -9 "$parent" $kids 2>/dev/null || true
    wait "$parent" || true
    for pid in $kids; do wait_for gone "$pid"; done
done
expect 0 killed
[ "$(rows runs/killed.csv)" = "$(seq -s ' ' 1 30) " ] || fail "rows: $(cat runs/killed.csv)"
sed 1d runs/killed.csv | awk -F, '$2 == "" || $3 < last {exit 1} {last = $3}' ||
    fail "a round without accuracy, or time that runs back: $(cat runs/killed.csv)"

# Data that is not there: what to fetch, and where it belongs.
mv data elsewhere
expect 1 diloco train "$configs/CIFAR10/diloco_resnet18.toml" --store runs/none
grep -q 'there is no folder data. Fetch https://.*cifar-10-binary.tar.gz' err || fail "$(cat err)"
