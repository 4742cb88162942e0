#!/bin/sh
# diloco launch --on skypilot with a recorder in place of the command sky. A run completes after a kill and an outage.
# Refusals are named. A secret is in no argument.
. "$(dirname "$0")/cloud_lib.sh"
serve_hub
store=$hub/cut
mkdir -p api/logs sky
ln -s "$project/tests/launch/fake_sky.py" sky/sky
SKY_FAKE=$PWD/api PATH=$PWD/sky:$PATH
export SKY_FAKE
cat >>tiny.toml <<TOML
[launch]
executor = "skypilot"
image = "docker.io/alice/diloco:0.2"
poll = 0.2
TOML

# A dry run prints the command, and runs nothing.
expect 0 diloco launch tiny.toml --store "$store" --dry-run --set launch.spot=true --set launch.gpus=2 \
    --set launch.gpu_type=L4 --set launch.memory=100 --set launch.cpus=9 --set launch.region=aws/us-east-1
grep -q '^sky jobs launch --yes --detach-run --name diloco-newrunid-r0-g0 --image-id ' out || fail "not the command: $(cat out)"
grep -q -- "--infra aws/us-east-1 --gpus .*L4:2.* --cpus .*9+.* --memory .*100+.* --use-spot" out || fail "not the machine"
grep -q -- "--secret DILOCO_HUB_TOKEN" out || fail "not the secret's name"
sent_nothing
pins=$(for i in 1 2 3 4 5 6 7 8; do printf 'sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA%s=;' "$i"; done)
expect 0 env "DILOCO_HUB_PIN=$pins" diloco launch tiny.toml --store "$store" --dry-run
grep -qF -- "DILOCO_HUB_PIN=$pins" out || fail "a list of pins is cut: $(cat out)"

# Refusals name the option or the cause.
expect_error 2 'launch.image is not set' diloco launch tiny.toml --store "$store" --set launch.image=
expect_error 2 'launch.gpus and launch.gpu_type together' diloco launch tiny.toml --store "$store" --set launch.gpus=1
expect_error 3 'launch.timeout' diloco launch tiny.toml --store "$store" --set launch.timeout=60
expect_error 2 'no program sky here' env PATH="$work/bin" diloco launch tiny.toml --store "$store"
expect_error 3 'ended with exit code 1: no cloud has docker:docker.io/nowhere' \
    diloco launch tiny.toml --store "$store" --set launch.image=docker.io/nowhere
for version in 0.13.2 0.15.0 0.99.0.dev20260101 1.14.0; do
    echo $version >api/version
    expect_error 3 "SkyPilot $(echo $version | cut -d. -f1,2) is not known here: pip install 'skypilot==0.14.*'" \
        diloco launch tiny.toml --store "$store"
done
echo unknown >api/version
expect_error 3 'sky --version printed no version of SkyPilot' diloco launch tiny.toml --store "$store"
rm api/version
touch api/no-cloud
expect_error 3 'SkyPilot has no enabled cloud: run  sky check' diloco launch tiny.toml --store "$store"
rm api/no-cloud
expect_error 3 "Invalid region 'moon-1'" diloco launch tiny.toml --store "$store" --set launch.region=aws/moon-1
says '; check launch.region'
expect_error 1 'FAILED_NO_RESOURCE: Failed to acquire resources in all zones: quota exceeded' \
    diloco launch tiny.toml --store "$hub/none" --set launch.gpus=8 --set launch.gpu_type=H200
echo 6 >api/clock # hours that SkyPilot's clock is ahead: its states alone count
launch_again
kill_in_outage name 'FAILED: To see the details'
expect 0 diloco launch logs "$store" --rank 1
grep -q . out || fail "no output of r1"
no_secret_elsewhere
long_logs "api/jobs/$(of_rank_1 id)/log"
fits skypilot

store=$hub/other
echo -6 >api/clock
cancels

# One replica cannot be asked to stop: the other is asked, and the error is reported.
store=$hub/third
launcher --set trainer.rounds=9000
wait_for grep -q '^r0: RUNNING' launch.out # the book has the ids
wait_for grep -q '^r1: RUNNING' launch.out
id_of() { grep -l -- "-r$1-g0" api/jobs/*/name | sed 's|.*jobs/||; s|/name||' | sort -n | tail -1; }
id_of 0 >api/no-cancel
expect_error 4 'is unreachable' diloco launch cancel "$store"
wait_for [ -e "api/jobs/$(id_of 1)/cancelled" ]
rm api/no-cancel
ended 130
expect 0 diloco launch collect "$store"

store=$hub/fourth
cancels_by 0.15.0 'SkyPilot 0.15 is not known here: it starts no replica.'
