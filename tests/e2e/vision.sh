#!/bin/sh
# Models of images by the program: LeNet-5 on a small MNIST and ResNet-18 on a smaller CIFAR-10,
# both made here. Two replicas train them; they are evaluated, resumed and replayed. Data that does
# not fit is refused by name.
. "$(dirname "$0")/lib.sh"

# Ten kinds of image, distinguished by a bright stripe; the last argument is the seed of the noise.
cat >make.py <<'PY'
import gzip, os, struct, sys
def image(i, side, channels, seed):
    label, out = (i + seed) % 10, bytearray()
    for k in range(channels * side * side):
        noise = (i * 97 + k * 31 + k * k % 61 + seed * 13) % 64
        out.append(190 + noise if k // side % side // 3 == label else noise)
    return label, bytes(out)
def idx(prefix, n, seed, packed):
    images = [image(i, 28, 1, seed) for i in range(n)]
    write = lambda name, data: (gzip.open(name + ".gz", "wb") if packed else open(name, "wb")).write(data)
    write(f"mnist/{prefix}-images-idx3-ubyte",
          struct.pack(">4I", 0x803, n, 28, 28) + b"".join(p for _, p in images))
    write(f"mnist/{prefix}-labels-idx1-ubyte",
          struct.pack(">2I", 0x801, n) + bytes(l for l, _ in images))
def cifar(name, n, seed):
    with open("cifar/" + name, "wb") as f:
        for i in range(n):
            label, pixels = image(i, 32, 3, seed)
            f.write(bytes([label]) + pixels)
os.mkdir("mnist"), os.mkdir("cifar")
idx("train", 400, 0, True), idx("t10k", 100, 3, False)
cifar("data_batch_1.bin", 24, 0), cifar("test_batch.bin", 8, 1)
PY
python3 make.py

cat >lenet.toml <<'TOML'
preset = "diloco"
[run]
replicas = 2
threads = 1
[trainer]
model_name = "lenet5"
rounds = 4
local_steps_per_round = 15
batch_size = 16
eval_batches = 0
[parameters.optimizer]
lr = 2e-3
[data]
datasource = "MNIST"
train_path = "mnist"
TOML

expect 0 diloco train lenet.toml --store a --record record.jsonl
grep -q ' 61,706 parameters, ' out || fail "not LeNet-5"
[ "$(grep -c '^after .* validation loss .*, accuracy .* %$' out)" = 4 ] || fail "accuracy is not said"
grep -q ' steps and 1,920 images here, ' out || fail "images are not counted"
[ ! -s err ] || fail "something was said on stderr"
grep '"event":"eval"' record.jsonl | grep -q '"accuracy":' || fail "no accuracy in the record"
grep '"event":"eval"' record.jsonl | grep -q 'perplexity' && fail "images have no perplexity"
expect 0 diloco eval a --set data.train_path=mnist --json
accuracy=$(json accuracy <out)
awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }' || fail "accuracy $accuracy: stripes were not learnt"
[ "$(json targets <out)" = 100 ] || fail "not every test image was evaluated"
expect 0 diloco eval a --set data.train_path=mnist
grep -q 'accuracy .* %, over 100 images$' out || fail eval
expect 0 diloco verify a
expect 0 diloco data lenet.toml
grep -q '^train     400 images (mnist)$' out || fail "data: train"
grep -q '^shards    2, of 200 images of 1 x 28 x 28 each$' out || fail "data: shards"

# A run that is stopped in between ends as one that is not.
before=$(digest a)
diloco train lenet.toml --store b >log 2>&1 &
pid=$!
started=$pid
wait_for has_entry b 0
kill -INT $pid
wait $pid || true
expect 0 diloco train lenet.toml --store b
[ "$(digest b)" = "$before" ] || fail "a resumed run ends elsewhere"

# Every step's gradient instead; and the MLP, part of it frozen.
expect 0 diloco train lenet.toml --store c --preset data_parallel --set trainer.rounds=3 \
    --set trainer.local_steps_per_round=1 --quiet
expect 0 diloco verify c
expect 0 diloco train lenet.toml --store d --set trainer.model_name=mlp --set trainer.rounds=1 \
    --set parameters.model.hidden=32,16 --set parameters.model.frozen=fc2. --quiet

# Batch norm: running statistics travel with the model.
cat >resnet.toml <<'TOML'
preset = "diloco"
[run]
replicas = 2
threads = 1
[trainer]
model_name = "resnet_18"
rounds = 2
local_steps_per_round = 2
batch_size = 4
eval_every = 0
[data]
datasource = "CIFAR10"
train_path = "cifar"
TOML
expect 0 diloco train resnet.toml --store e
grep -q ' 11,173,962 parameters, ' out || fail "not ResNet-18"
grep -q '^after 2 entries: validation loss .*, accuracy ' out || fail "resnet: no evaluation"
expect 0 diloco verify e
grep -q 'bn1.running_mean' e/run.json && grep -q '"name":"layer4.1.bn2.num_batches_tracked","dtype":"I64","role":"buffer"' e/run.json ||
    fail "buffers are not in the manifest"

# Settings that do not fit.
expect_error 2 'takes images' diloco train lenet.toml --store x --set data.datasource=text \
    --set data.train_path=text.txt
expect_error 2 'takes tokens' diloco train lenet.toml --store x --set trainer.model_name=gpt
expect_error 2 'images of 28 x 28' diloco train lenet.toml --store x --set data.datasource=CIFAR10 \
    --set data.train_path=cifar
expect_error 2 'has no training images' diloco train lenet.toml --store x --set data.train_path=cifar
expect_error 2 'parameters.model.frozen' diloco train lenet.toml --store x \
    --set parameters.model.frozen=conv9
head -c 5000 mnist/train-images-idx3-ubyte.gz >cut
mv cut mnist/train-images-idx3-ubyte.gz
expect_error 1 'train-images-idx3-ubyte.gz: the gzip file is cut short or damaged' \
    diloco train lenet.toml --store x
expect_error 2 'takes images' diloco sample a --set data.train_path=mnist
