#!/bin/sh
# gcs.sh COMMAND…: start the fake of Google Cloud Storage (gcs_fake.py; there is no real one to be
# had) on loopback and run the command with CLOUD_TEST_URL and HMAC keys.
set -eu
. "$(dirname "$0")/lib.sh"

port=$(free_port)
export GS_ACCESS_KEY_ID=GOOGTEST GS_SECRET_ACCESS_KEY=fake/secret+with=signs
python3 "$(dirname "$0")/gcs_fake.py" "$port" >"$dir/gcs.log" 2>&1 &
pids=$!
started
export CLOUD_TEST_URL="gs://bucket?endpoint=http://127.0.0.1:$port"
"$@"
