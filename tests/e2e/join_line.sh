#!/bin/sh
# Two machines and one line: serve --join prints it, and join takes it from a file, from stdin or as
# an argument. It pins the hub's certificate, and its secret is in no list of processes and in no
# message (STO-17). And a hub that admits a holder of a member's key.
. "$(dirname "$0")/lib.sh"
sed -i 's/^replicas = 2/replicas = 2\nlocal_replicas = 1\nroster = "open"/' tiny.toml

# serve DIR FLAG…: $url and $line.
serve() {
    dir=$1
    shift
    : >serve.out
    diloco serve "$dir" --listen 127.0.0.1:0 --join team/tiny "$@" >serve.out 2>serve.err &
    hub=$!
    started="$started $hub"
    wait_for grep -q '^diloco join ' serve.out
    line=$(sed -n 's/^diloco join //p' serve.out)
    url=${line%%#*}
    secret=${line##*#}
    token=${secret#*.}
}
serve hub
[ "$(stat -c %a hub/.hub hub/.hub/hub.key hub/.hub/token | tr '\n' ' ')" = "700 600 600 " ] ||
    fail "others may read what the hub keeps"
echo "$line" | grep -qx 'https://127.0.0.1:[0-9]*/team/tiny#[0-9a-f]\{64\}\.[0-9a-f]\{64\}' ||
    fail "no join line"

# The first machine creates the run, the second has the line alone: each a key and a state of its own.
XDG_CONFIG_HOME="$work/one" diloco train tiny.toml --store @serve.out --set run.state_dir=one >one.out 2>&1 &
one=$!
started="$started $one"
has_run() { [ -e hub/team/tiny/gen/r0.0000 ]; }
wait_for has_run
XDG_CONFIG_HOME="$work/two" diloco join @serve.out --set data.train_path=text.txt \
    --set run.state_dir=two >two.out 2>&1 &
two=$!
started="$started $two"

# While they run, no argument of theirs has the secret.
for pid in $one $two $(children $one) $(children $two); do
    [ ! -e "/proc/$pid/cmdline" ] || ! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q "$token" ||
        fail "the token stands in the list of processes"
done
for pid in $one $two; do
    code=0
    wait "$pid" || code=$?
    [ $code = 0 ] || fail "$pid ends with $code: $(cat one.out two.out)"
done
! grep -qF "$token" one.out two.out serve.err || fail "the token was said"
! grep -rqF "$token" hub/team one two || fail "the token was kept"

expect 0 diloco status @serve.out --json
[ "$(json entries <out)" = 6 ] || fail "the run did not end"
expect 0 diloco verify "$line"

# A wrong certificate, a wrong token, half a line: refused, and nothing of it repeated.
wrong=$(echo "$secret" | tr '0-9a-f' '1-9a-f0')
expect_error 3 '' diloco status "$url#${wrong%%.*}.$token"
expect_error 3 '' diloco status "$url#${secret%%.*}.${token}x"
expect_error 2 'no join line' diloco status "$url#z$token"
! grep -qF "$token" err || fail "half a line was repeated"
expect_error 2 'holds no join line' diloco join @tiny.toml
expect_error 2 'holds no join line' diloco join -
expect_error 2 'holds no join line' diloco train tiny.toml --store @tiny.toml
expect_error 2 'there is no file none' diloco train tiny.toml --store @none
expect_error 2 'is not the url of a run' diloco status "http://127.0.0.1:1/a#$token"
! grep -qF "$token" err || fail "what is behind a # was repeated"
kill -INT "$hub"
wait "$hub" || true

# Parts of the token and the certificate after a full disk or a kill are made again. Whole
# ones stay: a line that was given away stays valid.
mkdir -p left/.hub
chmod 700 left/.hub
: >left/.hub/token
: >left/.hub/token.new
: >left/.hub/hub.key.new
echo half >left/.hub/hub.key
serve left
given=$secret
kill -INT "$hub"
wait "$hub" || true
serve left
[ "$secret" = "$given" ] || fail "another line for the same hub"
[ "$(ls left/.hub | tr '\n' ' ')" = "hub.key hub.pem token " ] || fail "something was left beside"
[ "$(stat -c %a left/.hub/hub.key left/.hub/token | tr '\n' ' ')" = "600 600 " ] || fail "others may read"
! grep -q 'others may read' serve.err || fail "a warning of secrets that only their owner reads"
kill -INT "$hub"
wait "$hub" || true
chmod 644 left/.hub/hub.key left/.hub/token
serve left
[ "$(grep -c 'others may read it (mode 0644): chmod 600 it' serve.err)" = 2 ] ||
    fail "no warning of secrets that others may read: $(cat serve.err)"
kill -INT "$hub"
wait "$hub" || true

# Members' keys instead of a token, by mutual TLS.
echo "# who may" >members
XDG_CONFIG_HOME="$work/one" diloco id >>members
serve hub --members members
DILOCO_HUB_PIN=sha256//$(python3 -c 'import base64, sys
print(base64.b64encode(bytes.fromhex(sys.argv[1])).decode())' "${secret%%.*}")
export DILOCO_HUB_PIN
expect 0 env XDG_CONFIG_HOME="$work/one" diloco status "$url"
expect_error 3 '' env XDG_CONFIG_HOME="$work/two" diloco status "$url"
grep -qi 'token\|refuse\|401' err || fail "a stranger's key: the way in is not said"
expect 0 env XDG_CONFIG_HOME="$work/two" DILOCO_HUB_TOKEN="$token" diloco status "$url"
expect 0 env XDG_CONFIG_HOME="$work/two" diloco train tiny.toml --store "$url" --quiet \
    --set run.key="$work/one/diloco/key.pem" --set run.state_dir=three
expect_error 2 'a run'"'"'s name is' diloco serve hub --listen 127.0.0.1:0 --join ../tiny
expect_error 3 '' env XDG_CONFIG_HOME="$work/none" diloco status "$url"
