#!/bin/sh
# hf.sh COMMAND…: inside rgw.sh, start a gateway as Hugging Face's Storage Buckets have one (hf_front.py) in front of
# Ceph, and run the command with CLOUD_TEST_URL and keys of the gateway. The real service was not there for the tests.
set -eu
. "$(dirname "$0")/lib.sh"

export HF_TEST_SECRET=hf/secret+with=signs
python3 "$(dirname "$0")/hf_front.py" "$dir" 2>"$dir/front.log" &
pids=$!
until [ -s "$dir/ports" ]; do
    servers_run || exit 1
    sleep 0.1
done
export CLOUD_TEST_URL="hf://buckets/alice/bucket?endpoint=http://127.0.0.1:$(cut -d' ' -f1 "$dir/ports")"
export AWS_ACCESS_KEY_ID=HFAKTEST AWS_SECRET_ACCESS_KEY=$HF_TEST_SECRET
"$@"
! grep "^refused" "$dir/front.log" >&2 || exit 1
