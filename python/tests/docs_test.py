"""docs_test.py - every Python block of docs/python.md and of the README runs as it is printed, in an
empty folder. A block that needs what is not installed (its second word) is left out."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, README = ROOT / "docs/python.md", ROOT / "README.md"
NEEDS = {"torch": ["torch"], "transformers": ["torch", "transformers", "accelerate"],
         "lightning": ["torch", "lightning"],
         "peft": ["torch", "transformers", "peft"]}


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
        for need, code in blocks(page):
            missing = [m for m in NEEDS.get(need, []) if importlib.util.find_spec(m) is None]
            if missing:
                print(f"left out: a block of {page.name} (no {', '.join(missing)})")
                continue
            with self.subTest(code=code.splitlines()[0]), tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "block.py"
                script.write_text(code)
                done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True,
                                      text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                self.assertEqual(done.returncode, 0, done.stderr)
                run += 1
        self.assertGreaterEqual(run, at_least)

    def test_the_page_says_what_the_package_has(self):
        import diloco
        text = PAGE.read_text()
        for name in re.findall(r"diloco\.([A-Za-z_]+)\(", text):
            self.assertIn(name, diloco.__all__)


if __name__ == "__main__":
    unittest.main()
