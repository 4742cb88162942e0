#!/bin/sh
# swift.sh COMMAND…: start OpenStack Swift on loopback: one proxy with s3api and tempauth, one
# account, container and object server (Debian's python3-swift). It answers 501 to a conditional
# PUT, so the probe must refuse this store. Variables as of rgw.sh. Exit 77 when it is not
# installed.
set -eu
. "$(dirname "$0")/lib.sh"
python=/usr/bin/python3
$python -c 'import swift.common.middleware.s3api.s3api' 2>/dev/null ||
    left_out "OpenStack Swift: no python3-swift (scripts/packages.sh servers)"

mkdir "$dir/etc" "$dir/disks" "$dir/disks/one" "$dir/cache"
cat >"$dir/etc/swift.conf" <<CONF
[swift-hash]
swift_hash_path_suffix = test
[storage-policy:0]
name = only
default = yes
CONF
port=$(free_port)
cat >"$dir/etc/proxy.conf" <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $port
swift_dir = $dir/etc
user = $(id -un)
workers = 0
log_level = ERROR
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats s3api tempauth copy dlo slo proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:9
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:copy]
use = egg:swift#copy
[filter:dlo]
use = egg:swift#dlo
[filter:slo]
use = egg:swift#slo
[filter:proxy-logging]
use = egg:swift#proxy_logging
CONF

# Rings of one replica on one disk, by Swift's own library.
swift_ring() {
    $python - "$dir/etc/$1.ring.gz" "$2" <<'RING'
import sys
from swift.common.ring import RingBuilder
builder = RingBuilder(3, 1, 0)
builder.add_dev({"id": 0, "region": 1, "zone": 1, "weight": 1, "ip": "127.0.0.1", "port": int(sys.argv[2]), "device": "one"})
builder.rebalance(seed="1")
builder.get_ring().save(sys.argv[1])
RING
}

run_wsgi() {
    SWIFT_DIR=$dir/etc $python - "$1" "$2" >"$dir/$2.log" 2>&1 <<'WSGI' &
import os, sys
from swift.common import utils
utils.SWIFT_CONF_FILE = os.path.join(os.environ["SWIFT_DIR"], "swift.conf")
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(sys.argv[1], sys.argv[2], verbose=True))
WSGI
    pids="$pids $!"
}

server_ports=
for kind in account container object; do
    server_port=$(free_port)
    server_ports="$server_ports $server_port"
    swift_ring $kind "$server_port"
    cat >"$dir/etc/$kind.conf" <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $server_port
swift_dir = $dir/etc
devices = $dir/disks
mount_check = false
user = $(id -un)
workers = 0
log_level = ERROR
[pipeline:main]
pipeline = $kind-server
[app:$kind-server]
use = egg:swift#$kind
CONF
    run_wsgi "$dir/etc/$kind.conf" $kind-server
done
# A proxy that finds one of them silent does not ask it again for a minute.
for server_port in $server_ports; do
    started "$server_port"
done
run_wsgi "$dir/etc/proxy.conf" proxy-server
started
export AWS_ACCESS_KEY_ID=test:tester AWS_SECRET_ACCESS_KEY=testing AWS_REGION=us-east-1
export S3_TEST_ENDPOINT="http://127.0.0.1:$port"
python3 "$(dirname "$0")/s3_admin.py" PUT /bucket
export CLOUD_TEST_URL="s3://bucket?endpoint=$S3_TEST_ENDPOINT"
export REFUSED_BECAUSE="answered 501"
"$@"
