#!/usr/bin/env python3
"""docs_test.py: docs/ and README.md are right about the tree.

Every `src/….c` or other path in backquotes exists; a function named beside a file
("`src/exchange/exec.c`: `do_read`", "`loop` in `src/train/replica.c`") is defined there, a bare `dl_name`
somewhere in the tree;
relative links lead to files, and to a heading or an anchor there. The rules of docs/protocol.md have
anchors, and the files that it names exist. A function in brackets after such a file is defined there (a note of
several words is no function). The terms of docs/glossary.md are in order. docs/README.md links every
other page. Names in backquotes in src/*/README.md are files of that folder. A writer without a key
(tests/hostile/plant.py) puts objects under each name of docs/formats.md and of `src/store/run_keys.c`."""
import importlib.util
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATH = re.compile(r"`((?:src|tests|bench|include|examples|docs|scripts|cmake)/[\w./-]+\.\w+)`")
NAMED = re.compile(r"`((?:src|tests)/[\w./-]+\.(?:c|h))`: `(\w+)`")
IN_FILE = re.compile(r"`(\w+)`,? (?:in |\()?`((?:src|tests)/[\w./-]+\.c)`")
NAME = re.compile(r"`((?:dl|diloco|do|snap|beat|save)_\w+)`")
CODE = re.compile(r"`([\w./]+\.[ch])`(?: \(([^)]*)\))?")
TERM = re.compile(r"^- \*\*(.+?)\*\*:", re.M)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PLACE = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
WALK = 20  # files that a reader can follow in one sitting
RULES = [f"p{n}" for n in range(1, 28)] + [f"b{n}" for n in range(1, 5)]


def problems():
    sources = {p: p.read_text(errors="replace") for p in ROOT.glob("src/**/*.[ch]")}
    sources.update({p: p.read_text(errors="replace") for p in ROOT.glob("include/**/*.h")})
    words = set(re.findall(r"\w+", "\n".join(sources.values())))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if not page.exists():
            yield f"{page.relative_to(ROOT)} is missing"
            continue
        for number, line in enumerate(page.read_text().splitlines(), 1):
            where = f"{page.relative_to(ROOT)}:{number}"
            for path in PATH.findall(line):
                if not (ROOT / path).exists():
                    yield f"{where}: there is no {path}"
            for path, name in NAMED.findall(line) + [(p, n) for n, p in IN_FILE.findall(line)]:
                text = sources.get(ROOT / path, "")
                if not re.search(rf"^[A-Za-z].*\b{name}\(|^}} {name};", text, re.M):
                    yield f"{where}: {path} does not define {name}"
            for name in NAME.findall(line):
                if name not in words:
                    yield f"{where}: nothing is called {name}"
            for link in LINK.findall(line):
                if not (page.parent / link).exists():
                    yield f"{where}: the link to {link} leads nowhere"


def places(page):
    """The anchors of a page: its headings, as GitHub names them, and those that it sets itself."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    found = set(re.findall(r"<a id=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        name = re.sub(r"\]\([^)]*\)|&lt;|&gt;", "", heading).lower()
        name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
        found.add(name if name not in found else f"{name}-1")
    return found


def place_problems():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for link, place in PLACE.findall(line):
                other = page.parent / link if link else page
                if other.suffix == ".md" and other.exists() and place not in places(other):
                    yield f"{page.relative_to(ROOT)}:{number}: {other.name} has no place #{place}"


def text_of(name):
    """The text of a file named by its path or by its name alone, or None."""
    paths = [ROOT / name] if (ROOT / name).exists() else sorted(ROOT.glob(f"src/**/{name}"))
    return paths[0].read_text() if paths else None


def rule_problems():
    page = ROOT / "docs/protocol.md"
    for rule in RULES:
        if rule not in places(page):
            yield f"docs/protocol.md: rule {rule.upper()} has no anchor"
    for line in page.read_text().splitlines():
        if line.startswith("Code: "):
            for name, notes in CODE.findall(line):
                text = text_of(name)
                if text is None:
                    yield f"docs/protocol.md: there is no {name}"
                for function in filter(re.compile(r"\w+").fullmatch, notes.split(", ")):
                    if text and not re.search(rf"^[A-Za-z].*\b{function}\(", text, re.M):
                        yield f"docs/protocol.md: {name} does not define {function}"


def manual_problems():
    """The complete program of docs/c.md is examples/embed.c, which embed_test.sh compiles."""
    shown = re.search(r"^```c\n(.*?)^```$", (ROOT / "docs/c.md").read_text(), re.M | re.S)
    if not shown or shown.group(1) != (ROOT / "examples/embed.c").read_text():
        yield "docs/c.md: its program is not examples/embed.c"


def glossary_problems():
    terms = TERM.findall((ROOT / "docs/glossary.md").read_text())
    if len(terms) < 60:
        yield f"docs/glossary.md: {len(terms)} terms are fewer than 60"
    for before, after in zip(terms, terms[1:]):
        if before.lower() >= after.lower():
            yield f"docs/glossary.md: {after} is after {before}"


def index_problems():
    docs = ROOT / "docs"
    links = LINK.findall((docs / "README.md").read_text())
    for page in sorted(docs.rglob("*.md")):
        name = str(page.relative_to(docs))
        if name not in ["README.md", *links]:
            yield f"docs/README.md has no link to {name}"


def room_problems():
    """A folder's README names files of the folder."""
    for page in sorted(ROOT.glob("src/*/README.md")):
        for name in re.findall(r"`([\w/]+(?:\.\w+|/))`", page.read_text()):
            if not (page.parent / name).exists():
                yield f"{page.relative_to(ROOT)}: there is no {name}"


