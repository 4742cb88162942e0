#!/usr/bin/env python3
"""prose_test.py: the words of comments and pages stay plain, and become plainer.

Counts words and phrases that have a plainer form (PATTERNS), and sentences of more than 30 words. An
area is the pages, the comments of a folder, or "messages", which are the texts in the sources.
tests/prose_ceilings.txt holds the number that each area may have at most. A number may fall and
never rises. The failure names the file and the line.

    prose_test.py              compare with the ceilings, and read the titles of new commits
    prose_test.py --counts     print every count by area and pattern
    prose_test.py --list AREA  print the places of one area
    prose_test.py --renew      write lower ceilings; a higher one is refused
    prose_test.py --self-test  try the counting itself"""
import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
CEILINGS = ROOT / "tests/prose_ceilings.txt"
LONGEST = 30  # words in a sentence
LAST_OLD_COMMIT = "bf5fcffbd8323cb4cc597e976d963ce4b7f29490"
LONGEST_TITLE = 72

PERSON = r"(?<!person )(?<!people )(?<!user )(?<!users )(?<!reader )(?<!readers )(?<!operator )" \
         r"(?<!anyone )(?<!those )(?<!someone )"
PATTERNS = {name: re.compile(text, re.I) for name, text in {
    "behind": r"\bbehind\b",
    "stands": r"\b(?:stands?|stood|standing)\b(?! for\b)",
    "lies": r"\b(?:lie|lies|lay|lain|lying|liars?)\b",
    "life": r"\b(?:life|lives|lived)\b",
    "told": r"\b(?:tell|tells|told)\b",
    "nobody": r"\b(?:no|every|some|any)body\b",
    "what … is": r"(?:^|[.:;] |^[\w./]+ - )(?!What'?s?\b[^.]*\?)what\b(?! happens| to\b| it does)",
    "who … is": PERSON + r"\b(?:who|whoever|whom)\b",
    "so many": r"\bso (?:many|much|long|often)\b",
    "comes to": r"\b(?:comes?|came|amounts?) to\b",
    "is none": r"\b(?:is|are|was|were) none\b",
    "anew": r"\banew\b",
    "stranger": r"\bstrangers?\b",
    "knock": r"\bknock(?:s|ed|ing)?\b",
    "under way": r"\bunder way\b",
    "goes on": r"\b(?:go|goes|going|gone|went) on\b",
    "begins again": r"\b(?:begins?|began|beginning) again\b",
    "vouch": r"\bvouch\w*\b",
    "put ahead": r"\bputs? ahead\b",
    "setback": r"\bsetbacks?\b",
    "…": r"^…",
}.items()}

# Area: the files whose prose it has. The first that fits counts.
AREAS = (
    ("docs", ("docs/**/*.md", "*.md", "bench/**/*.md", "src/*/README.md")),
    ("include", ("include/diloco/*.h",)),
    *((f"src/{folder.name}", (f"src/{folder.name}/**/*.[ch]", f"src/{folder.name}/**/*.cpp"))
      for folder in sorted((ROOT / "src").iterdir()) if folder.is_dir()),
    ("tests", ("tests/**/*.[ch]", "tests/**/*.sh", "tests/**/*.py", "tests/CMakeLists.txt")),
    ("scripts", ("scripts/*.sh", "scripts/*.py", "cmake/*", "CMakeLists.txt", "Makefile")),
    ("python", ("python/**/*.py",)),
    ("examples", ("examples/*", "bench/**/*.[ch]", "bench/**/*.py", "bench/**/*.sh")),
)
# Text that a program or another project wrote.
GENERATED = {"docs/options.md", "tests/prose_test.py"}


class Paragraph:
    """Text without line breaks, which knows the line of each of its characters."""

    def __init__(self):
        self.text, self.starts = "", []

    def add(self, line, text):
        self.text += " " if self.text else ""
        self.starts.append((len(self.text), line))
        self.text += text

    def line(self, offset):
        return max(line for start, line in self.starts if start <= offset or start == 0)


def paragraphs(numbered):
    """Paragraphs of (line, text) pairs; an empty text ends one, a list item or a table cell too."""
    now = Paragraph()
    for line, text in numbered:
        if not text.strip() or re.match(r"\s*(?:[-*|#]|\d+\.)\s|\s{3,}", text):
            if now.text:
                yield now
            now = Paragraph()
        text = re.sub(r"^\s*(?:[-*#]+|\d+\.)\s+", "", text).strip()
        if text.startswith("|"):
            for cell in text.strip("| ").split(" | "):
                alone = Paragraph()
                alone.add(line, cell)
                yield alone
        elif text:
            now.add(line, text)
    if now.text:
        yield now


