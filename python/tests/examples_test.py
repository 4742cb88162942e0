"""examples_test.py - the scripts in python/examples run. Skips itself (77) without torch. A script that
needs transformers, the program or MNIST's files is left out without them."""
import ast
import importlib.util
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import diloco
import forks
from diloco import _program
from example_data import (DATA, drawn_digits, paragraphs, small_llama, tokenizer_of_bytes,
                          tokens_of_bytes)

if importlib.util.find_spec("torch") is None:
    print("left out: the Python package's examples (no torch)")
    sys.exit(77)
ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "python/examples"
HOW_TO = ROOT / "docs/how-to/pytorch-trainers.md"
MNIST, LLAMA = DATA / "mnist", DATA / "hf-tiny-llama"
TRANSFORMERS = all(importlib.util.find_spec(m) for m in ("transformers", "accelerate"))
PEFT = TRANSFORMERS and importlib.util.find_spec("peft") is not None
LIGHTNING = importlib.util.find_spec("lightning") is not None
TRL = TRANSFORMERS and importlib.util.find_spec("trl") is not None
if not TRL:
    print("left out: the example with TRL's SFT trainer (no trl)")
if not LIGHTNING:
    print("left out: the example with Lightning's Trainer (no lightning)")
if not PEFT:
    print("left out: the example that trains an adapter (no peft)")
if TRANSFORMERS and not LLAMA.is_dir():
    print("left out: the example with a small Llama's own files (no hf-tiny-llama in DILOCO_DATA)")
if not TRANSFORMERS:
    print("left out: the example with Hugging Face's Trainer (no transformers and accelerate)")


# The scripts take a GPU where there is one. The tests keep them on the CPU.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def start(folder, *command):
    """A program, or `torchrun`."""
    return subprocess.Popen([str(c) for c in command], cwd=folder, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, **ENVIRONMENT, "HF_HOME": str(folder)})


