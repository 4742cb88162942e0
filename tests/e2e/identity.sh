#!/bin/sh
# A machine's key: made once, its owner's alone, shown by its public half, never by the other.
. "$(dirname "$0")/lib.sh"
export XDG_CONFIG_HOME="$work/config"

expect 0 diloco id
id=$(cat out)
echo "$id" | grep -qx 'ed25519:[0-9a-f]\{64\}' || fail "no public key: $id"
grep -q "a new key" err || fail "a made key is not said"
[ "$(stat -c %a "$work/config/diloco/key.pem")" = 600 ] || fail "others may read the key"
expect 0 diloco id --json
[ "$(json made <out)" = false ] || fail "a key was made twice"
grep -qF "$id" out || fail "the key changed"
! grep -qF "$(sed -n 2p "$work/config/diloco/key.pem")" out err || fail "the secret was shown"
chmod 644 "$work/config/diloco/key.pem"
expect_error 3 'chmod 600' diloco id
chmod 600 "$work/config/diloco/key.pem"
expect 0 diloco id --key other.pem
[ "$(cat out)" != "$id" ] || fail "two keys are one"
