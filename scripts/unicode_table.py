#!/usr/bin/env python3
"""unicode_table.py > src/data/unicode_table.h: where letters (L), numbers (N) and white space are.

Categories by the `regex` package, which is newer than Python's own tables: recorded with regex
2026.11.15. White space is Unicode's White_Space."""
import sys

import regex

CLASSES = [("L", regex.compile(r"\p{L}")), ("N", regex.compile(r"\p{N}")),
           ("S", regex.compile(r"\p{White_Space}"))]


def class_of(code):
    if 0xD800 <= code < 0xE000:
        return "O"
    return next((name for name, test in CLASSES if test.match(chr(code))), "O")


runs, last = [], None
for code in range(0x110000):
    this = class_of(code)
    if this != last:
        runs.append((code, this))
        last = this

print(f"/* Made by scripts/unicode_table.py with regex {regex.__version__}. Each class holds from its\n"
      " * first character to the next row's. */\n#ifndef DL_DATA_UNICODE_TABLE_H\n"
      "#define DL_DATA_UNICODE_TABLE_H\n\n#include \"data/words.h\"\n\n/* clang-format off */\n"
      "enum { O = DL_CHAR_OTHER, L = DL_CHAR_LETTER, N = DL_CHAR_NUMBER, S = DL_CHAR_SPACE };\n"
      "static const struct { uint32_t first, is; } unicode_runs[] = {")
line = ""
for code, name in runs:
    item = f"{{0x{code:x},{name}}},"
    if len(line) + len(item) > 99:
        print(line)
        line = ""
    line += item
print(line + "\n};\n/* clang-format on */\n\n#endif")
print(len(runs), "runs", file=sys.stderr)
