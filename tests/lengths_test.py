#!/usr/bin/env python3
"""lengths_test.py: hold files, functions and structs to a size that a reader can keep in mind.

    lengths_test.py              check the tree; one line a violation; exit 1
    lengths_test.py --self-test  show that each kind of violation is seen

  file      has at most 600 lines; a test file at most 800.
  function  has at most 80 lines, from its name to its closing brace.
  struct    has at most 25 members. A named group counts once, and has the same limit itself.

The exceptions below have a ceiling each. A change that shortens one lowers its ceiling, or removes
it; no change may raise it."""
import ast
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOPS = ("src", "include", "python", "bench", "tests")
C_FILES, PYTHON_FILES = {".c", ".h", ".cc", ".cu", ".cuh"}, {".py", ".pyi"}
FILE_LINES, TEST_LINES, FUNCTION_LINES, MEMBERS = 600, 800, 80, 25

LONG_FILES = {}
LARGE_STRUCTS = {
    "src/base/config.h: diloco_config": 237,  # composed of the options of every module
    "tests/machine_world.h: world": 37,
    "tests/toy_run.h: toy": 27,
}


def is_test(path):
    return "tests" in path.parts or path.stem.endswith("_test")


def without_comments(text):
    """The text with as many lines, and without comments and the contents of string literals."""
    def blank(match):
        found = match.group()
        return "\n" * found.count("\n") if found[0] == "/" else '""'
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def c_functions(text):
    """(name, line, lines) of each function. clang-format puts its braces into the first column."""
    lines, begin = text.split("\n"), None
    for number, line in enumerate(lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin:
            head = begin - 1
            while head > 1 and lines[head - 1][:1] in (" ", "\t"):
                head -= 1  # a continuation of the parameters
            name = re.search(r"(\w+)\s*\(", lines[head - 1])
            yield name[1] if name else lines[head - 1], head, number - head + 1
            begin = None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def n_members(body):
    """The declarators of a struct's body, without those of the groups inside."""
    while re.search(r"\{[^{}]*\}|\([^()]*\)", body):
        body = re.sub(r"\{[^{}]*\}|\([^()]*\)", "", body)
    return sum(part.count(",") + 1 for part in body.split(";") if part.strip())


def structs(text):
    """(name, line, members) of each struct and union that has a body."""
    for match in re.finditer(r"\b(?:struct|union)\s*(\w*)\s*\{", text):
        at, depth = match.end(), 1
        while depth and at < len(text):
            depth += (text[at] == "{") - (text[at] == "}")
            at += 1
        name = match[1] or re.match(r"\s*(\w*)", text[at:])[1]
        yield name, text.count("\n", 0, match.start()) + 1, n_members(text[match.end():at - 1])


def faults(root):
    paths = [p for top in TOPS for p in sorted((root / top).rglob("*"))
             if p.suffix in C_FILES | PYTHON_FILES and "build" not in p.relative_to(root).parts]
    for path in paths:
        where, text = path.relative_to(root), path.read_text(encoding="utf-8")
        most = LONG_FILES.get(str(where), TEST_LINES if is_test(where) else FILE_LINES)
        if text.count("\n") > most:
            yield f"{where}:1: {text.count(chr(10))} lines, at most {most} may be"
        in_c = path.suffix in C_FILES
        text = without_comments(text) if in_c else text
        for name, line, lines in c_functions(text) if in_c else python_functions(text):
            if lines > FUNCTION_LINES:
                yield f"{where}:{line}: {name} has {lines} lines, at most {FUNCTION_LINES} may be"
        for name, line, members in structs(text) if in_c else ():
            most = LARGE_STRUCTS.get(f"{where}: {name}", MEMBERS)
            if members > most:
                yield f"{where}:{line}: {name} has {members} members, at most {most} may be: group them"


def self_test():
    """Write one violation of each kind, and others of the allowed size. Return violations that were
    not seen, and how many more there were."""
    body = "    x++;\n"
    text = {
        "src/long.c": "\n" * 601,
        "src/right.c": "\n" * 600,
        "tests/long_test.c": "\n" * 801,
        "tests/right_test.c": "\n" * 800,
        "src/function.c": "int f(int x,\n      int y)\n{\n" + body * 76 + "}\n"
                          "int g(int x)\n{\n" + body * 78 + "}\n",
        "src/struct.h": "struct right {\n" + "    int a, b; /* c, d; */\n" * 12 + "    int (*f)(int, int);\n};\n"
                        "typedef struct {\n    struct {\n" + "        int a[2], b;\n" * 13 + "    } group;\n} outside;\n",
        "python/f.py": "def f():\n" + "    pass\n" * 80,
    }
    wanted = ["src/function.c:81: g", "src/long.c:1", "tests/long_test.c:1", "src/struct.h:17: group",
              "python/f.py:1: f"]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content in text.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        found = list(faults(root))
    missed = [w for w in wanted if not any(f.startswith(w) for f in found)]
    print("\n".join(found))
    return missed, len(found) - len(wanted)


if sys.argv[1:] == ["--self-test"]:
    missed, others = self_test()
    sys.exit(f"not seen: {missed}, others: {others}" if missed or others else 0)
found = list(faults(ROOT))
print("\n".join(found) or "no file, function or struct is too long")
sys.exit(bool(found))
