#!/usr/bin/env python3
"""formats_test.py PROGRAM [--renew]: docs/formats.md shows real objects, and the program writes such.

The page has a table of offsets for each format, and an example in hex. tests/formats/objects has the
objects of the examples. The program makes new ones (make.py). Both have to fit the tables, and the
page's examples have to be what the tables and the objects give. --renew makes the objects again and
writes the examples into the page."""
import json
import pathlib
import re
import struct
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs/formats.md"
OBJECTS = HERE / "objects"
SHOWN = 16  # bytes of a field
# Formats without a table of their own: offset, bytes, field. None: the rest of the object.
ROWS = {
    "signed": [(512, 32, "key"), (544, 64, "signature"), (608, 16, "first values of the body")],
    "int8": [(512, 4, "scale of block 0, float32"), (516, 4, "scale of block 1, float32")],
    "table": [(488, 8, "slices"), (512, 16, "digest of slice 0")],
    "slice": [(0, 4, "element 0, float32"), (4, 4, "element 1, float32")],
    "combined_slice": [(0, 4, "element 0, float32"), (-16, 16, "digest of all before it")],
    "measured": [(0, 8, "sum of squares of member 0, float64"), (8, 8, "sum of squares of member 1, float64"),
                 (16, 16, "digest of these")],
    "packed": [(512, 4, "bytes that follow, n"), (516, 4, "start of a zstd frame, as hex")],
    "state": [(0, 8, "bytes of the header"), (8, 48, "header, text")],
    "curves": [(0, 8, "length of the event"), (8, 4, "its masked checksum, as hex"), (12, 9, "time of writing, as hex"),
               (21, 15, "file_version, text")],
    "record": [(0, 4, "start of a zstd frame, as hex")],
}
# Formats with a table: the magic or the words that only this table has.
TABLES = {"contribution": "| 0 | 8 | `DLCONTR1` |", "pointer": "| 0 | 8 | `DLBULKP1` |",
          "client_state": "| 0 | 8 | `DLCLIENT` |", "local_state": '| 8 | 27 | `{"__metadata__"',
          "tokens": "| 0 | i32 | 20240520"}
SIZES = {"i32": 4, "i32[253]": 1012, "u16[n], or u32[n]": None}


def rows(page, name):
    if name in ROWS:
        return ROWS[name]
    at = page.index(TABLES[name])
    start = page.rindex("\n\n", 0, at)
    found = []
    for line in page[start:].strip().splitlines():
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\) \| ?", line.strip("| ") + " | ")[:3]
        if cells[0].strip().isdigit():
            size = SIZES.get(cells[1].strip(), int(cells[1]) if cells[1].strip().isdigit() else None)
            found.append((int(cells[0]), size, cells[2].strip()))
    return found


def meaning(data, label):
    if "float64" in label or "IEEE double" in label:
        return f"{struct.unpack('<d', data)[0]:.6g}"
    if "float32" in label and len(data) == 4:
        return f"{struct.unpack('<f', data)[0]:.6g}"
    if re.search(r"hash|digest of|digest,|base:|signature|key$|as hex|\bid\b(?!,)", label) and "run id" not in label:
        return ""
    text = data.rstrip(b"\0")
    if text and re.fullmatch(rb"[ -~]+", text) and (len(data) != 4 or "`" in label) and (len(data) != 8 or len(text) == 8):
        return json.dumps(text.decode()[:24] + ("…" if len(text) > 24 else ""), ensure_ascii=False)
    if len(data) in (4, 8):
        return str(int.from_bytes(data, "little"))
    return "zeros" if not text else ""


def example(page, name, data):
    """The lines of an example: offset, bytes, field, value."""
    lines = []
    for offset, size, label in rows(page, name):
        offset %= len(data) if offset < 0 else sys.maxsize
        field = data[offset:offset + size] if size else data[offset:]
        shown = field[:SHOWN].hex(" ") + (" …" if len(field) > SHOWN else "")
        label = re.split(r"[,;:(]", re.sub(r"`|\[|\]\([^)]*\)", "", label))[0].strip()
        label = re.sub(r"^(.{1,38})(?: .*)?$", r"\1", label)
        label = "magic" if re.fullmatch(r"DL[A-Z0-9]{6}", label) else label
        value = meaning(field, next(r[2] for r in rows(page, name) if r[0] in (offset, offset - len(data))))
        lines.append(f"{offset:5}  {shown:49}  {label}{': ' + value if value else ''}".rstrip())
    return "\n".join(lines)