def walk_problems():
    """The walk of docs/round.md passes through at most WALK files and names each in its second column."""
    text = (ROOT / "docs/round.md").read_text().split("## The walk")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.split("\n") if re.match(r"\| \d", line)]
    files = {path for row in rows for path in PATH.findall(row[1])}
    said = re.search(r"(\d+) files", text)
    if [row[0] for row in rows] != [str(n + 1) for n in range(len(rows))]:
        yield "docs/round.md: the steps of the walk are not numbered in order"
    if not said or int(said[1]) != len(files) or len(files) > WALK:
        yield f"docs/round.md: the walk has {len(files)} files, {said and said[1]} are said, at most {WALK} may be"
    for row in rows:
        for path in PATH.findall(row[2]):
            if path.endswith(".c") and path not in files:
                yield f"docs/round.md: step {row[0]} passes through {path}, which is no step"


def security_problems():
    """Each cell of the table of docs/security.md names a test, and the tests that it names exist."""
    scenarios = (ROOT / "tests/e2e/intruder.sh").read_text()
    events = (ROOT / "tests/sim.h").read_text()
    simulations = (ROOT / "tests/CMakeLists.txt").read_text()
    rows = [r for r in (ROOT / "docs/security.md").read_text().split("\n") if r.startswith("| ")]
    for row in rows[next(i for i, r in enumerate(rows) if r.startswith("| `run.roster` | party | stop")) + 1 :]:
        for cell in row.strip("| ").split(" | ")[2:]:
            named = re.findall(r"(\w+_test): ((?:\w+)(?:, \w+)*)", cell)
            if not re.search(r"_test: |intruder: |I[0-9]|tests/", cell):
                yield f"docs/security.md: no test is named by \"{cell}\""
            for file, cases in named:
                text = "".join(f.read_text() for f in ROOT.glob(f"src/**/{file}.c"))
                for case in cases.split(", "):
                    if f"TEST({case}" not in text:
                        yield f"docs/security.md: {file} has no case {case}"
            for program, mode in re.findall(r"(cluster_\w+): (\w+)", cell):
                if not re.search(rf"COMMAND {program}\b[^)]*\b{mode}\b", simulations):
                    yield f"docs/security.md: tests/CMakeLists.txt runs no {program} with {mode}"
            for script in re.findall(r"tests/[\w/.-]+\.(?:sh|h)", cell):
                if not (ROOT / script).exists():
                    yield f"docs/security.md: there is no {script}"
            for event in re.findall(r"SIM_(\w+)", cell):
                if f" X({event}, " not in events:
                    yield f"docs/security.md: tests/sim.h has no event {event}"
            for names in re.findall(r"intruder: ([\w-]+(?:, [\w-]+)*)", cell):
                for name in names.split(", "):
                    if not re.search(rf"go \w+ \"?{name}(?:[.-][\w-]+)? ", scenarios):
                        yield f"docs/security.md: intruder.sh has no scenario {name}"


KEY = re.compile(r"`((?:\.?[a-z]+\d?/[^`]*<|[a-z]+/[a-z.]+(?=`)|\w+\.json(?=`))[^`]*)`")
LIFE = r"[\w-]+\.\d{4,7}"
PARTS = {"<life>": LIFE, "<owner>": LIFE, "<planner>": LIFE, "<e>": r"\d+", "<round>": r"\d+", "<key>": ".+", "…": ".+"}


def key_problems():
    """Names of objects, by docs/formats.md and by the stores, that tests/hostile/plant.py does not try."""
    spec = importlib.util.spec_from_file_location("plant", ROOT / "tests/hostile/plant.py")
    plant = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plant)
    keys = list(plant.all_names())
    page = (ROOT / "docs/formats.md").read_text()
    places = re.findall(r"^\| ([^|]*) \|", page, re.M) + re.findall(r"^##+ (.*)$", page, re.M)
    places += re.findall(r"is stored as (`[^`]*`)", page)
    names = sorted({name for place in places for name in KEY.findall(place)})
    if len(names) < 30:
        yield f"docs/formats.md: {len(names)} names of objects are fewer than 30"
    for name in names:
        form = "".join(PARTS.get(part, r"[\w-]+") if part[:1] in ("<", "…") else re.escape(part)
                       for part in re.split(r"(<[^>]*>|…)", name))
        if not any(re.fullmatch(form, key) for key in keys):
            yield f"docs/formats.md: tests/hostile/plant.py puts no object at {name}"
    table = re.search(r"patterns\[\] = \{(.*?)\};", (ROOT / "src/store/run_keys.c").read_text(), re.S)
    for name in re.findall(r'"([^"]+)"', table[1]):
        form = name.replace(".", r"\.").replace("*", "[^/]+").replace("@", r"[^/]+\.[^/]+").replace("#", r"\d+")
        if not any(re.fullmatch(form, key) for key in keys):
            yield f"src/store/run_keys.c: tests/hostile/plant.py puts no object at {name}"


found = [*problems(), *key_problems(), *place_problems(), *rule_problems(), *manual_problems(), *room_problems(), *glossary_problems(), *index_problems(), *walk_problems(), *security_problems()]
print("\n".join(found + [f"{len(found)} problems in the documentation"]))
sys.exit(1 if found else 0)
