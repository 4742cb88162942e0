#!/bin/sh
# A tokenizer learnt, text encoded, a run of two replicas on it: its tokenizer goes with it.
. "$(dirname "$0")/lib.sh"

mkdir texts
cp text.txt texts/a.txt
printf 'the old ship sails home.\n' >texts/b.md
expect 0 diloco data tokenizer --text texts --vocab 300 --out tok.json
grep -q '^300 tokens from [0-9]* different words in tok.json$' out || fail tokenizer
expect 0 diloco data tokenizer --text texts --vocab 257 --out small.json
expect 0 diloco data tokenizer --text texts --vocab 300 --words gpt2 --out other.json --json
[ "$(json vocab <out)" = 300 ] || fail "tokenizer --json"
expect 0 diloco data prepare --text texts --tokenizer tok.json --out tokens
grep -q ' tokens in 2 shards of tokens$' out || fail prepare
expect 0 diloco data prepare --text texts --tokenizer tok.json --out tokens --json
[ "$(json found <out)" = 2 ] && [ "$(json vocab <out)" = 300 ] || fail "prepare again"
expect_error 1 'holds tokens of another text or tokenizer' \
    diloco data prepare --text texts --tokenizer other.json --out tokens

sed '/^\[data\]/,$d' tiny.toml >bpe.toml
cat >>bpe.toml <<'TOML'
[data]
datasource = "tokens"
train_path = "tokens"
tokenizer = "bpe"
tokenizer_path = "tok.json"
TOML
expect 0 diloco data bpe.toml --json
[ "$(json vocab <out)" = 300 ] || fail "the vocabulary is not the tokenizer's"
expect 0 diloco train bpe.toml
expect 0 diloco verify runs/bpe
expect 0 diloco sample runs/bpe --prompt 'the ship' --tokens 20 --set data.tokenizer_path=tok.json
grep -q '^the ship' out || fail "no text"
grep -q '<[0-9]*>' out && fail "tokens are not text"

expect 0 diloco sample runs/bpe --tokens 5 --top-k 3 --top-p 0.9 --set data.tokenizer_path=tok.json
expect 0 diloco eval runs/bpe --text text.txt --set data.tokenizer_path=tok.json
grep -q '^after 6 entries: loss [0-9.]*, perplexity [0-9.]*, [0-9.]* bits per byte, over ' out ||
    fail "eval --text"

# A command that joins, samples or exports has the run's own tokenizer.
for command in 'sample runs/bpe' 'join runs/bpe --set data.train_path=tokens' \
    'export runs/bpe --to hf --out model'; do
    expect 1 diloco $command --set data.tokenizer_path=other.json
    says 'tokenizer'
done
expect_error 2 'needs data.tokenizer_path' diloco sample runs/bpe
expect_error 2 'was encoded with another tokenizer' \
    diloco train bpe.toml --store x --set data.tokenizer_path=small.json
expect_error 3 'encode the text with diloco data prepare' \
    diloco train bpe.toml --store x --set data.datasource=text --set data.train_path=text.txt

expect 0 diloco export runs/bpe --to hf --out model --set data.tokenizer_path=tok.json
cmp -s tok.json model/tokenizer.json || fail "the tokenizer did not go with the model"
grep -q '"eos_token_id":0,' model/config.json || fail "eos_token_id"
expect 0 diloco export runs/bpe --to gguf --out model.gguf --set data.tokenizer_path=tok.json
grep -q 'tokenizer.ggml.merges' model.gguf || fail "gguf has no merges"
expect_error 2 'add --set data.tokenizer_path=FILE' diloco export runs/bpe --to gguf --out x
expect 0 diloco import model --out begin
cmp -s tok.json begin/tokenizer.json || fail "the tokenizer did not come in"

expect_error 2 'data tokenizer needs --text LIST and --out FILE' diloco data tokenizer
expect_error 2 'data prepare needs --text' diloco data prepare --text texts
expect_error 2 'take gpt2 or cl100k' diloco data tokenizer --text texts --out x --words p50k
expect 0 diloco data prepare --help
grep -q '^usage: diloco data prepare' out || fail "no help for two words"
