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

# A run by invitation: three machines, a folder each for their keys and state.
printf 'roster = "invited"\n' >line
sed -i '2r line' tiny.toml
sed -i 's/^replicas = 2/replicas = 1/; s/^rounds = 6/rounds = 3/' tiny.toml
machine() {
    name=$1
    shift
    XDG_CONFIG_HOME="$work/$name" diloco "$@" --set run.state_dir="$work/$name/state"
}
expect 0 machine owner train tiny.toml --store run --quiet
owner=$(XDG_CONFIG_HOME="$work/owner" diloco id)
expect 0 diloco status run
grep -qF "roster     invited; owner $owner" out || fail "whose run it is is not said"
grep -qF "r0           $owner" out || fail "whose name r0 is is not said"
expect 0 diloco status run --json
[ "$(json owner <out)" = "$owner" ] || fail "the JSON has no owner"
expect_error 2 '90s, 30m, 24h or 7d' diloco invite run --for tomorrow
export XDG_CONFIG_HOME="$work/guest"
expect_error 1 'key' diloco invite run
expect 0 diloco id
expect_error 3 'only the run'"'"'s owner invites' diloco invite run
expect 0 env XDG_CONFIG_HOME="$work/owner" diloco invite run --for 1h
grep -qx 'diloco-invitation-1[.0-9a-f]*' out || fail "no invitation"
cp out invitation
expect_error 3 'by invitation only' diloco join run --set data.train_path=text.txt \
    --set run.state_dir=s --quiet
expect 0 diloco join run --set data.train_path=text.txt --set run.state_dir=s \
    --set run.invitation=invitation --quiet
guest=$(diloco id)
expect 0 diloco status run
grep -qF "$guest" out || fail "whose name the guest has is not said"
! grep -rqF "$(sed -n 2p "$work/guest/diloco/key.pem")" run s out err || fail "the secret got out"
export XDG_CONFIG_HOME="$work/second"
expect_error 3 'used already' diloco join run --set data.train_path=text.txt \
    --set run.state_dir=t --set run.invitation=invitation --quiet
expect 0 diloco verify run

# Two of one machine, at once, take an invitation each of one file.
invite() { XDG_CONFIG_HOME="$work/owner" diloco invite run --for 1h; }
invite >two
invite >>two
for state in u v; do
    diloco join run --set data.train_path=text.txt --set run.state_dir=$state \
        --set run.invitation=two --quiet 2>err.$state &
    started="$started $!"
done
wait
[ "$(ls run/invite | wc -l)" -ge 2 ] || fail "nobody used an invitation: $(cat err.u err.v)"
! grep -q 'in this moment: each' err.u err.v || fail "both took the same invitation"

# A closed one takes its names from the list.
sed -i 's/^roster = .*/roster = "closed"/' tiny.toml
echo "alice $(diloco id)" >members
expect_error 2 'run.members' diloco train tiny.toml --store closed --quiet
expect 0 diloco train tiny.toml --store closed --quiet --set run.members=members
ls closed/gen | grep -q '^alice\.0000$' || fail "the listed name was not taken"
export XDG_CONFIG_HOME="$work/guest"
expect_error 3 'closed roster' diloco join closed --set data.train_path=text.txt --quiet

# Two machines that share a key do not take each other's names, whatever end/ objects say.
expect 0 diloco id
key=$(cat out)
printf 'r0 %s\nr1 %s\nr2 %s\n' "$key" "$key" "$key" >members
sed -i 's/^replicas = .*/replicas = 3/; s/^rounds = .*/rounds = 4/' tiny.toml
diloco train tiny.toml --store shared --replicas 2 --quiet --set run.members=members \
    --set run.state_dir=shared.one >train.out 2>&1 &
train=$!
started="$started $train"
for name in r0 r1; do wait_for test -e shared/c/0000000000/$name.0000; done
mkdir -p shared/end
for name in r0 r1; do echo '{}' >shared/end/$name.0000; done
expect_error 3 'run elsewhere: their heartbeats change' diloco join shared --replicas 2 --quiet \
    --set data.train_path=text.txt --set run.state_dir=shared.two
expect 0 diloco join shared --quiet --set data.train_path=text.txt --set run.state_dir=shared.two
wait $train || fail "the first machine was stopped: $(cat train.out)"
[ "$(ls shared/gen | tr '\n' ' ')" = 'r0.0000 r1.0000 r2.0000 ' ] ||
    fail "a name was taken over: $(ls shared/gen)"
expect 0 diloco verify shared
