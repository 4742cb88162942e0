#!/usr/bin/env python3
"""The tables of docs/launch.md have the resources and the states of the executors' sources.

Resources: a cell is a dash where the executor does not use the option, and no dash where it does. Each word in backquotes
is one that the source sends with the value of that option. States: a word in backquotes is in the source's table with the
state of its column, and no word of that table is left out. k8s and modal have no words for states: their cells have a phrase
for each call that sets one."""
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {"local": "local.c", "ssh": "ssh.c", "slurm": "slurm.c", "k8s": "cloud/k8s/k8s.c", "hf-jobs": "cloud/hf_jobs.c",
           "sagemaker": "cloud/sagemaker.c", "vertex": "cloud/vertex.c", "runpod": "cloud/runpod.c",
           "azureml": "cloud/azureml.c", "skypilot": "cloud/skypilot.c", "modal": "cloud/modal.c"}
STATES = {"slurm": "slurm_state.c", **{name: SOURCES[name] for name in (
    "hf-jobs", "sagemaker", "vertex", "runpod", "azureml", "skypilot")}}
# The file that writes the resources, if it is another one.
SENDERS = {"slurm": "slurm_commands.c", "k8s": "cloud/k8s/k8s_job.c"}
# Members of the configuration by option, where they have other names.
MEMBERS = {"memory": "memory_gb", "disk": "disk_gb", "timeout": "timeout_s"}
# Cells without a word that is sent.
ELSEWHERE = {"the host of the API", "the keeper stops the replica"}
# Calls that set a state, by a part of their text, and the phrase of the cell.
CALLS = {
    "modal": [("RUNNING", '"%s", ""', "no exit code yet"),
              ("CANCELLED", "stopped on request", "stopped by `launch`"),
              ("FAILED", "launch.timeout is over", "`launch.timeout`"),
              ("LOST", "stopped by Modal after a day", "the limit of a day"),
              ("LOST", "no longer knows this sandbox", "a sandbox that is gone"),
              ("SUCCEEDED", "dl_cloud_set_ended", "exit code 0"), ("FAILED", "dl_cloud_set_ended", "another exit code"),
              ("LOST", "dl_cloud_set_ended", "a signal")],
    "k8s": [("PENDING", "suspended: waits for its queue", "no pod, a suspended Job"),
            ("PENDING", '"%.200s", message', "a pod without a node"),
            ("STARTING", "reason, *message", "a container that waits"),
            ("RUNNING", '"on %s"', "the phase Running"),
            ("RUNNING", "the cluster takes its pod away", "the phase Running"),
            ("RUNNING", "its pod has ended", "an end that the Job does not have yet"),
            ("SUCCEEDED", "exit code 0", "the index is in `completedIndexes`"),
            ("CANCELLED", '"its Job was deleted"', "the Job was deleted"),
            ("CANCELLED", '"stopped"', "the Job was deleted"),
            ("FAILED", "OOM", "OOMKilled of a pod that was not evicted"),
            ("FAILED", "read_words(words, end)", "StartError"),
            ("FAILED", "launch.timeout is over", "the Job's deadline"),
            ("FAILED", "dl_cloud_set_ended", "an exit code"), ("LOST", "dl_cloud_set_ended", "a signal"),
            ("LOST", "its pod is gone", "a pod that is gone"),
            ("LOST", '"%s", words', "one with a reason of its own (Evicted, OutOfcpu) or the condition DisruptionTarget")],
}
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


def statements(function):
    """(statement, members of the configuration) of a function: those that the statement or the `if` around it names, also
    by a variable."""
    variables, guards = {}, []
    for text, end in re.findall(r'((?:"(?:\\.|[^"\\])*"|/\*.*?\*/|[^;{}"])*)([;{}])', function, re.S):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        code = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
        members = set(re.findall(r"\blaunch_(\w+)", code)).union(
            *(variables.get(name, ()) for name in re.findall(r"\b\w+\b", code)))
        assigned = re.search(r"\b(\w+) = ", code) or re.search(r"\bsnprintf\((\w+)", code)
        if assigned:
            variables[assigned[1]] = members
        yield text, members.union(*guards)
        if end == "{":
            guards.append(members if "if (" in code else set())
        elif end == "}" and guards:
            guards.pop()


def sent(name):
    """The words that the executor sends with the value of each member of the configuration."""
    words = collections.defaultdict(set)
    for function in re.split(r"\n}\n", source(SENDERS.get(name, SOURCES[name]))):
        flag = None
        for text, members in statements(function):
            literals = re.findall(r'"((?:\\.|[^"\\])*)"', text)
            for member in members:
                words[member].update(literals + ([flag] if flag else []))
            flag = literals[0] if re.fullmatch(r'\s*add\(w, "--[\w-]+"\)', text) else None
    return words


def check_resources(name, row, words):
    for option, cell in row.items():
        place = f"docs/launch.md: {name}: launch.{option} is \"{cell}\""
        assert (cell != "–") == uses(name, option), place
        quoted = re.findall("`([^`]+)`", cell)
        assert quoted or cell == "–" or cell in ELSEWHERE, place
        for word in quoted:
            pattern = re.escape(word.rpartition(".")[2] if word.startswith("limits.") else word).removesuffix("N")
            if word.startswith("--"):
                pattern += r"(=?%.*)?"
            assert any(re.fullmatch(pattern, literal) for literal in words[MEMBERS.get(option, option)]), \
                f"{place}, and the source does not send {word} with it"


def check_calls(name, row):
    text = source(SOURCES[name]) + (source(SENDERS[name]) if name in SENDERS else "")
    calls = re.findall(r"dl_job_set\(\S+ DL_JOB_(\w+), (.*?)\);", text, re.S)
    rows = CALLS[name]
    assert "dl_cloud_set_ended(job" in text
    for state, call in calls:
        found = [row for row in rows if row[0] == state and row[1] in call]
        assert len(found) == 1, f"tables.py: {name}: {state} by {call} has {len(found)} rows"
    for state, part, _ in rows:
        assert part == "dl_cloud_set_ended" or any(state == s and part in call for s, call in calls), \
            f"tables.py: {name}: no call sets {state} by {part}"
    for state, cell in row.items():
        rest = cell
        for phrase in sorted({row[2] for row in rows if row[0] == state}, key=len, reverse=True):
            assert phrase in rest, f"docs/launch.md: {name}: {state} has not \"{phrase}\""
            rest = rest.replace(phrase, "")
        assert not set(re.findall(r"\w+", rest)) - {"and", "or"}, f"docs/launch.md: {name}: {state} has also \"{rest}\""


def main():
    resources = table("| executor | `cpus`")
    assert set(resources) == set(SOURCES), set(resources) ^ set(SOURCES)
    for name, row in resources.items():
        check_resources(name, row, sent(name))
    states = table("| executor | PENDING")
    assert set(states) | {"local", "ssh"} == set(SOURCES), set(states) ^ set(SOURCES)
    for name in CALLS:
        check_calls(name, states[name])
    for name, file in STATES.items():
        ours = {word.removeprefix("JOB_STATE_"): state
                for word, state in re.findall(r'\{"(\w+)", DL_JOB_(\w+)', source(file))} | BESIDE.get(name, {})
        theirs = [(word, state) for state, cell in states[name].items() for word in re.findall("`(\\w+)`", cell)]
        assert len(theirs) == len(dict(theirs)), f"docs/launch.md: {name}: a state in two columns"
        different = set(theirs) ^ set(ours.items())
        assert not different, f"docs/launch.md: {name}: {sorted(different)}"


if __name__ == "__main__":
    main()
