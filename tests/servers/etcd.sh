#!/bin/sh
# etcd.sh COMMAND…: start etcd on loopback (one member; Debian's etcd-server) and run the command with
#
#     CLOUD_TEST_URL      etcd://127.0.0.1:PORT/suite
#     ETCD_TEST_HOST      127.0.0.1:PORT
#     ETCD_TEST_RESTART   a script that kills etcd, starts it again from its data, and waits until
#                         it answers
#
#     ETCD_TEST_CERT      with ETCD_TEST_TLS=1: the certificate it shows, signed by itself
#
# Exit 77, saying "left out: …", when it is not installed.
set -eu
. "$(dirname "$0")/lib.sh"
command -v etcd >/dev/null || left_out "etcd: not installed (scripts/packages.sh servers)"

scheme=http tls=
if [ -n "${ETCD_TEST_TLS:-}" ]; then
    command -v openssl >/dev/null || left_out "TLS: no openssl program"
    scheme=https
    tls="--cert-file $dir/cert.pem --key-file $dir/key.pem"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
    export ETCD_TEST_CERT="$dir/cert.pem"
fi

port=$(free_port)
peer_port=$(free_port)
cat >"$dir/start" <<START
#!/bin/sh
etcd --data-dir "$dir/data" --unsafe-no-fsync \
    --listen-client-urls $scheme://127.0.0.1:$port $tls \
    --advertise-client-urls $scheme://127.0.0.1:$port \
    --listen-peer-urls http://127.0.0.1:$peer_port \
    --initial-advertise-peer-urls http://127.0.0.1:$peer_port \
    --initial-cluster default=http://127.0.0.1:$peer_port >>"$dir/etcd.log" 2>&1 &
echo \$! >"$dir/pid"
until curl -sk "$scheme://127.0.0.1:$port/health" | grep -q true; do
    grep -q '^State:.[^Z]' "/proc/\$!/status" || { cat "$dir/etcd.log" >&2 && exit 1; }
    sleep 0.1
done
START
cat >"$dir/restart" <<RESTART
#!/bin/sh
kill -KILL "\$(cat "$dir/pid")"
sleep 1
sh "$dir/start"
RESTART
stop_etcd() {
    pid=$(cat "$dir/pid") || pid=
    kill -KILL "$pid" 2>/dev/null || true
    while runs "$pid"; do sleep 0.05; done # this shell cannot wait for it, and it writes to $dir
    stop
}
trap stop_etcd EXIT
sh "$dir/start"
export ETCD_TEST_HOST="127.0.0.1:$port" ETCD_TEST_RESTART="$dir/restart"
export CLOUD_TEST_URL="etcd://$ETCD_TEST_HOST/suite"
"$@"
