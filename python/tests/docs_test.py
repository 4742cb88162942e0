"""docs_test.py - every Python block of docs/python.md and of the README runs as it is printed, in an
empty folder. A block that needs what is not installed (its second word) is left out."""
import importlib.util
import pathlib
import re
import subprocess
import tempfile
import unittest

from forks import Interpreter

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, README = ROOT / "docs/python.md", ROOT / "README.md"
NEEDS = {"torch": ["torch"], "transformers": ["torch", "transformers", "accelerate"],
         "lightning": ["torch", "lightning"],
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


if __name__ == "__main__":
    unittest.main()
