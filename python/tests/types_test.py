"""types_test.py - the package's annotations hold: mypy --strict. Skips itself without mypy."""
import pathlib
import subprocess
import sys

if __name__ == "__main__":
    try:
        import mypy  # noqa: F401
    except ImportError:
        print("left out: the types of the Python package (no mypy)")
        sys.exit(77)
    sys.exit(subprocess.run([sys.executable, "-m", "mypy", "--cache-dir=/dev/null"],
                            cwd=pathlib.Path(__file__).resolve().parents[1]).returncode)
