#!/bin/sh
# Every codec trains, its log verifies, and it sends what its payload's bits say.
. "$(dirname "$0")/lib.sh"

sed -i '/^codec/d' tiny.toml

# run NAME OPTION…: train into NAME.
run() {
    store=$1
    shift
    expect 0 diloco train tiny.toml --store "$store" --quiet --set trainer.rounds=3 "$@"
    [ -n "$(digest "$store")" ] || fail "$store: no digest"
    bytes=$(wc -c <"$(ls "$store"/c/*2/r0.0000)")
    expect 0 diloco verify "$store"
}

run f32 --set server.diloco.codec=f32
whole=$bytes
for codec in bf16:2 f16:2 int8:4 int4:7 int2:14 e3m0:7 sign:20 prune:2 topk:25; do
    run "${codec%:*}" --set server.diloco.codec="${codec%:*}"
    [ $((bytes * ${codec#*:})) -le $((whole * 11 / 10)) ] || fail "$codec: $bytes bytes of $whole"
done
run sparse --set server.diloco.codec=topk --set server.diloco.codec_values=2bit \
    --set server.diloco.error_feedback=0.95 --set server.diloco.codec_keep=0.05
[ $((bytes * 20)) -le "$whole" ] || fail "sparse: $bytes bytes of $whole"

expect 2 diloco train tiny.toml --store none --set server.diloco.codec_values=3bit

# Compressed, f32 has the same values, and is smaller; a payload that hardly shrinks costs next to
# nothing.
run f32zstd --set server.diloco.codec=f32 --set server.diloco.compression=zstd
[ "$(digest f32zstd)" = "$(digest f32)" ] || fail "compression changes the result"
[ $((bytes * 10)) -le $((whole * 95 / 10)) ] || fail "f32 with zstd: $bytes bytes of $whole"
run sign2 --set server.diloco.codec=sign --set server.diloco.compression=zstd
[ $((bytes * 20)) -le $((whole * 11 / 10)) ] || fail "sign with zstd: $bytes bytes of $whole"
