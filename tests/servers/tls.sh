#!/bin/sh
# tls.sh PROGRAM SUITE: over TLS (the fake of gcs_fake.py with a certificate of its own) a store is
# trusted only with the right authority or the right key.
set -eu
. "$(dirname "$0")/lib.sh"
command -v openssl >/dev/null || left_out "TLS: no openssl program"

certificate() { # NAME SUBJECT-ALTERNATIVE
    openssl req -x509 -newkey ed25519 -nodes -days 2 -subj "/CN=test" -addext "subjectAltName=$2" \
        -keyout "$dir/$1.key" -out "$dir/$1.pem" 2>/dev/null
}
pin() { # NAME: of its public key
    printf 'sha256//%s' "$(openssl x509 -in "$dir/$1.pem" -noout -pubkey |
        openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl enc -base64)"
}
certificate right IP:127.0.0.1
certificate other IP:127.0.0.1
certificate elsewhere DNS:example.org

export GS_ACCESS_KEY_ID=GOOGTEST GS_SECRET_ACCESS_KEY=fake/secret+with=signs
serve() { # NAME: of the certificate it shows
    for pid in $pids; do kill -KILL "$pid"; done
    port=$(free_port)
    python3 "$(dirname "$0")/gcs_fake.py" "$port" "$dir/$1.pem" "$dir/$1.key" >"$dir/fake.log" 2>&1 &
    pids=$!
    until curl -sk -o "$dir/hello" "https://127.0.0.1:$port/"; do
        servers_run || exit 1
        sleep 0.1
    done
}
check() { # CODE TEXT OPTIONS
    code=0
    "$program" doctor "gs://bucket/run?endpoint=https://127.0.0.1:$port$3" >"$dir/out" 2>&1 || code=$?
    if [ $code -ne "$1" ] || ! grep -q -- "$2" "$dir/out"; then
        echo "with \"$3\": exit code $code, expected $1 and \"$2\""
        cat "$dir/out"
        exit 1
    fi
}
program=$1
refused="the server's certificate is not trusted"

serve right
check 0 "won: right" "&ca=$dir/right.pem"
check 0 "won: right" "&pin=$(pin right)"
check 3 "$refused" "" # no authority of the system's has signed it
check 3 "$refused" "&ca=$dir/other.pem"
check 3 "$refused" "&pin=$(pin other)"
check 2 "no-such.pem" "&ca=$dir/no-such.pem"
serve elsewhere
check 3 "$refused" "&ca=$dir/elsewhere.pem" # signed, but for another name
check 0 "won: right" "&pin=$(pin elsewhere)" # the key alone is believed
serve right # and big objects, whose parts go unsigned where TLS guards them
CLOUD_TEST_SHORT=1 CLOUD_TEST_URL="gs://bucket?endpoint=https://127.0.0.1:$port&ca=$dir/right.pem" "$2"
