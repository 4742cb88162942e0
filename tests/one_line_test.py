#!/usr/bin/env python3
"""one_line_test.py CC BUILD LIBRARIES: one file and one line add a codec, a combiner, an outer
optimizer, a store, an operation, a model, an inner optimizer, a sampler, an executor, an export
format, a tracker, a subcommand. One line alone adds an option and a preset.

For each kind the headers are copied, the line is added to the list in the copy, and a new file, the
file with the table and a program that asks for the new name are compiled. The rest is linked from
BUILD as it is: if a third file had to change, the name would not be found."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

BY_NAME = """
#include <string.h>
#include "%s"
int main(void)
{
    for (size_t i = 0; %s(i); i++)
        if (strcmp(%s(i)%s, "dummy") == 0) return 0;
    return 1;
}
"""
OPENS = """
#include "base/status.h"
#include "store/store.h"
int main(void)
{
    dl_store *store;
    return dl_store_open(&store, "dummy://place", true) == DILOCO_EREFUSED ? 0 : 1;
}
"""
OPTION = """
#include "base/config.h"
int main(void)
{
    static dl_config config;
    const dl_option *row = dl_option_find(dl_config_table, "launch.dummy");
    dl_config_init(&config);
    return row && dl_option_reads(row, &config, "7") ? 0 : 1;
}
"""
TRACKER = """
#include "train/tracker.h"
int main(void)
{
    dl_tracker tracker;
    return dl_tracker_open(&tracker, "dummy:place", "r0") ? 1 : 0;
}
"""
COMMAND = """
#include "cli/cli.h"
int main(void)
{
    char program[] = "diloco", name[] = "dummy", *argv[] = {program, name, NULL};
    return dl_cli_main(2, argv);
}
"""


def listed(header, function, member=""):
    return BY_NAME % (header, function, function, member)


# kind, list, a line of the list, the line after it, the new file's text or "", the file with the
# table, the program
KINDS = [
    ("codec", "codec/codec_rows.h", "X(prune)", "X(dummy)",
     'const dl_codec dl_codec_dummy = {.name = "dummy"};',
     "codec/codec.c", listed("codec/codec.h", "dl_codec_at", "->name")),
    ("combiner", "combine/combine_rows.h", "X(centered_clip)", "X(dummy)",
     'const dl_combiner dl_combiner_dummy = {.name = "dummy"};',
     "combine/combine.c", listed("combine/combine.h", "dl_combiner_at", "->name")),
    ("outer optimizer", "outer/outer_rows.h", "X(muon)", "X(dummy)",
     'const dl_outer dl_outer_dummy = {.name = "dummy"};',
     "outer/outer.c", listed("outer/outer.h", "dl_outer_at", "->name")),
    ("store", "store/kind.h", "X(user)", "X(dummy)",
     "static diloco_status refuse(void *self, const char *place, bool create, const atomic_bool *aborted)\n"
     '{ (void)self, (void)place, (void)create, (void)aborted; return dl_fail(DILOCO_EREFUSED, "dummy"); }\n'
     "static void nothing(void *self) { (void)self; }\n"
     'const dl_store_kind dl_store_dummy = {.scheme = "dummy", .size = 1, .open = refuse, .close = nothing};',
     "store/store_open.c", OPENS),
    ("operation", "nn/op_rows.h", "X(qk_norm)", "X(dummy)",
     'const dl_op dl_op_dummy = {.name = "dummy"};',
     "nn/ops.c", listed("nn/op.h", "dl_op_at", "->name")),
    ("model", "model/model_rows.h", "X(mlp, DL_IMAGES)", "X(dummy, DL_IMAGES)",
     "diloco_status dl_dummy_build(dl_graph **out, const dl_config *config, const dl_sample *sample,\n"
     "                             const dl_graph_target *target)\n"
     "{ return dl_mlp_build(out, config, sample, target); }",
     "model/model.c", listed("model/model.h", "dl_model_name_at")),
    ("inner optimizer", "nn/inner_rows.h", "X(muon, muon, adamw)", "X(dummy, dummy, adamw)",
     'const dl_rule dl_rule_dummy = {.vectors = {"dummy"}};',
     "nn/inner.c", listed("nn/inner.h", "dl_inner_name_at")),
    ("sampler", "data/samplers.h", "X(distribution)", "X(dummy)",
     'const dl_sampler dl_sampler_dummy = {.name = "dummy"};',
     "data/partition.c", listed("data/partition.h", "dl_sampler_name_at")),
    ("executor", "launch/executor_rows.h", "X(slurm)", "X(dummy)",
     'const dl_executor dl_executor_dummy = {.name = "dummy"};',
     "launch/executor.c", listed("launch/executor.h", "dl_executor_at", "->name")),
    ("export format", "interop/export.h", "X(gguf)", "X(dummy)",
     'const dl_export_format dl_export_dummy = {.name = "dummy"};',
     "interop/export.c", "#include <stddef.h>\n" + listed("diloco/train.h", "diloco_export_format_at")),
    ("tracker", "base/options/run_options.h", "X(csv, \"FILE\")", "X(dummy, \"PLACE\")",
     '#include "train/tracker_kinds.h"\n'
     "static diloco_status opened(dl_tracker *t, const char *place) { (void)t, (void)place; return DILOCO_OK; }\n"
     'const dl_tracker_kind dl_tracker_dummy = {.name = "dummy", .open = opened};',
     "train/tracker.c", TRACKER),
    ("subcommand", "cli/command_rows.h", "X(train)", "X(dummy)",
     "static diloco_status run(const dl_args *args) { (void)args; return DILOCO_OK; }\n"
     'const dl_command dl_command_dummy = {.name = "dummy", .summary = "none", .run = run};',
     "cli/commands.c", COMMAND),
    ("option", "base/options/launch_options.h", "#define DL_LAUNCH_OPTIONS(X) \\\n",
     '    X(INT(0, 9), dummy, "launch.dummy", "7", "", 0, "Any digit.") \\\n', "", "base/config.c", OPTION),
    ("preset", "presets/presets.c", "static const diloco_preset presets[] = {\n",
     '    {"dummy", "none", "none", VALUES({"run.seed", "2"})},\n', "", "presets/presets.c",
     "#include <stddef.h>\n" + listed("diloco/train.h", "diloco_preset_at", "->name")),
]
# The folders of the program's own parts, which are in neither library.
PROGRAM = ("cli", "fed", "fetch", "gossip", "hub", "launch", "notify", "plan", "view")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def compiled(cc, folder, libraries, sources):
    flags = ["-std=c11", "-O1", "-D_GNU_SOURCE", "-DDL_CLOUD=1", '-DDILOCO_VERSION="0"', "-ffp-contract=off",
             f"-I{folder}/src", f"-I{folder}/include"]
    return run([cc, *flags, *sources, "-o", f"{folder}/program", *libraries])


def objects_of(build, name):
    """The objects of a folder whose source exists, in the project or made in the build folder. A build
    folder also keeps objects of files that were moved away."""
    folder = pathlib.Path(build, "CMakeFiles", f"dl_{name}.dir")
    return [o for o in folder.rglob("*.o")
            if any((top / o.relative_to(folder)).with_suffix("").exists() for top in (ROOT, pathlib.Path(build)))]


def objects(build, header, table):
    """The program's objects beside the table, for a list of the program."""
    if header.split("/")[0] not in PROGRAM:
        return []
    made = [o for name in PROGRAM for o in objects_of(build, name)]
    return [o for o in made if o.name != f"{pathlib.Path(table).name}.o"]


