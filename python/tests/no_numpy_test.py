"""no_numpy_test.py - torch without numpy is enough: training, the log's tensors, a resume, and an
island of two ranks. Skips itself (77) without torch."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

if importlib.util.find_spec("torch") is None:
    print("left out: torch without numpy (no torch)")
    sys.exit(77)

# torch looks for numpy when it is imported, so the import fails from the first line on.
HIDE_NUMPY = """
import os, sys
sys.modules["numpy"] = None
import warnings
warnings.simplefilter("ignore")  # torch says that it has no numpy
import torch, diloco
try:
    torch.zeros(1).numpy()
except RuntimeError:
    pass
else:
    raise AssertionError("torch has found numpy")
"""

TRAIN = """
def life(upto):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    with diloco.DiLoCoOptimizer(model, inner, "run", sync_every=2, rounds=3) as opt:
        while not opt.done and opt.run.now.step < upto:
            model(torch.randn(3, 4)).pow(2).mean().backward()
            opt.step()
            opt.zero_grad()
        shared = opt.run.theta()["weight"]
        assert torch.equal(torch.frombuffer(shared, dtype=torch.float32).view(2, 4), model.weight)
        return opt.binding.resumed, model.weight.detach().clone()


assert not life(2)[0]
resumed, weight = life(6)
assert resumed
theta = diloco.run("run").theta()
assert sorted(theta) == ["bias", "weight"]
assert theta["weight"].tolist() == weight.tolist()
"""

ISLAND = """
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
model = torch.nn.Linear(4, 2)
inner = torch.optim.SGD(model.parameters(), lr=0.01)
with diloco.DiLoCoOptimizer(model, inner, "island", sync_every=2, rounds=2,
                            group=dist.group.WORLD) as opt:
    while not opt.done:
        model(torch.ones(3, 4)).pow(2).mean().backward()
        opt.step()
        opt.zero_grad()
dist.destroy_process_group()
# torch.optim keeps the group and its threads after that call, also without diloco. A thread of gloo that
# frees a tensor while Python ends aborts the process.
os._exit(0)
"""


class NoNumpy(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def start(self, code, *arguments):
        script = self.folder / "script.py"
        script.write_text(HIDE_NUMPY + textwrap.dedent(code))
        return subprocess.Popen([sys.executable, script, *map(str, arguments)], cwd=self.folder,
                                stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})

    def check(self, *processes):
        said = [p.communicate()[1] for p in processes]
        for p, text in zip(processes, said):
            self.assertEqual(p.returncode, 0, text)

    def test_training_and_a_resume_need_no_numpy(self):
        self.check(self.start(TRAIN))

    def test_an_island_of_two_ranks_needs_no_numpy(self):
        self.check(*[self.start(ISLAND, rank, self.folder / "rendezvous") for rank in range(2)])


if __name__ == "__main__":
    unittest.main()
