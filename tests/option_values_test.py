#!/usr/bin/env python3
"""option_values_test.py: the places that compare the value of an option with a text.

An option with a fixed set of values is an enum (base/choice.h), so a misspelt value does not
compile. Options whose values are rows of a table (codecs, combiners, presets) are still names.
The places in src/ without tests that compare such a name with a text have a ceiling. A change that
removes one lowers the ceiling; none may raise it."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CEILING = 47

# Members of other structs with the name of an option: the codec of a contribution's header, the
# answers that `diloco init` has from its user.
OTHERS = {"contribution.c", "contribution_header.c", "cmd_init.c"}


def names():
    """The fields of the configuration that hold a name."""
    for path in sorted((ROOT / "src/base/options").glob("*.h")):
        yield from re.findall(r"^    X\(NAME, (\w+),", path.read_text(), re.M)


def places():
    fields = "|".join(names())
    pattern = re.compile(r"\b(?:strn?cmp|is)\([^;,]*\b(?:config|c)(?:->|\.)(?:%s),|\bdl_preset_is\("
                         % fields)
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        if path.name.endswith("_test.c") or path.name in OTHERS:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.startswith("bool dl_preset_is("):
                for _ in pattern.finditer(line):
                    yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


found = list(places())
if len(found) > CEILING:
    print("\n".join(found))
    print(f"{len(found)} places compare an option's value with a text, at most {CEILING} may")
if len(found) < CEILING:
    print(f"{len(found)} places compare an option's value with a text: lower the ceiling from {CEILING}")
sys.exit(len(found) != CEILING)
