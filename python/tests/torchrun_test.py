"""torchrun_test.py - python -m diloco.torchrun: islands of two ranks on this machine, as ssh and as
Slurm start them. Skips itself (77) without torch."""
import importlib.util
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

import diloco
from diloco import torchrun

if importlib.util.find_spec("torch") is None:
    print("left out: islands by torchrun (no torch)")
    sys.exit(77)

SCRIPT = """
import os, sys, torch, torch.distributed as dist, diloco
from torch.distributed.fsdp import fully_shard
store, replica = sys.argv[1:]
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 2))
fully_shard(model)
inner = torch.optim.SGD(model.parameters(), lr=.1)
with diloco.DiLoCoOptimizer(model, inner, store, replica, replicas=2, sync_every=3, rounds=2,
                            run__patience=240) as opt:
    while not opt.done:
        model(torch.randn(4, 6)).square().mean().backward()
        opt.step()
        opt.zero_grad()
assert os.environ["DILOCO_REPLICA"] == replica
# One write a line: torchrun's ranks are not buffered and share their output.
os.write(1, f"{replica} rank {dist.get_rank()} of {dist.get_world_size()} ended\\n".encode())
dist.destroy_process_group()
"""
SSH = """#!/bin/sh
# A substitute for ssh: notes the machine and runs the command here.
[ "$1 $2 $3" = "-tt -o BatchMode=yes" ] || exit 2
echo "$4" >>machines
exec sh -c "$5"
"""


class Islands(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "train.py").write_text(SCRIPT)
        (self.folder / "ssh").write_text(SSH)
        (self.folder / "ssh").chmod(stat.S_IRWXU)

    def start(self, *words, **env):
        return subprocess.Popen(
            [sys.executable, "-m", "diloco.torchrun", *map(str, words)], cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                 "PYTHONPATH": os.path.abspath(os.environ.get("PYTHONPATH", "")),
                 "GLOO_SOCKET_IFNAME": "lo", **env})

    def test_two_machines_by_ssh_train_one_model(self):
        process = self.start("--on", "ssh://a,user@b", "--nproc-per-node", 2, "train.py", "run",
                             "{replica}")
        said, _ = process.communicate()
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(sorted((self.folder / "machines").read_text().split()), ["a", "user@b"])
        for replica in ("r0", "r1"):
            for rank in range(2):
                self.assertIn(f"{replica}: {replica} rank {rank} of 2 ended\n", said)
        run = diloco.run(self.folder / "run")
        self.assertEqual([row["members"] for row in run.history()], [["r0.0000", "r1.0000"]] * 2)
        self.assertTrue(run.verify()["complete"])

    def test_a_task_of_slurm_is_the_replica_of_its_number(self):
        (self.folder / "train.py").write_text(
            "import os, sys; e = os.environ\n"  # one write a line, as above
            "os.write(1, f\"{sys.argv[1:]} {e['DILOCO_REPLICA']} {e['RANK']}\\n\".encode())")
        process = self.start("--nproc-per-node=2", "train.py", "--out={replica}", SLURM_PROCID="3")
        said, _ = process.communicate()
        self.assertEqual(process.returncode, 0, said)
        for rank in range(2):
            self.assertIn(f"['--out=r3'] r3 {rank}\n", said)

    def test_an_island_that_fails_is_started_again(self):
        (self.folder / "train.py").write_text("import pathlib, sys; p = pathlib.Path('failed')\n"
                                              "p.exists() or (p.touch(), sys.exit(9))")
        process = self.start("--on", "local:1", "--restarts", 1, "train.py")
        said, _ = process.communicate()
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("exitcode  : 9", said)

    def test_an_island_that_fails_is_named_and_a_signal_ends_all(self):
        (self.folder / "train.py").write_text("import sys; sys.exit(3)")
        process = self.start("--on", "local:1", "--nproc-per-node", 1, "train.py")
        said, _ = process.communicate()
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("r0 with exit code 1", said)
        (self.folder / "train.py").write_text("import time; print('here', flush=True)\n"
                                              "time.sleep(1000)")
        process = self.start("--on", "local:2", "train.py")
        found = [process.stdout.readline() for _ in range(2)]
        self.assertEqual(sorted(found), ["r0: here\n", "r1: here\n"])
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual(process.returncode, 130)

    def test_a_worker_that_an_ended_torchrun_has_left_is_killed(self):
        """The shell ends at once, as torchrun does while it starts its workers."""
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; from diloco import torchrun\n"
             "sys.exit(torchrun._Islands(0).wait([['sh', '-c', sys.argv[1]]]))",
             "setsid sleep 1000 & echo here; wait"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "r0: here\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(), ("", None))
        self.assertEqual(process.returncode, 130)


class Words(unittest.TestCase):
    def test_own_options_end_where_torchruns_begin(self):
        theirs = ["--nproc-per-node", "2", "t.py", "--replica", "x"]
        self.assertEqual(torchrun.own_options(["--on=local:2", "--replica", "r7", *theirs]),
                         ({"--on": "local:2", "--replica": "r7"}, theirs))
        for words in (["--on"], ["--on", "local:2"], []):
            with self.assertRaises(diloco.InvalidError):
                torchrun.own_options(words)

    def test_places_that_are_none_are_refused(self):
        for on in ("local", "local:0", "ssh://", "ssh://a,,b", "ssh://-oProxyCommand=x", "slurm"):
            with self.assertRaisesRegex(diloco.InvalidError, "ssh://HOST,HOST or local:N"):
                torchrun.commands(on, ["t.py"])
        self.assertRegex(torchrun.commands("ssh://a", ["a b.py"])[0][-1], "--replica r0 'a b.py'$")


if __name__ == "__main__":
    unittest.main()
