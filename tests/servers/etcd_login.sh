#!/bin/sh
# etcd_login.sh PROGRAM: an etcd over TLS that asks for a login (etcd.sh with ETCD_TEST_TLS=1): the
# password comes from the environment, goes where the environment says, and is never shown.
set -eu

post() { # PATH BODY
    curl -sf --cacert "$ETCD_TEST_CERT" "https://$ETCD_TEST_HOST/v3/$1" -d "$2" >/dev/null
}
post auth/user/add '{"name":"root","password":"root-word"}'
post auth/user/add '{"name":"replica","password":"the/secret+word"}'
post auth/role/add '{"name":"root"}'
post auth/role/add '{"name":"runs"}'
post auth/role/grant "{\"name\":\"runs\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"$(printf run/ | base64)\",\"range_end\":\"$(printf run0 | base64)\"}}"
post auth/user/grant '{"user":"root","role":"root"}'
post auth/user/grant '{"user":"replica","role":"runs"}'
post auth/enable '{}'

out=$(mktemp)
trap 'rm -f "$out"' EXIT
check() { # CODE TEXT URL
    code=0
    "$program" doctor "$3" >"$out" 2>&1 || code=$?
    if [ $code -ne "$1" ] || ! grep -q -- "$2" "$out" || grep -q 'secret' "$out"; then
        echo "exit code $code, expected $1 and \"$2\", and no secret"
        cat "$out"
        exit 1
    fi
}
program=$1
check 3 "the server's certificate is not trusted" "etcds://$ETCD_TEST_HOST/run"
export DILOCO_ETCD_CA="$ETCD_TEST_CERT"
check 3 "asks for a login" "etcds://$ETCD_TEST_HOST/run"
export DILOCO_ETCD_USER=replica DILOCO_ETCD_PASSWORD='the/secret+word'
check 3 "should be \"$ETCD_TEST_HOST\" if" "etcds://$ETCD_TEST_HOST/run"
DILOCO_ETCD_HOSTS=elsewhere:2379 check 3 "only to the hosts" "etcds://$ETCD_TEST_HOST/run"
export DILOCO_ETCD_HOSTS="$ETCD_TEST_HOST"
check 0 "won: right" "etcds://$ETCD_TEST_HOST/run"
check 3 "permission denied" "etcds://$ETCD_TEST_HOST/other"
DILOCO_ETCD_PASSWORD=another-secret check 3 "authentication failed" "etcds://$ETCD_TEST_HOST/run"
DILOCO_ETCD_HOSTS=192.0.2.1:2379 check 3 "etcds:// only" "etcd://192.0.2.1:2379/run"
check 2 "is not the url of a run in etcd" "etcds://replica:word@$ETCD_TEST_HOST/run"
check 2 "lease=SECONDS" "etcds://$ETCD_TEST_HOST/run?lease=0"
