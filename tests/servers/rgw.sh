#!/bin/sh
# rgw.sh COMMAND…: start a Ceph RADOS gateway on loopback (one monitor, one OSD in memory, no
# cephx; Debian's ceph-mon, ceph-osd, radosgw), run the command with
#
#     CLOUD_TEST_URL      s3://bucket?endpoint=…, the bucket made
#     S3_TEST_ENDPOINT    http://127.0.0.1:PORT
#     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION
#
# and stop all of it. Exit 77, saying "left out: …", when the packages are not there.
set -eu

. "$(dirname "$0")/lib.sh"
for program in ceph-mon ceph-osd radosgw radosgw-admin monmaptool ceph; do
    command -v $program >/dev/null ||
        left_out "Ceph RGW: no $program (scripts/packages.sh servers)"
done

# quiet COMMAND…: its output is shown only where it fails. A command of Ceph waits for the servers
# without a limit, so it is killed when one of them has ended.
quiet() {
    "$@" >"$dir/output" 2>&1 & command=$!
    while runs $command; do
        servers_run || { kill -KILL $command; exit 1; }
        sleep 0.1
    done
    wait $command || { status=$? && echo "rgw.sh: $1 exits with $status:" && tail -n 20 "$dir/output"; exit 1; } >&2
}

mon_port=$(free_port)
port=$(free_port)
fsid=$(cat /proc/sys/kernel/random/uuid)
export CEPH_CONF=$dir/ceph.conf
mkdir "$dir/mon" "$dir/osd" "$dir/rgw" "$dir/run"

# Debian 13's ceph looks for them relative to the working folder.
classes=$(find /usr/lib /usr/lib64 -maxdepth 2 -name rados-classes 2>/dev/null | head -n 1)

cat >"$CEPH_CONF" <<CONF
[global]
fsid = $fsid
mon_host = [v1:127.0.0.1:$mon_port]
mon_initial_members = a
public_addr = 127.0.0.1
ms_bind_ipv6 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = $dir/run
log_file = $dir/\$name.log
log_to_stderr = false
err_to_stderr = false
admin_socket = $dir/run/\$name.asok
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
[mon.a]
mon_data = $dir/mon
mon_cluster_log_file = $dir/cluster.log
[osd.0]
osd_data = $dir/osd
osd_objectstore = memstore
${classes:+osd_class_dir = $classes}
osd_class_update_on_start = false
osd_crush_update_on_start = false
memstore_device_bytes = 4294967296
osd_max_object_size = 134217728
[client.rgw]
rgw_data = $dir/rgw
rgw_frontends = beast endpoint=127.0.0.1:$port tcp_nodelay=1
rgw_enable_usage_log = false
rgw_thread_pool_size = 32
rgw_rados_pool_pg_num_min = 1
CONF

monmaptool --create --addv a "[v1:127.0.0.1:$mon_port]" --fsid "$fsid" "$dir/monmap" >/dev/null
ceph-mon --mkfs -i a --monmap "$dir/monmap"
ceph-mon -i a -f & pids="$pids $!"
# The monitor may refuse a right command (EPERM) until it has elected itself, and a command after
# mon stat has failed, too: each is given again until it is accepted.
accepted() {
    until "$@" >"$dir/output" 2>&1; do
        servers_run || { echo "rgw.sh: $* is refused:" && tail -n 20 "$dir/output"; exit 1; } >&2
        sleep 0.2
    done
}
accepted ceph --connect-timeout 20 mon stat
accepted ceph --connect-timeout 20 osd create
quiet ceph-osd --mkfs -i 0
accepted ceph osd crush add osd.0 1.0 root=default host=here
ceph-osd -i 0 -f >/dev/null 2>&1 & pids="$pids $!"
export AWS_ACCESS_KEY_ID=TESTKEY AWS_SECRET_ACCESS_KEY=test/Secret+with=signs AWS_REGION=us-east-1
quiet radosgw-admin user create --uid=test --display-name=test \
    --access-key="$AWS_ACCESS_KEY_ID" --secret-key="$AWS_SECRET_ACCESS_KEY"
radosgw -n client.rgw -f >/dev/null 2>&1 & pids="$pids $!"
export S3_TEST_ENDPOINT=http://127.0.0.1:$port
started
python3 "$(dirname "$0")/s3_admin.py" PUT /bucket
export CLOUD_TEST_URL="s3://bucket?endpoint=$S3_TEST_ENDPOINT"
"$@"
