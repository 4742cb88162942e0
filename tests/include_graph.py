#!/usr/bin/env python3
"""Hold the sources to the order of folders (docs/architecture.md, section 4).

    include_graph.py [ROOT]       check the tree; one line a violation, then a summary; exit 1
    include_graph.py --self-test  show that each kind of violation is seen

The dl_folder rows of CMakeLists.txt are the law:

  rows     a folder is one row, and uses only folders of rows above it (so there is no cycle)
  src      a quoted include is "folder/x.h", a file that is there, of the folder itself or one it
           uses; public headers come as <diloco/x.h>. Tests may also use tests/, and the folders
           that TESTS of the row names, with what they use.
  cli      speaks to the libraries through <diloco/...>, and may use "base/...", "cli/..." and the
           program's other folders
  public   include/diloco/*.h includes <diloco/...> and the C standard library, nothing else
  names    no two sources or headers of src/ and tests/ have one name; a file's first line begins
           with its name
  size     a directory of src/ has at most 60 files and 7,200 lines, tests not counted
  own      a header of OWN is included by its own folder alone
  door     each folder of src/ has a README.md, which says what it holds and where to begin; the
           folders of GUESTS include only headers of others that those folders' README.md names
  circles  no more than two units of src/ include each other, directly or through others. A unit is
           x.c and x.h of one directory. Tests do not count
"""

import re
import sys
import tempfile
from pathlib import Path

ROW = re.compile(
    r"^dl_folder\(\s*(\w+)\s+USES\b([\w\s]*?)(?:\sLINK\b([\w\s:${}]*?))?(?:\sTESTS\b([\w\s]*?))?\)", re.M
)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".c", ".h", ".cc", ".cu", ".cuh"}
FILES_MAX, LINES_MAX = 60, 7200
UNITS_MAX = 2  # such as x.h, which x_parts.h includes, which x.c includes
OWN = {"nn/enter.h"}  # it opens the memory of a device to operations
GUESTS = {"fed", "gossip"}  # kinds of runs beside train; src/base has tools for all
HEAD = re.compile(r"/\* (\w+\.(?:c|h|cc))\b(?! *\*/)")
C11_HEADERS = {
    f"{name}.h"
    for name in """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp
    signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath
    threads time uchar wchar wctype""".split()
}


def read_rows(root, violations):
    """{folder: folders it uses}, {folder: folders its tests use}, from the rows; wrong rows are
    violations."""
    text = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    rows, tests = {}, {}
    for match in ROW.finditer(text):
        name, uses = match[1], match[2].split()
        where = f"CMakeLists.txt:{text.count(chr(10), 0, match.start()) + 1}"
        if name in rows:
            violations.append(f"{where}: folder {name} has two rows")
        for used in uses:
            if used not in rows:
                violations.append(f"{where}: {name} uses {used}, which has no row above it")
        rows[name] = set(uses)
        tests[name] = (match[4] or "").split()
    n_calls = len(re.findall(r"^dl_folder\(", text, re.M))
    if not rows or n_calls != len(list(ROW.finditer(text))):
        violations.append("CMakeLists.txt:1: dl_folder rows that cannot be read")
    for name, more in tests.items():
        for other in more:
            if other not in rows:
                violations.append(f"CMakeLists.txt:1: tests of {name} use {other}, which has no row")
        tests[name] = set().union(rows[name], *({other} | rows.get(other, set()) for other in more))
    return rows, tests


