"""docs_test.py - every Python block of docs/python.md and of the README runs as it is printed, in an
empty folder. So do the commands of the pages for PyTorch's trainers, with small data in place of the
words in capitals. A block that needs what is not installed (its second word) is left out."""
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from forks import Interpreter

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, README = ROOT / "docs/python.md", ROOT / "README.md"
NEEDS = {"torch": ["torch"], "transformers": ["torch", "transformers", "accelerate"],
         "lightning": ["torch", "lightning"], "accelerate": ["torch", "accelerate"],
         "trl": ["torch", "trl"],
         "peft": ["torch", "transformers", "peft"]}
SLOW = {"torch": ["torch", "torch._dynamo"]}  # many blocks need it, so it is imported once for all


def blocks(page):
    return re.findall(r"^```python ?(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)


class Page(unittest.TestCase):
    def test_every_block_of_the_page_runs(self):
        self.check(PAGE, 3)

    def test_the_readmes_loop_runs(self):
        self.check(README, 0)
        self.assertIn("diloco.DiLoCoOptimizer(", "".join(code for _, code in blocks(README)))

    def check(self, page, at_least):
        run = 0
        interpreters = {}
        for need, code in blocks(page):
            missing = [m for m in NEEDS.get(need, []) if importlib.util.find_spec(m) is None]
            if missing:
                print(f"left out: a block of {page.name} (no {', '.join(missing)})")
                continue
            with self.subTest(code=code.splitlines()[0]), tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "block.py"
                script.write_text(code)
                if need not in interpreters:
                    interpreters[need] = Interpreter(*SLOW.get(need, []))
                    self.addCleanup(interpreters[need].close)
                done = interpreters[need].start([script], folder, stderr=subprocess.STDOUT)
                said, _ = done.communicate()
                self.assertEqual(done.returncode, 0, said)
                run += 1
        self.assertGreaterEqual(run, at_least)

    def test_the_page_says_what_the_package_has(self):
        import diloco
        text = PAGE.read_text()
        for name in re.findall(r"diloco\.([A-Za-z_]+)\(", text):
            self.assertIn(name, diloco.__all__)


# Replacements with which the commands run on a CPU with small data.
SMALL = [(r"\b(HOST|0\.0\.0\.0):8080\b", "127.0.0.1:{port}"), (r"\bFILE\b", "text.txt"),
         (r"\bMODEL\b", "model"), (r"\bDATA\b", "texts"), (r"--sync_every \d+", "--sync_every 3"),
         (r"--rounds \d+", "--rounds 2"), (r"--out_dir", "--max_iters=50 --block_size=16 --out_dir"),
         (r"--store runs/chars", "--store runs/chars --rounds 2"),
         (r"--learning_rate 2e-5", "--use_cpu True --bf16 False --gradient_checkpointing False "
          "--max_length 32 --per_device_train_batch_size 2 --report_to none --save_strategy no")]
ELSEWHERE = ("srun ", "python -m diloco.torchrun --on ssh:", "diloco.peft.save(")


@unittest.skipUnless(importlib.util.find_spec("torch"), "no torch")
class HowTo(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "python").symlink_to(ROOT / "python")
        (self.folder / "bin").mkdir()
        self.servers = []

    def stop(self):
        for number in self.servers:
            os.kill(number, signal.SIGTERM)

    def program(self, name, command):
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o755)

    def run_block(self, code, descriptor, env):
        """Run the commands as a shell does, and wait for those that run beside others."""
        lines = ["set -e"]
        for line in code.splitlines():
            lines += [line, 'jobs="$jobs $!"'] if line.endswith("&") else [line]
        serves = "diloco serve" in code
        lines.append("echo $jobs > servers" if serves else 'for job in $jobs; do wait $job; done')
        log = self.folder / "log"
        with open(log, "w") as out:
            code = subprocess.run(["sh", "-c", "\n".join(lines)], cwd=self.folder, stdout=out,
                                  stderr=out, pass_fds=[descriptor], env=env).returncode
        if serves:
            self.servers += map(int, (self.folder / "servers").read_text().split())
        self.assertEqual(code, 0, log.read_text())

    def check(self, page, folder, wanted):
        """Run the blocks with this mark. Those without a mark are for other machines."""
        from diloco import _program
        port = subprocess.check_output([sys.executable, ROOT / "tests/free_port.py"], text=True).strip()
        self.program("diloco", _program.path())
        self.program("torchrun", f"{sys.executable} -m torch.distributed.run")
        interpreter = Interpreter("torch", "torch._dynamo", env={"CUDA_VISIBLE_DEVICES": ""})
        self.addCleanup(interpreter.close)
        self.addCleanup(self.stop)  # before that, since they have its descriptor
        descriptor = interpreter.as_python(self.folder / "bin/python")
        env = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
               "HF_HUB_OFFLINE": "1", "HF_HOME": str(self.folder), "OMP_NUM_THREADS": "1",
               "CUDA_VISIBLE_DEVICES": ""}
        text = (ROOT / "docs/how-to" / page).read_text()
        for need, code in re.findall(r"^```(?:sh (\w+))?\n(.*?)^```$", text, re.M | re.S):
            if not need:
                self.assertTrue(code.startswith(ELSEWHERE), code)
                continue
            self.assertIn(need, NEEDS)
            if need != wanted:
                continue
            for words, small in [*SMALL, (r"\bFOLDER\b", folder)]:
                code = re.sub(words, small.replace("{port}", port), code)
            with self.subTest(code=code.splitlines()[0]):
                self.run_block(code, descriptor, env)

    def members(self, run):
        import diloco
        return [len(row["members"]) for row in diloco.run(run).history()]

    def has(self, need):
        missing = [m for m in NEEDS[need] if importlib.util.find_spec(m) is None]
        if missing:
            print(f"left out: the commands for {need} (no {', '.join(missing)})")
            self.skipTest(f"no {missing[0]}")

    def trainers(self, need, *runs):
        self.has(need)
        (self.folder / "data").mkdir(exist_ok=True)
        self.check("pytorch-trainers.md", "data", need)
        for run in runs:
            self.assertEqual(set(self.members(self.folder / "runs" / run)), {2}, run)

    def test_commands_for_plain_loops_run_with_two_replicas_and_one_island(self):
        from example_data import tokens_of_bytes
        (self.folder / "data").mkdir()
        tokens_of_bytes(self.folder / "data")
        self.trainers("torch", "gpt", "chars")
        self.assertTrue((self.folder / "more/step-20").is_dir())

    def test_commands_for_trl_run_with_two_replicas(self):
        self.has("trl")
        from example_data import paragraphs, small_llama
        small_llama(self.folder / "model")
        paragraphs(self.folder / "texts")
        self.trainers("trl", "sft")

    def test_commands_for_lightning_and_accelerate_run_with_two_replicas(self):
        from example_data import drawn_digits
        (self.folder / "data").mkdir()
        drawn_digits(self.folder / "data")
        for need in ("lightning", "accelerate"):
            with self.subTest(need):
                self.trainers(need, need)

    def test_commands_for_adapters_run(self):
        self.has("peft")
        from example_data import small_llama
        small_llama(self.folder / "model")
        (self.folder / "text.txt").write_bytes((ROOT / "docs/round.md").read_bytes()[:4000])
        self.check("adapter.md", "model", "peft")
        self.assertTrue((self.folder / "tuned/adapter_model.safetensors").is_file())


if __name__ == "__main__":
    unittest.main()
