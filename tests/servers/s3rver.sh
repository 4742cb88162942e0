#!/bin/sh
# s3rver.sh COMMAND…: start npm's s3rver on loopback, which accepts every conditional PUT and shows
# objects that are still being written: a store that the probe must refuse. Variables as of rgw.sh.
# Exit 77 when it is not installed.
set -eu
. "$(dirname "$0")/lib.sh"
npm_program s3rver

port=$(free_port)
# It signs continuation tokens with a cipher of old.
NODE_OPTIONS=--openssl-legacy-provider "$program" -s -a 127.0.0.1 -p "$port" -d "$dir" --configure-bucket bucket >"$dir/s3rver.log" 2>&1 &
pids=$!
started
export AWS_ACCESS_KEY_ID=S3RVER AWS_SECRET_ACCESS_KEY=S3RVER AWS_REGION=us-east-1
export S3_TEST_ENDPOINT="http://127.0.0.1:$port"
export CLOUD_TEST_URL="s3://bucket?halves=yes&endpoint=$S3_TEST_ENDPOINT"
export REFUSED_BECAUSE="of 8 concurrent creates of one name win"
"$@"