def includes(path):
    """(line number, '<' or '"', name) of each include."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def fault_in_source(root, rows, folder, is_test, quote, name):
    """The error of an include of src/<folder>, or None. `rows` are those of tests for one."""
    allowed = rows[folder] | {folder}
    if quote == "<":
        if name.startswith("diloco/"):
            return None if (root / "include" / name).is_file() else f"there is no include/{name}"
        target = name.split("/")[0]
        return f'<{name}> is ours: write "{name}"' if (root / "src" / name).is_file() and target in rows else None
    if name.startswith("diloco/"):
        return f"public headers are included as <{name}>"
    if is_test and (root / "tests" / name).is_file():
        return None
    if not (root / "src" / name).is_file():
        return f'there is no src/{name} (includes are "folder/x.h")'
    target = name.split("/")[0]
    if name in OWN and target != folder:
        return f'"{name}" belongs to {target} alone'
    if folder in GUESTS and not is_test and target not in (folder, "base"):
        door = root / "src" / target / "README.md"
        if door.is_file() and f"`{Path(name).name}`" not in door.read_text(encoding="utf-8"):
            return f'"{name}" is not named in src/{target}/README.md, which {folder} is held to'
    if target not in allowed:
        return f'{folder} may not use {target} ("{name}"); it uses: {" ".join(sorted(allowed))}'
    return None


def fault_in_public(root, quote, name):
    if quote == "<" and name.startswith("diloco/"):
        return None if (root / "include" / name).is_file() else f"there is no include/{name}"
    if quote == "<" and name in C11_HEADERS:
        return None
    return f"a public header may include <diloco/...> and the C standard library, not {name}"


def faults_of_names(root):
    seen = {}
    for path in sorted(p for top in ("src", "tests") for p in (root / top).rglob("*") if p.suffix in SOURCES):
        where, first = path.relative_to(root), path.read_text(encoding="utf-8").split("\n", 1)[0]
        if path.name in seen:
            yield f"{where}:1: {seen[path.name]} has this name, too"
        seen.setdefault(path.name, where)
        said = HEAD.match(first)
        if said and said[1] != path.name:
            yield f"{where}:1: its first line says {said[1]}"


def faults_of_folders(root):
    for folder in sorted(p for p in (root / "src").rglob("*") if p.is_dir()):
        where = folder.relative_to(root)
        files = [p for p in folder.iterdir() if p.suffix in SOURCES and not p.stem.endswith("_test")]
        lines = sum(p.read_text(encoding="utf-8").count("\n") for p in files)
        if len(files) > FILES_MAX or lines > LINES_MAX:
            yield f"{where}: {len(files)} files of {lines} lines are more than {FILES_MAX} of {LINES_MAX}"
        if folder.parent == root / "src" and not (folder / "README.md").is_file():
            yield f"{where}: there is no README.md"


def unit_includes(root):
    """{unit: units that it includes}. A unit is a path below src/ without its suffix."""
    src = root / "src"
    units = {}
    for path in sorted(p for p in src.rglob("*") if p.suffix in SOURCES and not p.stem.endswith("_test")):
        used = units.setdefault(path.relative_to(src).with_suffix("").as_posix(), set())
        used.update(name.rsplit(".", 1)[0] for _, quote, name in includes(path) if quote == '"')
    return {unit: sorted(used & units.keys() - {unit}) for unit, used in units.items()}


def circles_of(graph):
    """The strongly connected components of {node: nodes}, each in alphabetical order (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return found


def faults_of_circles(root):
    graph = unit_includes(root)
    for circle in sorted(c for c in circles_of(graph) if len(c) > UNITS_MAX):
        edges = [f"{a} -> {b}" for a in circle for b in graph[a] if b in circle]
        yield f"src/{circle[0]}: {len(circle)} units include each other: {', '.join(edges)}"


def check(root):
    """(number of files, violations)"""
    violations, n_files = [*faults_of_names(root), *faults_of_folders(root), *faults_of_circles(root)], 0
    rows, tests = read_rows(root, violations)
    for path in sorted(p for p in (root / "src").rglob("*") if p.suffix in SOURCES):
        n_files += 1
        where, folder = path.relative_to(root), path.relative_to(root / "src").parts[0]
        if folder not in rows:
            violations.append(f"{where}:1: src/{folder} has no dl_folder row")
            continue
        for number, quote, name in includes(path):
            is_test = path.stem.endswith("_test")
            fault = fault_in_source(root, tests if is_test else rows, folder, is_test, quote, name)
            if fault:
                violations.append(f"{where}:{number}: {fault}")
    for path in sorted((root / "include").rglob("*.h")):
        n_files += 1
        for number, quote, name in includes(path):
            fault = fault_in_public(root, quote, name)
            if fault:
                violations.append(f"{path.relative_to(root)}:{number}: {fault}")
    return n_files, violations


def report(root):
    n_files, violations = check(root)
    for violation in violations:
        print(violation)
    print(f"{n_files} files, {len(violations)} violations")
    return 1 if violations or not n_files else 0


# ---- self-test: a tree that is right, then one wrong line at a time

GOOD = {
    "CMakeLists.txt": "dl_folder(base USES LINK m)\n"
    "dl_folder(run  USES base\n     LINK)\ndl_folder(nn   USES base LINK dnnl)\ndl_folder(cli USES base LINK)\n"
    "dl_folder(fed USES base run LINK)\n",
    "include/diloco/run.h": "#include <diloco/status.h>\n#include <stdint.h>\n",
    "include/diloco/status.h": "",
    "src/base/a.h": "#include <diloco/status.h>\n",
    **{f"src/{folder}/README.md": "" for folder in ("base", "nn", "cli", "fed")},
    "src/run/README.md": "- `b.h`\n",
    "src/run/own.h": "",
    "src/fed/fed.c": '#include "run/b.h"\n#include "base/a.h"\n',
    "src/fed/fed_test.c": '#include "run/own.h"\n',
    "src/run/b.h": '#include "base/a.h"\n#include <unistd.h>\n',
    "src/run/b_test.c": '#include "run/b.h"\n#include "check.h"\n',
    "src/nn/c.c": '#include "base/a.h"\n#include "nn/enter.h"\n',
    "src/nn/enter.h": "",
    "src/cli/main.c": '#include <diloco/run.h>\n#include "base/a.h"\n',
    "tests/check.h": "",
    "src/run/pair.h": "",  # two units that include each other
    "src/run/pair.c": '#include "run/pair_parts.h"\n',
    "src/run/pair_parts.h": '#include "run/pair.h"\n',
    "src/run/pair_test.c": '#include "run/b.h"\n',
    "src/run/b.c": '#include "run/pair.h"\n',
}
WRONG = [  # file, line added to it, what is said
    ("src/base/a.h", '#include "run/b.h"', "src/base/a.h:2: base may not use run"),
    ("src/nn/c.c", '  #  include "run/b.h"', "src/nn/c.c:3: nn may not use run"),
    ("src/cli/main.c", '#include "run/b.h"', "src/cli/main.c:3: cli may not use run"),
    ("src/run/b.h", '#include "nn/enter.h"', 'src/run/b.h:3: "nn/enter.h" belongs to nn alone'),
    ("src/fed/fed.c", '#include "run/own.h"', 'src/fed/fed.c:3: "run/own.h" is not named in src/run/README.md'),
    ("src/run/b.h", '#include "a.h"', "src/run/b.h:3: there is no src/a.h"),
    ("src/run/b.h", '#include "check.h"', "src/run/b.h:3: there is no src/check.h"),
    ("src/run/b.h", '#include "diloco/run.h"', "src/run/b.h:3: public headers"),
    ("src/run/b.h", "#include <base/a.h>", "src/run/b.h:3: <base/a.h> is ours"),
    ("src/run/b.h", "#include <diloco/none.h>", "src/run/b.h:3: there is no include/diloco/none.h"),
    ("src/lost/d.c", "", "src/lost: there is no README.md", "src/lost/d.c:1: src/lost has no dl_folder row"),
    ("src/nn/a.h", "", "src/nn/a.h:1: src/base/a.h has this name, too"),
    ("src/nn/g.c", "/* b.c - a file under another name. */", "src/nn/g.c:1: its first line says b.c"),
    ("src/nn/e.c", "\n" * 7200, "src/nn: 3 files of 7203 lines"),
    ("include/diloco/run.h", '#include "base/a.h"', "include/diloco/run.h:3: a public header"),
    ("include/diloco/run.h", "#include <unistd.h>", "include/diloco/run.h:3: a public header"),
    (
        "src/run/pair.c",
        '#include "run/b.h"',
        "src/run/b: 3 units include each other: "
        "run/b -> run/pair, run/pair -> run/b, run/pair -> run/pair_parts, run/pair_parts -> run/pair",
    ),
    ("CMakeLists.txt", "dl_folder(x USES y LINK)\ndl_folder(y USES x LINK)", "CMakeLists.txt:7: x uses y"),
    ("CMakeLists.txt", "dl_folder(base USES LINK)", "CMakeLists.txt:7: folder base has two rows"),
    ("CMakeLists.txt", "dl_folder(z)", "CMakeLists.txt:1: dl_folder rows that cannot be read"),
]


def check_tree(wrong):
    with tempfile.TemporaryDirectory() as folder:
        files = dict(GOOD)
        if wrong:
            files[wrong[0]] = files.get(wrong[0], "") + wrong[1] + "\n"
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check(Path(folder))[1]


def self_test():
    failed = 0
    violations = check_tree(None)
    if violations:
        failed += 1
        print(f"the right tree: expected no violation, got {violations}")
    for wrong in WRONG:
        violations = check_tree(wrong)
        said = wrong[2:]
        if len(violations) != len(said) or not all(map(str.startswith, violations, said)):
            failed += 1
            print(f"{wrong[0]} with {wrong[1]!r}: expected {said}, got {violations}")
    print(f"{len(WRONG) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1 or arguments[:1] and arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    return report(Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