class Pages(unittest.TestCase):
    NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
               "fifteen sixteen seventeen eighteen nineteen twenty").split()

    def added(self, script):
        """The number of marked lines. No other line of the code mentions the package."""
        text = (EXAMPLES / script).read_text()
        lines = text.splitlines()[ast.parse(text).body[0].end_lineno:]  # after the docstring
        marked = [line for line in lines if re.search(r" # diloco(:|$)", line)]
        self.assertEqual([line for line in lines if "diloco" in line and line not in marked], [])
        return len(marked)

    def test_each_page_s_script_marks_the_lines_that_it_says_and_at_most_60(self):
        page = re.sub(r"\s+", " ", HOW_TO.read_text())
        said = dict(re.findall(r"`(\w+\.py)`\]\([^)]*\) marks its (\w+) added lines", page))
        scripts = ["train_gpt.py", "fsdp_dcp.py", "finetune_llama.py", "sft_trl.py",
                   "mnist_lightning.py", "mnist_accelerate.py"]
        for script in scripts:
            with self.subTest(script=script):
                n = self.added(script)
                self.assertLessEqual(n, 60)
                word = self.NUMBERS[n] if n < len(self.NUMBERS) else str(n)
                self.assertEqual(said.get(script), word)


    def test_each_script_leaves_the_device_to_its_library(self):
        for script in EXAMPLES.glob("*.py"):
            found = re.findall(r"use_cpu|cpu=True|no_cuda|accelerator=|device=\"", script.read_text())
            self.assertEqual(found, [], script.name)


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        home = tempfile.TemporaryDirectory()
        cls.addClassCleanup(home.cleanup)
        cls.interpreter = forks.Interpreter("torch", "torch._dynamo",
                                            env={**ENVIRONMENT, "HF_HOME": home.name})
        cls.addClassCleanup(cls.interpreter.close)

    def script(self, name, *arguments):
        return self.interpreter.start([EXAMPLES / name, *arguments], self.folder)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def said(self, process):
        out, _ = process.communicate()
        self.assertEqual(process.returncode, 0, out)
        return out

    def test_char_gpt_learns_the_documentation(self):
        out = self.said(self.script("char_gpt.py", "--store", f"file://{self.folder}/run", "--rounds", 3))
        before, after = map(float, re.search(r"loss ([0-9.]+), .* ([0-9.]+)$", out).groups())
        self.assertLess(after, before - 1)
        self.assertEqual(len(diloco.run(self.folder / "run").history()), 3)

    def test_two_replicas_by_nanogpts_loop_end_with_one_model(self):
        import torch
        data = tokens_of_bytes(self.folder)
        replicas = [self.script("train_gpt.py", f"--data={data}", f"--replica=r{r}", f"--out_dir=out{r}",
                                "--max_iters=75", "--block_size=32", "--store=run")
                    for r in range(2)]
        for out in [self.said(p) for p in replicas]:
            losses = [float(loss) for loss in re.findall(r"val loss ([0-9.]+)", out)]
            self.assertLess(losses[-1], losses[0] - 1.5)
        ends = [torch.load(self.folder / f"out{r}/ckpt.pt")["model"] for r in range(2)]
        for name, values in ends[0].items():
            self.assertTrue(torch.equal(values, ends[1][name]), name)
        self.assertEqual([len(row["members"]) for row in
                          diloco.run(self.folder / "run").history()], [2] * 3)

    def test_nanogpts_loop_waits_for_its_losses_at_due_points_only(self):
        from diloco import _copies
        from late_device import Late
        late, step, waits = Late(1), diloco.DiLoCoOptimizer.step, []
        losses = mock.Mock(wraps=late.loss)
        late.loss = losses

        def counted(optimizer):
            waits.append(late.n_waits)
            step(optimizer)
        data = tokens_of_bytes(self.folder)
        words = [f"--data={data}", f"--out_dir={data}/out", f"--store={data}/run", "--replicas=1",
                 "--max_iters=12", "--sync_every=4", "--block_size=8", "--n_embd=16", "--n_layer=1",
                 "--eval_iters=1", "--device=cpu"]
        with mock.patch.object(_copies, "queue", late), \
                mock.patch.object(diloco.DiLoCoOptimizer, "step", counted), \
                mock.patch.object(sys, "argv", ["train_gpt.py", *words]):
            runpy.run_path(str(EXAMPLES / "train_gpt.py"), run_name="__main__")
        self.assertEqual(losses.call_count, 12)
        between = [after - before for before, after in zip(waits, waits[1:])]
        self.assertEqual([n for i, n in enumerate(between, 1) if i % 4], [0] * 9)
        self.assertTrue(all("Tensor" in type(c.args[0]).__name__ for c in losses.call_args_list))

    def fsdp(self, *arguments):
        return self.said(start(self.folder, sys.executable, "-W", "ignore", "-m",
                               "torch.distributed.run", "--rdzv-backend", "c10d",
                               "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1",
                               "--nproc-per-node", 2, EXAMPLES / "fsdp_dcp.py", *arguments))

    def test_fsdp_ranks_train_and_their_dcp_checkpoint_begins_another_run(self):
        import torch
        import torch.distributed.checkpoint as dcp
        out = self.fsdp("run", "r0", "kept")
        self.assertIn("20 steps", out)
        theta = diloco.run(self.folder / "run").theta()
        model = {name: torch.zeros(getattr(values, "shape", ()))
                 for name, values in theta.items() if not name.startswith("diloco.")}
        dcp.load({"model": model}, checkpoint_id=self.folder / "kept/step-20")
        for name, values in model.items():
            self.assertEqual(values.flatten().tolist(),
                             memoryview(theta[name]).cast("B").cast("f").tolist())
        self.fsdp("second", "r0", "again", "--from", "kept/step-20")
        losses = [[row["loss"] for row in diloco.run(self.folder / name).history()]
                  for name in ("run", "second")]
        self.assertLess(losses[1][0], losses[0][0] - 0.5)  # it has learnt something already

    def test_mnist(self):
        data = MNIST
        if not data.is_dir():
            print("left out: MNIST itself, drawn digits are in its place (no files)")
            data = drawn_digits(self.folder)
        out = self.said(self.script("mnist.py", data))
        self.assertGreater(float(out.split()[1]), 0.85)

    def check_two_replicas(self, script, data):
        """Both members of every entry, and one model in the end."""
        replicas = [self.script(script, data, "run", f"r{r}") for r in range(2)]
        first, second = [self.said(p) for p in replicas]
        self.assertEqual(first, second)
        self.assertGreater(float(first.split()[1]), 0.8)
        self.assertEqual([len(row["members"]) for row in
                          diloco.run(self.folder / "run").history()], [2] * 6)

    @unittest.skipUnless(TRANSFORMERS, "no accelerate")
    def test_two_replicas_by_accelerates_loop_end_with_one_model(self):
        self.check_two_replicas("mnist_accelerate.py",
                                MNIST if MNIST.is_dir() else drawn_digits(self.folder))

    @unittest.skipUnless(LIGHTNING, "no lightning")
    def test_two_replicas_by_lightnings_trainer_end_with_one_model(self):
        self.check_two_replicas("mnist_lightning.py",
                                MNIST if MNIST.is_dir() else drawn_digits(self.folder))

    def test_mnist_by_100_logical_clients(self):
        data = MNIST
        if not data.is_dir():
            print("left out: MNIST itself for clients, drawn digits are in its place (no files)")
            data = drawn_digits(self.folder)
        script = "mnist_clients.py"
        self.assertLessEqual(len((EXAMPLES / script).read_text().splitlines()), 50)
        out = self.said(self.script(script, data))
        self.assertGreater(float(out.split()[1]), 0.7)
        rows = diloco.run(self.folder / "runs/clients").history()
        self.assertEqual([len(row["members"]) for row in rows], [20] * 20)

    @unittest.skipUnless(TRL, "no trl")
    def test_two_replicas_by_trls_trainer_save_one_model(self):
        model, data = small_llama(self.folder / "model"), paragraphs(self.folder / "data")
        words = ["--model_name_or_path", model, "--dataset_name", data, "--max_length", 64,
                 "--per_device_train_batch_size", 4, "--learning_rate", 0.01, "--logging_steps", 1,
                 "--report_to", "none", "--save_strategy", "no", "--use_cpu", "True", "--bf16",
                 "False", "--gradient_checkpointing", "False", "--store", "run", "--replicas", 2,
                 "--sync_every", 6, "--rounds", 3]
        replicas = [self.script("sft_trl.py", *words, "--replica", r, "--output_dir", f"out{r}")
                    for r in range(2)]
        for out in [self.said(p) for p in replicas]:
            losses = [float(loss) for loss in re.findall(r"'loss': '?([0-9.]+)", out)]
            self.assertLess(losses[-1], losses[0] - 1)
        saved = [(self.folder / f"out{r}/model.safetensors").read_bytes() for r in range(2)]
        self.assertEqual(saved[0], saved[1])
        self.assertEqual([len(row["members"]) for row in
                          diloco.run(self.folder / "run").history()], [2] * 3)

    @unittest.skipUnless(TRL and PEFT, "no trl or no peft")
    def test_an_adapter_by_trls_trainer_is_all_that_is_exchanged(self):
        model, data = small_llama(self.folder / "model"), paragraphs(self.folder / "data")
        self.said(self.script(
            "sft_trl.py", "--model_name_or_path", model, "--dataset_name", data, "--max_length", 32,
            "--per_device_train_batch_size", 2, "--report_to", "none", "--save_strategy", "no",
            "--use_cpu", "True", "--bf16", "False", "--gradient_checkpointing", "False", "--store",
            "run", "--sync_every", 2, "--rounds", 2, "--output_dir", "out", "--use_peft",
            "--lora_target_modules", "q_proj", "v_proj"))
        theta = diloco.run(self.folder / "run").theta()
        self.assertEqual({name.split(".")[-3] for name in theta if "lora" in name},
                         {"lora_A", "lora_B"})
        self.assertEqual([name for name in theta if "lora" not in name and
                          not name.startswith("diloco.")], [])

    def hub(self):
        hub = start(self.folder, _program.path(), "serve", "hub", "--listen", "127.0.0.1:0")
        self.addCleanup(hub.stdout.close)
        self.addCleanup(hub.wait)
        self.addCleanup(hub.terminate)
        return re.search(r"http://[^ ,]+", hub.stdout.readline())[0]

    @unittest.skipUnless(PEFT, "no peft")
    def test_two_replicas_fine_tune_an_adapter_through_the_hub(self):
        url = self.hub() + "/team/adapter"
        replica = ["finetune_llama.py", url]
        lora = ["--rank", 4, "--out", self.folder / "adapter"]
        late = self.script(*replica, "r1", "--late", 1, "--rank", 4)
        self.said(self.script(*replica, "r0", "--rounds", 30, *lora))
        self.said(late)
        self.assertTrue((self.folder / "adapter/adapter_model.safetensors").stat().st_size > 0)
        whole = sum(4 * 48 * 48 for _ in range(8)) + 4 * 2 * 48 * 96 * 3  # of attention and MLP
        for row in diloco.run(url).history():
            self.assertLess(row["bytes"] / len(row["members"]), whole / 10)
        self.assertTrue(diloco.run(url).verify()["complete"])

    @unittest.skipUnless(TRANSFORMERS, "no transformers")
    def test_a_llama_is_fine_tuned_through_the_hub_and_one_joins_late(self):
        url = self.hub() + "/team/llama"
        replica = ["finetune_llama.py", url]
        late = self.script(*replica, "r1", "--late", 1)
        first = self.script(*replica, "r0", "--rounds", 80)
        steps = {p: int(re.search(r"(\d+) steps", self.said(p))[1]) for p in (first, late)}
        self.assertEqual(steps[first], 400)
        self.assertLess(steps[late], 400)
        rows = diloco.run(url).history()
        self.assertEqual(rows[0]["members"], ["r0.0000"])
        self.assertTrue(any(r["members"] == ["r0.0000", "r1.0000"] for r in rows))
        self.assertTrue(diloco.run(url).verify()["complete"])

    @unittest.skipUnless(TRANSFORMERS and LLAMA.is_dir(), "no transformers, or no small Llama's files")
    def test_a_llama_of_a_folder_trains_on_the_tokens_of_its_tokenizer(self):
        import torch
        from safetensors.torch import load_file
        model = self.folder / "model"
        shutil.copytree(LLAMA, model)
        before = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
        tokens = tokenizer_of_bytes(model, 300)  # no byte of the text is among them
        self.said(self.script("finetune_llama.py", "run", "r0", "--model", model, "--rounds", 1))
        theta = diloco.run(self.folder / "run").theta()["model.embed_tokens.weight"]
        moved = (torch.tensor(theta) != before).any(1).nonzero().flatten().tolist()
        self.assertGreater(len(moved), 20)
        self.assertLessEqual(set(moved), set(tokens))


if __name__ == "__main__":
    unittest.main()
