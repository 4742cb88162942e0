#!/usr/bin/env python3
"""bpe.py > bpe_golden.h: two small tokenizers of Hugging Face's own trainer and what they make of the
corners of Unicode, for src/data/bpe_test.c. Recorded with tokenizers 0.23.3."""
import ast
import pathlib

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

live = ast.parse((pathlib.Path(__file__).parent.parent / "hf/tokens.py").read_text())
named = {n.targets[0].id: n.value for n in live.body if isinstance(n, ast.Assign)
         and getattr(n.targets[0], "id", "") in ("END", "CL100K", "CORNERS")}
END, CL100K = ast.literal_eval(named["END"]), ast.literal_eval(named["CL100K"])
CORNERS = eval(compile(ast.Expression(named["CORNERS"]), "corners", "eval"), {"END": END})
TEXT = ("the sea and the wind and the ship that sails the sea in 1234 nights.\n\n" * 3 +
        "\tif (x) {\n\t\treturn 42;\n\t}\n" * 3 + "na\u00efve caf\u00e9 \u65e5\u672c\u8a9e \U0001f600 " * 3)
WORDS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "cl100k": pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CL100K), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
}


def c_string(data):
    lines, line = [], ""
    for byte in data:
        plain = 32 <= byte < 127 and byte not in b'"\\?'
        line += chr(byte) if plain else f"\\{byte:03o}"
        if len(line) > 90:
            lines.append(f'"{line}"')
            line = ""
    return "\n     ".join([*lines, f'"{line}"'])


print("/* Recorded by bpe.py. */\n#ifndef DL_TESTS_BPE_H\n#define DL_TESTS_BPE_H\n\n"
      "#include <stddef.h>\n#include <stdint.h>\n\n"
      "typedef struct bpe_golden {\n    const char *text;\n    size_t len, n[2];\n"
      "    const int32_t *tokens[2]; /* of each tokenizer */\n} bpe_golden;\n\n/* clang-format off */")
print(f"static const char bpe_text[] =\n     {c_string(TEXT.encode())};\n"
      f"enum {{ BPE_TEXT = {len(TEXT.encode())}, BPE_VOCAB = 300 }};\n")
tokenizers = []
for name, pre in WORDS.items():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    t.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=300, min_frequency=2, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizers.append(t)
    print(f"static const char bpe_{name}[] =\n     {c_string(t.to_str().encode())};\n")
rows = []
for i, text in enumerate(CORNERS):
    ids = [t.encode(text).ids for t in tokenizers]
    for k, tokens in enumerate(ids):
        print(f"static const int32_t bpe_{i}_{k}[] = {{")
        for at in range(0, len(tokens), 20):
            print("    " + ",".join(map(str, tokens[at:at + 20])) + ",")
        print("};")
    rows.append(f"    {{{c_string(text.encode())},\n     {len(text.encode())}, "
                f"{{{len(ids[0])}, {len(ids[1])}}}, {{bpe_{i}_0, bpe_{i}_1}}}},")
print("static const bpe_golden bpe_goldens[] = {\n" + "\n".join(rows) +
      "\n};\n/* clang-format on */\n\n#endif")