def written(page):
    return {m.group(1): m.group(2) for m in re.finditer(r"^```text example (\w+)\n(.*?)\n```$", page, re.M | re.S)}


def number(data, offset, size=8):
    return int.from_bytes(data[offset:offset + size], "little")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def check_safetensors(data):
    header = json.loads(data[8:8 + number(data, 0)])
    last = max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__")
    return 8 + number(data, 0) + last == len(data)


def check_contribution(data):
    body = number(data, 264) + 8 * number(data, 248) + number(data, 256)
    if number(data, 488):
        body = 16 * number(data, 488)
    return data[:8] == b"DLCONTR1" and number(data, 8, 4) == 1 and number(data, 12, 4) + body == len(data)


def check_packed(data):
    n = number(data, 512, 4)
    return check_contribution(data) and number(data, 288) == 1 and data[516:520] == b"\x28\xb5\x2f\xfd" and n < 262144


CHECKS = {
    "contribution": check_contribution, "signed": lambda d: check_contribution(d) and number(d, 12, 4) == 608,
    "int8": check_contribution, "combined": check_contribution, "table": check_contribution,
    "packed": check_packed, "state": check_safetensors,
    "slice": lambda d: len(d) % 4 == 0, "combined_slice": lambda d: len(d) % 4 == 0 and len(d) > 16,
    "measured": lambda d: len(d) == 8 * 2 + 16,
    "local_state": lambda d: check_safetensors(d) and d[8:35] == b'{"__metadata__":{"digest":"',
    "client_state": lambda d: d[:8] == b"DLCLIENT" and 256 + number(d, 112) == len(d),
    "pointer": lambda d: d[:8] == b"DLBULKP1" and len(d) == 128 and number(d, 12, 4) == 128 and not any(d[56:112]),
    "tokens": lambda d: number(d, 0, 4) == 20240520 and len(d) == 1024 + 2 * number(d, 8, 4),
    "curves": lambda d: number(d, 8, 4) == crc32c(d[:8]) and
    number(d, 12 + number(d, 0), 4) == crc32c(d[12:12 + number(d, 0)]),
    "record": lambda d: d[:4] == b"\x28\xb5\x2f\xfd",
}


def gaps(page, name):
    """The rows of a table follow each other without a gap."""
    table = rows(page, name)
    for (offset, size, label), (following, _, _) in zip(table, table[1:]):
        if size is not None and offset + size != following:
            yield f"docs/formats.md: {name}: after \"{label}\" comes {offset + size}, not {following}"


def main():
    from make import make
    program, page = str(pathlib.Path(sys.argv[1]).resolve()), PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        new = make(program, folder)
    if "--renew" in sys.argv:
        OBJECTS.mkdir(exist_ok=True)
        for name, data in new.items():
            (OBJECTS / f"{name}.bin").write_bytes(data)
        for name in written(page):
            page = re.sub(rf"(?s)(```text example {name}\n).*?(\n```)",
                          lambda m: m.group(1) + example(page, name, new[name]) + m.group(2), page)
        PAGE.write_text(page)
    found = [problem for name in TABLES for problem in gaps(page, name)]
    shown = written(page)
    for name, data in new.items():
        kept = (OBJECTS / f"{name}.bin").read_bytes()
        found += [f"{kind} {name} does not fit docs/formats.md" for kind, d in (("the new", data), ("the kept", kept))
                  if not CHECKS[name](d)]
        if name not in shown and name != "combined":
            found.append(f"docs/formats.md has no example of {name}")
        elif name != "combined" and shown[name] != example(page, name, kept):
            found.append(f"docs/formats.md: the example {name} is not that of the object: --renew")
    print("\n".join(found + [f"{len(found)} problems in the formats"]))
    sys.exit(1 if found else 0)


main()
