"""ports.py - a port of loopback for the ranks that a test starts."""
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "free_port.py"


def free_port():
    """One without a listener; tests/free_port.py says which."""
    return int(subprocess.check_output([sys.executable, SCRIPT]))
