#!/bin/sh
# awscli, s3cmd and rclone against the hub's S3 side, over plain HTTP and (awscli) TLS.
. "$(dirname "$0")/lib.sh"

# This machine's own settings of these tools stay out.
unset AWS_PROFILE AWS_CA_BUNDLE AWS_ENDPOINT_URL http_proxy HTTP_PROXY || true
export AWS_ACCESS_KEY_ID=AKIDHUB AWS_SECRET_ACCESS_KEY=s3cret-of-the-hub AWS_DEFAULT_REGION=us-east-1
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true
echo "$AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY" >keys

serve() { # SCHEME FLAG…
    scheme=$1
    shift
    : >serve.out
    diloco serve hub --listen 127.0.0.1:0 --s3-keys keys "$@" >serve.out 2>serve.err &
    hub=$!
    started="$started $hub"
    wait_for grep -q '^serving ' serve.out
    endpoint=$scheme://$(sed -n 's/^serving .*\(127.0.0.1:[0-9]*\).*/\1/p' serve.out)
}
serve http

mkdir -p tree/sub
echo small >tree/small
echo deeper >tree/sub/deeper
head -c 20000000 /dev/urandom >tree/sub/large # more than one part for all three

aws_round_trip() { # BUCKET
    expect 0 aws --endpoint-url "$endpoint" s3 mb "s3://$1"
    expect 0 aws --endpoint-url "$endpoint" s3 cp --recursive --no-progress tree "s3://$1/tree"
    expect 0 aws --endpoint-url "$endpoint" s3 ls --recursive "s3://$1"
    [ "$(wc -l <out)" = 3 ] || fail "aws s3 ls lists $(wc -l <out) of 3"
    rm -rf back
    expect 0 aws --endpoint-url "$endpoint" s3 cp --recursive --no-progress "s3://$1/tree" back
    diff -r tree back || fail "aws s3 cp brings back something else"
    expect 0 aws --endpoint-url "$endpoint" s3api head-object --bucket "$1" --key tree/small
    expect 0 aws --endpoint-url "$endpoint" s3api list-objects --bucket "$1" --delimiter /
    expect 0 aws --endpoint-url "$endpoint" s3api list-objects-v2 --bucket "$1" --page-size 1
    [ "$(grep -c '"Key"' out)" = 3 ] || fail "list-objects-v2 by pages of 1"
    cmp -s "hub/$1/tree/sub/large" tree/sub/large || fail "the object is not the file"
    expect 0 aws --endpoint-url "$endpoint" s3 rm --recursive "s3://$1"
    expect 0 aws --endpoint-url "$endpoint" s3 rb "s3://$1"
    [ ! -e "hub/$1" ] || fail "aws s3 rb leaves the bucket"
}

if command -v aws >/dev/null; then
    aws_round_trip of-aws
    # Version 1 of the AWS CLI exits with 255 here, version 2 with 254.
    if AWS_SECRET_ACCESS_KEY=wrong aws --endpoint-url "$endpoint" s3 ls >out 2>err; then
        fail "a wrong secret is taken"
    fi
    grep -q SignatureDoesNotMatch err || fail "a wrong secret is not reported: $(cat err)"
else
    echo "left out: awscli"
fi

if command -v s3cmd >/dev/null; then
    cat >s3cfg <<CFG
[default]
access_key = $AWS_ACCESS_KEY_ID
secret_key = $AWS_SECRET_ACCESS_KEY
host_base = ${endpoint#http://}
host_bucket = ${endpoint#http://}
use_https = False
CFG
    expect 0 s3cmd -c s3cfg mb s3://of-s3cmd
    expect 0 s3cmd -c s3cfg put --recursive --multipart-chunk-size-mb=5 tree s3://of-s3cmd/
    expect 0 s3cmd -c s3cfg ls --recursive s3://of-s3cmd
    [ "$(wc -l <out)" = 3 ] || fail "s3cmd ls lists $(wc -l <out) of 3"
    rm -rf back && mkdir back
    expect 0 s3cmd -c s3cfg get --recursive s3://of-s3cmd/tree back/
    diff -r tree back/tree || fail "s3cmd get brings back something else"
    expect 0 s3cmd -c s3cfg info s3://of-s3cmd/tree/small
    expect 0 s3cmd -c s3cfg del --recursive --force s3://of-s3cmd
    expect 0 s3cmd -c s3cfg rb s3://of-s3cmd
else
    echo "left out: s3cmd"
fi

if command -v rclone >/dev/null; then
    export RCLONE_CONFIG=/dev/null RCLONE_CONFIG_HUB_TYPE=s3 RCLONE_CONFIG_HUB_PROVIDER=Other
    export RCLONE_CONFIG_HUB_ENDPOINT="$endpoint"
    export RCLONE_CONFIG_HUB_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID
    export RCLONE_CONFIG_HUB_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY
    expect 0 rclone mkdir hub:of-rclone
    expect 0 rclone copy --s3-upload-cutoff 6M --s3-chunk-size 6M tree hub:of-rclone/tree
    expect 0 rclone check --download tree hub:of-rclone/tree
    expect 0 rclone sync tree hub:of-rclone/tree # nothing has changed
    expect 0 rclone cat hub:of-rclone/tree/sub/deeper
    [ "$(cat out)" = deeper ] || fail "rclone cat"
    rm -rf back
    expect 0 rclone copy hub:of-rclone/tree back
    diff -r tree back || fail "rclone copy brings back something else"
    expect 0 rclone purge hub:of-rclone
    [ ! -e hub/of-rclone ] || fail "rclone purge leaves the bucket"
else
    echo "left out: rclone"
fi

# Over TLS awscli may send a body in aws-chunked framing.
if command -v aws >/dev/null; then
    kill "$hub"
    wait "$hub" || true
    expect 0 diloco serve --make-cert
    serve https --cert hub.pem --key hub.key
    AWS_CA_BUNDLE=$PWD/hub.pem
    export AWS_CA_BUNDLE
    expect 0 aws --endpoint-url "$endpoint" s3api create-bucket --bucket of-tls
    expect 0 aws --endpoint-url "$endpoint" s3 cp --recursive --no-progress tree s3://of-tls/tree
    rm -rf back
    expect 0 aws --endpoint-url "$endpoint" s3 cp --recursive --no-progress s3://of-tls/tree back
    diff -r tree back || fail "over TLS aws s3 cp brings back something else"
fi