def add(cc, build, libraries, kind):
    """The problem of adding this kind by a file and a line, or None."""
    name, header, last, line, text, table, program = kind
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for top in ("src", "include"):
            shutil.copytree(ROOT / top, folder / top, ignore=lambda at, names: {
                n for n in names if n.endswith((".c", ".cc", ".md")) and not pathlib.Path(at, n).is_dir()})
        text_of_list = (ROOT / "src" / header).read_text()
        if text_of_list.count(last) != 1:
            return f"{header} does not have once: {last}"
        (folder / "main.c").write_text(program)
        if text:
            (folder / "dummy.c").write_text(f'#include "{header}"\n#include "base/status.h"\n{text}\n')
        sources = [folder / "main.c", folder / "table.c", *objects(build, header, table)]
        shutil.copy(ROOT / "src" / table, folder / "table.c")
        failed, said = compiled(cc, folder, libraries, sources)
        if failed:
            return f"does not build before the line is added:\n{said}"
        if run([f"{folder}/program"])[0] == 0:
            return "is found before the line is added"
        list_at = folder / "table.c" if header == table else folder / "src" / header
        list_at.write_text(text_of_list.replace(last, f"{last}{'' if last.endswith(chr(10)) else ' '}{line}"))
        failed, said = compiled(cc, folder, libraries, [*sources, *folder.glob("dummy.c")])
        if failed:
            return f"does not build:\n{said}"
        return None if run([f"{folder}/program"])[0] == 0 else "is not found"


def main():
    cc, build, *libraries = sys.argv[1:]
    libraries = [f"{build}/libdiloco-train.a", f"{build}/libdiloco.a", *libraries, "-lstdc++", "-lm", "-lpthread"]
    n_failed = 0
    for kind in KINDS:
        fault = add(cc, build, libraries, kind)
        n_failed += bool(fault)
        print(f"{kind[0]}: {fault or ('one file and one line' if kind[4] else 'one line')}")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
