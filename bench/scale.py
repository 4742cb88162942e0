#!/usr/bin/env python3
"""scale.py BUILD RUN TEXT [folder|hub|s3 [quick]]: reading and joining a run of many entries (bench/scale.md).

RUN is a folder that scale_log made. Each command reads it from the folder and through a hub on
loopback. CLOUD_TEST_URL may name a bucket (tests/servers/rgw.sh starts a server and sets it). Then
rclone copies the run there, and each command reads that, too. "quick" leaves out `log` and `verify`
without flags, which read every entry.

Each line has the seconds that passed, the processor seconds of the command and its largest resident
memory. Through the hub it also has the requests and the processor seconds that the command cost
there, and the hub's largest memory so far. The requests do not depend on other work of the machine.
A join ends with the new replica's first contribution; then it is killed, so the run gets a few
objects more. The line `list log` is of bench_list_log, which lists all of log/ by the library's own
store: its seconds are of the listing alone."""
import os, re, shutil, subprocess, sys, tempfile, time, urllib.request

build, run, text = (os.path.abspath(a) for a in sys.argv[1:4])
only = sys.argv[4] if len(sys.argv) > 4 else None
quick = sys.argv[5:] == ["quick"]
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


def get(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


class Hub:
    """A hub that serves RUN's folder, and its counters since the last `begin`."""

    def __init__(self):
        self.process = subprocess.Popen([program, "serve", os.path.dirname(run), "--listen", "127.0.0.1:0"],
                                        stdout=subprocess.PIPE, text=True)
        found = None
        while not found: found = re.search(r"http://[0-9.:]+", self.process.stdout.readline())
        self.origin = found.group()

    def requests(self):
        """Requests that the hub has answered. The scrape itself counts after it."""
        text = get(self.origin + "/metrics").decode()
        return sum(int(n) for n in re.findall(r"^diloco_hub_requests_total{.*} (\d+)$", text, re.M))

    def begin(self):
        self.asked, self.cpu = self.requests(), cpu_of(self.process.pid)

    def end(self):
        cpu = cpu_of(self.process.pid) - self.cpu
        return (f"  hub {self.requests() - self.asked - 1:6} requests {cpu:6.2f} s "
                f"{high_water(self.process.pid):6.1f} MB")


class NoHub:
    """In the place of a hub where none is used."""
    def begin(self): pass
    def end(self): return ""


def measured(store, what, process, begun, hub, ready=lambda: False):
    """Waits until the process ends, or until `ready` says so and the process is killed."""
    memory, ended, killed = 0, 0, False
    while not ended:
        memory = max(memory, high_water(process.pid))
        if not killed and ready():
            process.kill()
            killed = True
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        time.sleep(0.002)  # some commands end within 20 ms
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not killed: sys.exit(f"scale.py: {what} exits with {process.returncode}")
    print(f"{store:7} {what:22} {time.monotonic() - begun:8.2f} s  cpu "
          f"{usage.ru_utime + usage.ru_stime:7.2f} s  memory {memory:6.1f} MB{hub.end()}", flush=True)


def command(store, url, what, hub):
    hub.begin()
    begun = time.monotonic()
    name, *flags = what.split()
    process = subprocess.Popen([program, name, url, *flags], stdout=subprocess.DEVNULL)
    measured(store, what, process, begun, hub)


def join(store, url, hub):
    """A new replica joins; it is stopped when its record has a contribution."""
    folder = tempfile.mkdtemp(dir=work)
    record = os.path.join(folder, "record.jsonl")
    hub.begin()
    begun = time.monotonic()
    process = subprocess.Popen(
        [program, "join", url, "--quiet", "--rank", "900", "--record", record, "--set",
         f"data.train_path={text}"], cwd=folder, stdout=subprocess.DEVNULL)
    def contributed():
        return os.path.exists(record) and '"event":"contribution"' in open(record).read()

    measured(store, "join", process, begun, hub, contributed)


def listing(store, url, hub):
    """bench_list_log prints its own memory, since it may end before it is looked at."""
    hub.begin()
    done = subprocess.run([os.path.join(build, "bench", "bench_list_log"), url], stdout=subprocess.PIPE, text=True)
    if done.returncode: sys.exit(f"scale.py: bench_list_log exits with {done.returncode}")
    print(f"{store:7} {'list log':22} {done.stdout.strip()}{hub.end()}", flush=True)


def hub_alone(hub, name):
    """The first and second scrape of /metrics, and the status that the hub itself reports."""
    for what, path in (("metrics", "/metrics"), ("metrics", "/metrics"),
                       ("status", f"/status.json?run={name}"),
                       ("status", f"/status.json?run={name}")):
        before, begun = cpu_of(hub.process.pid), time.monotonic()
        get(hub.origin + path)
        print(f"hub     {'/' + what:22} {time.monotonic() - begun:8.2f} s  "
              f"hub {cpu_of(hub.process.pid) - before:6.2f} s")


def everything(store, url, hub):
    listing(store, url, hub)
    for what in ("status", "log --last 20", "verify --from-snapshot"): command(store, url, what, hub)
    join(store, url, hub)
    for what in [] if quick else ["log", "verify"]: command(store, url, what, hub)


def through_folder():
    everything("folder", run, NoHub())


def through_hub():
    hub, name = Hub(), os.path.basename(run)
    try:
        hub_alone(hub, name)
        everything("hub", f"{hub.origin}/{name}", hub)
    finally:
        hub.process.terminate()
        hub.process.wait()


def through_s3():
    bucket, _, options = os.environ["CLOUD_TEST_URL"].partition("?")
    name = os.path.basename(run)
    remote = (f":s3,provider=Ceph,env_auth=true,endpoint='{os.environ['S3_TEST_ENDPOINT']}':"
              f"{bucket.removeprefix('s3://')}/{name}")
    begun = time.monotonic()
    # rclone refuses a certificate bundle of the environment; on loopback none is needed
    environment = {k: v for k, v in os.environ.items() if k != "AWS_CA_BUNDLE"}
    subprocess.run(["rclone", "copy", "--quiet", "--transfers", "32", "--checkers", "32",
                    "--s3-no-check-bucket", run, remote], check=True, env=environment)
    print(f"s3      copied in {time.monotonic() - begun:.0f} s", flush=True)
    everything("s3", f"{bucket}/{name}?{options}", NoHub())


WAYS = {"folder": through_folder, "hub": through_hub, "s3": through_s3}
if "CLOUD_TEST_URL" not in os.environ: del WAYS["s3"]
for way in [only] if only else WAYS: WAYS[way]()
shutil.rmtree(work)
