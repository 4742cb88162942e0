#!/usr/bin/env python3
"""The tables of docs/launch.md have the resources and the states of the executors' sources.

Resources: a cell is a dash where the executor does not use the option, and no dash where it does. States: a word in
backquotes is in the source's table with the state of its column, and no word of that table is left out."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {"local": "local.c", "ssh": "ssh.c", "slurm": "slurm.c", "k8s": "cloud/k8s/k8s.c", "hf-jobs": "cloud/hf_jobs.c",
           "sagemaker": "cloud/sagemaker.c", "vertex": "cloud/vertex.c", "runpod": "cloud/runpod.c",
           "azureml": "cloud/azureml.c", "skypilot": "cloud/skypilot.c", "modal": "cloud/modal.c"}
STATES = {"slurm": "slurm_state.c", **{name: SOURCES[name] for name in (
    "hf-jobs", "sagemaker", "vertex", "runpod", "azureml", "skypilot")}}
# States that follow from two words of SageMaker.
BESIDE = {"sagemaker": {"MaxRuntimeExceeded": "FAILED", "MaxWaitTimeExceeded": "FAILED"}}


def source(name):
    return (ROOT / "src/launch" / name).read_text("utf-8")


def table(begin):
    """The table whose header begins so: cells by name of the row and of the column."""
    lines = (ROOT / "docs/launch.md").read_text("utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(begin))
    rows = {}
    columns = [cell.strip(" `") for cell in lines[first].strip("|").split("|")][1:]
    for line in lines[first + 2:]:
        if not line.startswith("|"):
            return rows
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == len(columns) + 1, line
        for name in re.findall("`([^`]+)`", cells[0]):
            rows[name] = dict(zip(columns, cells[1:]))
    raise AssertionError(begin)


def uses(name, option):
    """Does the executor use the option? timeout is an option of every executor that does not leave it out."""
    text = source(SOURCES[name])
    own = "".join(re.findall(r'"([^"]*)"', re.search(r"\.options = (.*?),\n", text, re.S)[1]))
    without = re.search(r'\.without = "([^"]*)"', text)
    return f"|{option}|" in own or option == "timeout" and not (without and "|timeout|" in without[1])


def main():
    resources = table("| executor | `cpus`")
    assert set(resources) == set(SOURCES), set(resources) ^ set(SOURCES)
    for name, row in resources.items():
        for option, cell in row.items():
            assert (cell != "–") == uses(name, option), f"docs/launch.md: {name}: launch.{option} is \"{cell}\""
    states = table("| executor | PENDING")
    assert set(states) | {"local", "ssh"} == set(SOURCES), set(states) ^ set(SOURCES)
    for name, file in STATES.items():
        ours = {word.removeprefix("JOB_STATE_"): state
                for word, state in re.findall(r'\{"(\w+)", DL_JOB_(\w+)', source(file))} | BESIDE.get(name, {})
        theirs = [(word, state) for state, cell in states[name].items() for word in re.findall("`(\\w+)`", cell)]
        assert len(theirs) == len(dict(theirs)), f"docs/launch.md: {name}: a state in two columns"
        different = set(theirs) ^ set(ours.items())
        assert not different, f"docs/launch.md: {name}: {sorted(different)}"


if __name__ == "__main__":
    main()
