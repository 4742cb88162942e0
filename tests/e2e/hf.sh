#!/bin/sh
# A run's model out as Hugging Face has it, in again, and a run that begins from it.
. "$(dirname "$0")/lib.sh"

expect 0 diloco train tiny.toml
expect 0 diloco export runs/tiny --to hf --out model
grep -q '^after 6 entries: 11 tensors as f32 in model$' out || fail export
grep -q '"architectures":\["LlamaForCausalLM"\]' model/config.json || fail config.json
expect 0 diloco export tiny.toml --to hf --out again --json
[ "$(json tensors <out)" = 11 ] || fail "export --json"
cmp -s model/model.safetensors again/model.safetensors || fail "the same run, other bytes"

expect 0 diloco import model --out begin
grep -q '^train it: diloco train begin/model.toml ' out || fail import
expect 0 diloco train begin/model.toml --replicas 2 --store next --set data.train_path=text.txt \
    --set parameters.model.context=32 --set trainer.rounds=1 --set trainer.batch_size=2 \
    --set trainer.local_steps_per_round=20 --set run.threads=1
was=$(diloco eval runs/tiny --set data.train_path=text.txt --json | json loss)
is=$(diloco eval next --set data.train_path=text.txt --json | json loss)
awk "BEGIN { exit !($is < $was + 0.05) }" || fail "it began at $was and is at $is"

# The same model and the same weights at an address, which are fetched into the cache.
export XDG_CACHE_HOME="$PWD/cache"
echo 'other weights' >model/pytorch_model.bin
expect 0 diloco import "file://$PWD/model/" --out fetched
cmp fetched/model.safetensors begin/model.safetensors || fail "an import from an address differs"
[ -z "$(find cache -name pytorch_model.bin)" ] || fail "a file of another format was fetched"
rm model/pytorch_model.bin
begin() { # FROM STORE
    diloco train begin/model.toml --quiet --store "$2" --set "trainer.init_from=$1" --set data.train_path=text.txt \
        --set parameters.model.context=32 --set trainer.rounds=1 --set trainer.batch_size=2 \
        --set trainer.local_steps_per_round=2 --set run.threads=1
}
expect 0 begin begin/model.safetensors by_path
expect 0 begin "file://$PWD/begin/model.safetensors" by_address
[ "$(digest by_path)" = "$(digest by_address)" ] || fail "a run that begins at an address ends elsewhere"
mkdir moved
mv begin/model.safetensors moved/
rm -r cache/diloco
expect 0 begin "file://$PWD/begin/model.safetensors" by_address # the run has a model of its own
mv moved/model.safetensors begin/
expect_error 2 'a model of Hugging Face is converted first: diloco import hf://models/alice/tiny/ --out DIR' \
    begin hf://models/alice/tiny/ no
expect_error 2 'a model is a folder, with a / at its end' diloco import "file://$PWD/model" --out x

for to in npz gguf; do
    expect 0 diloco export next --to $to --out next.$to --dtype f16
    [ -s next.$to ] || fail "no next.$to"
done

expect_error 2 'export needs --to hf, npz, gguf, peft or dcp, and --out PATH' diloco export next --out x
expect_error 2 'there is no format onnx' diloco export next --to onnx --out x
expect_error 3 'npz files have no bf16' diloco export next --to npz --out x --dtype bf16
expect_error 2 'import needs --out DIR' diloco import model
sed 's/"attention_bias":false/"attention_bias":true/' model/config.json >changed
cp changed model/config.json
expect_error 3 'attention_bias = true: this model has false' diloco import model --out x
expect_error 1 'config.json' diloco import nowhere --out x
[ ! -e x ] || fail "a refused command left something"
