#!/usr/bin/env python3
"""scale.py BUILD RUN TEXT [folder|hub|s3]: time of reading and joining a run of many entries (bench/scale.md).

RUN is a folder that scale_log made. Each command reads it from the folder and through a hub on
loopback. CLOUD_TEST_URL may name a bucket (tests/servers/rgw.sh starts a server and sets it). Then
rclone copies the run there, and each command reads that, too. Each line has the seconds that
passed, the processor seconds of the command, its largest resident memory, and the processor seconds
and the largest memory of the hub so far. A join ends with the new replica's first contribution; then
it is killed. The line `list log` is of bench_list_log, which lists all of log/ by the library's own
store: its seconds are of the listing alone."""
import os, re, shutil, subprocess, sys, tempfile, time, urllib.request

build, run, text = (os.path.abspath(a) for a in sys.argv[1:4])
only = sys.argv[4] if len(sys.argv) > 4 else None
program = os.path.join(build, "diloco")
work = tempfile.mkdtemp()


def cpu_of(pid):
    """Processor seconds that a living process has used."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def high_water(pid):
    """Largest resident memory in MB so far, of the program alone: ru_maxrss has its parent's, too."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return int(re.search(r"VmHWM:\s*(\d+)", f.read()).group(1)) / 1024
    except (OSError, AttributeError):  # it has just ended
        return 0


def of_hub(hub, before):
    """Return the processor seconds that a command has cost the hub, and its largest memory so far."""
    if not hub: return ""
    return f"  hub {cpu_of(hub.pid) - before:6.2f} s {high_water(hub.pid):6.1f} MB"


def measured(store, what, process, begun, hub, hub_before, ready=lambda: False):
    """Waits until the process ends, or until `ready` says so and the process is killed."""
    memory, ended, killed = 0, 0, False
    while not ended:
        memory = max(memory, high_water(process.pid))
        if not killed and ready():
            process.kill()
            killed = True
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not killed: sys.exit(f"scale.py: {what} exits with {process.returncode}")
    print(f"{store:7} {what:8} {time.monotonic() - begun:8.2f} s  cpu "
          f"{usage.ru_utime + usage.ru_stime:7.2f} s  memory {memory:6.1f} MB{of_hub(hub, hub_before)}", flush=True)


def command(store, url, what, hub):
    before = cpu_of(hub.pid) if hub else None
    begun = time.monotonic()
    process = subprocess.Popen([program, what, url], stdout=subprocess.DEVNULL)
    measured(store, what, process, begun, hub, before)


def join(store, url, hub):
    """A new replica joins; it is stopped when its record has a contribution."""
    folder = tempfile.mkdtemp(dir=work)
    record = os.path.join(folder, "record.jsonl")
    before = cpu_of(hub.pid) if hub else None
    begun = time.monotonic()
    process = subprocess.Popen(
        [program, "join", url, "--quiet", "--rank", "900", "--record", record, "--set",
         f"data.train_path={text}"], cwd=folder, stdout=subprocess.DEVNULL)
    def contributed():
        return os.path.exists(record) and '"event":"contribution"' in open(record).read()

    measured(store, "join", process, begun, hub, before, contributed)


def listing(store, url, hub):
    """bench_list_log prints its own memory, since it may end before it is looked at."""
    before = cpu_of(hub.pid) if hub else None
    done = subprocess.run([os.path.join(build, "bench", "bench_list_log"), url], stdout=subprocess.PIPE, text=True)
    if done.returncode: sys.exit(f"scale.py: bench_list_log exits with {done.returncode}")
    print(f"{store:7} list log {done.stdout.strip()}{of_hub(hub, before)}", flush=True)


def get(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def hub_alone(hub, origin, name):
    """The first and second scrape of /metrics, and the status that the hub itself reports."""
    for what, path in (("metrics", "/metrics"), ("metrics", "/metrics"),
                       ("status", f"/status.json?run={name}"),
                       ("status", f"/status.json?run={name}")):
        before, begun = cpu_of(hub.pid), time.monotonic()
        get(origin + path)
        print(f"hub     /{what:7} {time.monotonic() - begun:8.2f} s  hub {cpu_of(hub.pid) - before:6.2f} s")


def everything(store, url, hub=None):
    listing(store, url, hub)
    for what in ("status", "verify", "log"): command(store, url, what, hub)
    join(store, url, hub)


def through_folder():
    everything("folder", run)


def through_hub():
    hub = subprocess.Popen([program, "serve", os.path.dirname(run), "--listen", "127.0.0.1:0"],
                           stdout=subprocess.PIPE, text=True)
    try:
        found = None
        while not found: found = re.search(r"http://[0-9.:]+", hub.stdout.readline())
        origin, name = found.group(), os.path.basename(run)
        hub_alone(hub, origin, name)
        everything("hub", f"{origin}/{name}", hub)
        with open(f"/proc/{hub.pid}/status") as f:
            print("hub     largest memory", re.search(r"VmHWM:\s*(.*)", f.read()).group(1))
    finally:
        hub.terminate()
        hub.wait()


def through_s3():
    bucket, _, options = os.environ["CLOUD_TEST_URL"].partition("?")
    remote = (f":s3,provider=Ceph,env_auth=true,endpoint='{os.environ['S3_TEST_ENDPOINT']}':"
              f"{bucket.removeprefix('s3://')}/run")
    begun = time.monotonic()
    # rclone refuses a certificate bundle of the environment; on loopback none is needed
    environment = {k: v for k, v in os.environ.items() if k != "AWS_CA_BUNDLE"}
    subprocess.run(["rclone", "copy", "--quiet", "--transfers", "32", "--checkers", "32",
                    "--s3-no-check-bucket", run, remote], check=True, env=environment)
    print(f"s3      copied in {time.monotonic() - begun:.0f} s", flush=True)
    everything("s3", f"{bucket}/run?{options}")


WAYS = {"folder": through_folder, "hub": through_hub, "s3": through_s3}
if "CLOUD_TEST_URL" not in os.environ: del WAYS["s3"]
for way in [only] if only else WAYS: WAYS[way]()
shutil.rmtree(work)
