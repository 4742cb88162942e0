#!/bin/sh
# diloco launch --on modal with a recorder in place of the command modal. A run completes after a kill and an outage.
# Refusals are named. A secret is in no argument and in no script.
. "$(dirname "$0")/cloud_lib.sh"
serve_hub
store=$hub/cut
mkdir -p api/logs modal
ln -s "$project/tests/launch/fake_modal.py" modal/modal
MODAL_FAKE=$PWD/api PATH=$PWD/modal:$PATH
export MODAL_FAKE
cat >>tiny.toml <<TOML
[launch]
executor = "modal"
image = "docker.io/alice/diloco:0.2"
poll = 0.2
TOML

# A dry run prints the script, and runs nothing.
expect 0 diloco launch tiny.toml --store "$store" --dry-run --set launch.gpus=2 --set launch.gpu_type=L4 \
    --set launch.memory=100 --set launch.cpus=9 --set launch.region=eu --set launch.timeout=3600
grep -q '^modal run --quiet - <<' out || fail "not the command: $(cat out)"
grep -q '\\"timeout\\":3600,\\"cpu\\":9,\\"memory\\":95367,\\"region\\":\\"eu\\",\\"gpu\\":\\"L4:2\\"' out || fail "not the machine"
grep -q '\\"secrets\\":\[\\"DILOCO_HUB_TOKEN\\"\]' out || fail "not the secret's name"
sent_nothing

# Refusals name the option or the cause.
expect_error 2 'launch.image is not set' diloco launch tiny.toml --store "$store" --set launch.image=
expect_error 2 'launch.gpus and launch.gpu_type together' diloco launch tiny.toml --store "$store" --set launch.gpus=1
expect_error 2 'launch.timeout = 2419201: Modal stops a sandbox after 86400 seconds at the latest' \
    diloco launch tiny.toml --store "$store" --set launch.timeout=2419201
expect_error 2 'no program modal here' env PATH="$work/bin" diloco launch tiny.toml --store "$store"
: >api/no-token
expect_error 3 'Token missing' diloco launch tiny.toml --store "$store"
says 'modal setup  makes a token'
rm api/no-token
for version in 2.0.0 2.0rc1 1.7.0 1.16.0 1.5.9 0.73.1 nightly; do
    echo $version >api/version
    expect_error 3 "modal run: version $version of modal is not known here: pip install 'modal==1.6.*'" \
        diloco launch tiny.toml --store "$store"
done
[ ! -e api/sandboxes ] || fail "a version that is not known has created a sandbox"
echo 1.6.17.dev3 >api/version
expect_error 3 'modal: no registry has docker.io/nowhere' \
    diloco launch tiny.toml --store "$store" --set launch.image=docker.io/nowhere
expect_error 3 'modal: moon is no region; check launch.region' \
    diloco launch tiny.toml --store "$store" --set launch.region=moon
expect_error 3 'may have 4 GPUs of type B200; ask for a higher quota, or take another machine or region' \
    diloco launch tiny.toml --store "$store" --set launch.gpus=8 --set launch.gpu_type=B200
launch_again
diloco launch logs "$store" --rank 0 --follow >followed 2>followed.err &
following=$!
started="$started $following"
wait_for [ -s followed ] # an outage would end it before
kill_in_outage name
expect 0 diloco launch logs "$store" --rank 1
grep -q . out || fail "no output of r1"

# A log that was followed is whole, without repetitions. It is the same one if Modal's clock is hours or weeks off.
wait "$following" || fail "a log cannot be followed: $(cat followed.err)"
for ahead in 0 21600 -21600 2000000 -4000000; do
    echo $ahead >api/clock
    expect 0 diloco launch logs "$store" --rank 0
    cmp followed out || fail "another output of r0 with a clock that is $ahead s ahead"
done
expect 0 diloco launch logs "$store" --rank 0 --follow
cmp followed out || fail "another output of r0 by --follow after its end"
no_secret_elsewhere
long_logs "api/sandboxes/$(of_rank_1 id)/log"

store=$hub/other
cancels
store=$hub/third
cancels_by 2.0rc1 'version 2.0rc1 of modal is not known here: it starts no replica.'
fits modal