def plain(text):
    """Without code, links' targets and emphasis: a piece of code is one word."""
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return text.replace("*", "").replace("[", "").replace("]", "")


def markdown(path):
    fenced = False
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if re.match(r"\s*```", text):
            fenced = not fenced
            text = ""
        yield line, "" if fenced else plain(re.sub(r"^\s+", "", text))


def c_comments(path):
    """The comments of C, one after the other; string literals are passed over."""
    text = path.read_text(errors="replace")
    for found in re.finditer(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|/\*.*?\*/|//[^\n]*", text, re.S):
        if not found.group().startswith("/"):
            continue
        first = text.count("\n", 0, found.start()) + 1
        body = re.sub(r"^/[/*]+|\*/$", "", found.group())
        for number, line in enumerate(body.split("\n")):
            yield first + number, plain(re.sub(r"^\s*\*(?!\S)", "", line) if number else line.strip())
        yield first, ""


def hash_comments(path):
    before = 0
    for line, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = re.match(r"^\s*#(?!!)\s?(.*)|.*?\s#\s(.*)", text)
        if not found or (found.group(2) is not None and not re.match(r"[\w ,.;:'()/-]+$", found.group(2))):
            continue
        if line != before + 1:
            yield line, ""
        before = line
        yield line, plain(found.group(1) or found.group(2) or "")


def python_prose(path):
    """Comments and docstrings."""
    text = path.read_text()
    before = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            if token.start[0] != before + 1:
                yield token.start[0], ""
            before = token.start[0]
            yield before, plain(token.string.lstrip("# "))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.body and ast.get_docstring(node):
                first = node.body[0].lineno
                yield first, ""
                for number, line in enumerate(node.body[0].value.value.split("\n")):
                    yield first + number, plain(line)
                yield first, ""


def c_strings(path):
    """The texts in C that a person may read: literals of three words or more, neighbours joined."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), path.read_text(errors="replace"), flags=re.S)
    for found in re.finditer(r"\"(?:\\.|[^\"\\\n])*\"(?:\s*\"(?:\\.|[^\"\\\n])*\")*", text):
        if len(found.group().split()) >= 3:
            first = text.count("\n", 0, found.start()) + 1
            yield first, re.sub(r"\"\s*\"", "", found.group()).strip('"').replace("\\n", " ")
            yield first, ""


READERS = {".md": markdown, ".h": c_comments, ".c": c_comments, ".cpp": c_comments, ".py": python_prose}


def findings(path):
    """(line, what, text) of each pattern and each long sentence of a file."""
    yield from judged(paragraphs(READERS.get(path.suffix, hash_comments)(path)))


def judged(found):
    for paragraph in found:
        for name, pattern in PATTERNS.items():
            for match in pattern.finditer(paragraph.text):
                around = paragraph.text[max(0, match.start() - 30):match.end() + 30]
                yield paragraph.line(match.start()), name, around
        at = 0
        for sentence in re.split(r"(?<=[.!?])\s+", paragraph.text):
            words = [w for w in sentence.split() if re.search(r"[A-Za-z]", w)]
            if len(words) > LONGEST:
                yield paragraph.line(at), "long", f"{len(words)} words: {sentence[:60]}…"
            at += len(sentence) + 1


def survey():
    """{area: [(file, line, what, text)]} of the tree."""
    seen, areas = set(GENERATED), {}
    for area, globs in AREAS:
        places = areas.setdefault(area, [])
        for path in sorted({p for g in globs for p in ROOT.glob(g) if p.is_file()}):
            name = str(path.relative_to(ROOT))
            if name in seen or "node_modules" in name or not path.suffix.strip() and path.name != "Makefile":
                continue
            seen.add(name)
            if path.suffix in (".md", ".h", ".c", ".cpp", ".py", ".sh", ".txt", ".cmake", ""):
                places += [(name, *finding) for finding in findings(path)]
    areas["messages"] = [
        (str(path.relative_to(ROOT)), *finding) for path in sorted(ROOT.glob("src/**/*.[ch]"))
        if not path.name.endswith("_test.c") for finding in judged(paragraphs(c_strings(path)))]
    return areas


def totals(places):
    long = sum(1 for place in places if place[2] == "long")
    return {"patterns": len(places) - long, "long": long}


def ceilings():
    rows = [line.split() for line in CEILINGS.read_text().splitlines() if line and line[0] != "#"]
    return {area: {"patterns": int(patterns), "long": int(long)} for area, patterns, long in rows}


def git(*arguments):
    """The output of git, or None where this is no checkout with history."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def lines_since_ceilings():
    """{(file, line)} that were added since the ceilings were last written."""
    last = (git("log", "-1", "--format=%H", "--", str(CEILINGS)) or "").strip()
    added, name = set(), None
    for line in (git("diff", "-U0", last) or "").splitlines() if last else ():
        if line.startswith("+++ b/"):
            name = line[6:]
        elif found := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(found.group(1)), int(found.group(2) or 1)
            added |= {(name, n) for n in range(first, first + count)}
    return added


def prose_problems():
    allowed, new = ceilings(), None
    for area, places in survey().items():
        counts = totals(places)
        for kind, count in counts.items():
            most = allowed.get(area, {"patterns": 0, "long": 0})[kind]
            if count <= most:
                continue
            new = lines_since_ceilings() if new is None else new
            those = [p for p in places if (p[2] == "long") == (kind == "long")]
            shown = [p for p in those if p[:2] in new] or those
            for file, line, name, text in shown[:40]:
                yield f"{file}:{line}: {name}: {text}"
            yield f"{area}: {count} {kind}, at most {most}: say {count - most} of these in plainer words"


# A title is "area: imperative". English has no ending for the imperative; these endings are others'.
NOT_IMPERATIVE = re.compile(r"(?:what|who|whoever|the|a|an|no|it|its|there|all|each|every|when|where|if"
                            r"|(?!bring|string|ring|ping)\w+ing|(?!embed|feed|need|seed|speed|shed)\w+ed"
                            r"|(?!pass|process|address|compress|focus|bypass|express|discuss)\w+[^s]s)$", re.I)


def title_problem(title):
    """Why a commit's title is not in the form, or None."""
    if len(title) > LONGEST_TITLE:
        return f"{len(title)} characters are more than {LONGEST_TITLE}"
    found = re.match(r"[\w/.,+ -]+: (\w[\w-]*)", title)
    if not found:
        return "it is not `area: imperative`"
    if NOT_IMPERATIVE.match(found.group(1)):
        return f"\"{found.group(1)}\" is not an imperative"
    return None


def title_problems():
    text = git("log", "--no-merges", "--format=%h %s", f"{LAST_OLD_COMMIT}..HEAD")
    if text is None:
        print("left out: titles of commits (here is no git history that reaches back far enough)")
        return
    for line in text.splitlines():
        commit, _, title = line.partition(" ")
        if problem := title_problem(title):
            yield f"commit {commit}: \"{title}\": {problem}"


def self_test():
    def count(*lines):
        return [name for _, name, _ in judged(paragraphs(enumerate(map(plain, lines), 1)))]

    assert count("The entry behind it stands.") == ["behind", "stands"]
    assert count("What came counts.") == ["what … is"], count("What came counts.")
    assert count("What does it cost?") == []
    assert count("Who waits, waits.", "", "A person who waits, waits.") == ["who … is"]
    assert count("`behind` is code.") == []
    assert count("word " * 30 + ".") == [] and count("word " * 31 + ".") == ["long"]
    assert count("word " * 20, "word " * 20 + ".") == ["long"], "a sentence goes over lines"
    assert count("- " + "word " * 20, "- " + "word " * 20) == [], "an item is a sentence of its own"
    lines = [line for line, *_ in judged(paragraphs([(7, "It is"), (8, "behind.")]))]
    assert lines == [8], lines
    assert title_problem("store: accept an empty object range") is None
    assert title_problem("run: who knocks has given up") and title_problem("store: accepts a range")
    assert title_problem("accept a range") and title_problem("store: " + "x" * 80)


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "--self-test":
        self_test()
        return print("the counting is right")
    if mode == "--list":
        return print("\n".join(f"{f}:{n}: {w}: {t}" for f, n, w, t in survey()[sys.argv[2]]))
    if mode == "--counts":
        areas = survey()
        for name in [*PATTERNS, "long"]:
            print(f"{name:14}", *(f"{a} {n}" for a, places in areas.items()
                                  if (n := sum(1 for p in places if p[2] == name))))
        for area, places in areas.items():
            print(f"{area:14}", totals(places))
        return None
    if mode == "--renew":
        old = ceilings() if CEILINGS.exists() else {}
        rows = ["# Written by prose_test.py --renew: area, patterns, sentences above 30 words. They only fall."]
        for area, places in survey().items():
            now = totals(places)
            most = old.get(area, now)
            rows.append(f"{area} {min(now['patterns'], most['patterns'])} {min(now['long'], most['long'])}")
        return CEILINGS.write_text("\n".join(rows) + "\n") and None
    found = [*prose_problems(), *title_problems()]
    print("\n".join([*found, f"{len(found)} problems in the words"]))
    return sys.exit(1 if found else 0)


main()
