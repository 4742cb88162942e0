/* slurm_script.c - see slurm_script.h. The script is for a POSIX shell. Every text that comes from
 * an option is quoted. The replica runs as a child of the script and not in its place: only so can
 * the script write the exit code. */
#include "launch/slurm_script.h"

#include "launch/program.h"

#include <string.h>

/* export NAME='value' for each of spec->env. */
static diloco_status add_exports(dl_buf *out, const dl_launch_spec *spec)
{
    for (const char *const *e = spec->env; *e; e++) {
        DL_TRY(dl_buf_addf(out, "export "));
        DL_TRY(dl_buf_addf(out, "%.*s=", (int)strcspn(*e, "="), *e));
        DL_TRY(dl_shell_quote(out, strchr(*e, '=') + 1));
        DL_TRY(dl_buf_addf(out, "\n"));
    }
    return DILOCO_OK;
}

/* Append a word in which each mark becomes the shell's $rank. */
static diloco_status add_word(dl_buf *out, char *word, const char *mark)
{
    char *at = strstr(word, mark);
    if (!at) return dl_shell_quote(out, word);
    for (; at; word = at + strlen(mark), at = strstr(word, mark)) {
        *at = '\0';
        if (*word) DL_TRY(dl_shell_quote(out, word));
        DL_TRY(dl_buf_addf(out, "\"$rank\""));
    }
    return *word ? dl_shell_quote(out, word) : DILOCO_OK;
}

/* The words of a replica for a shell, with the rank as $rank. The first word is the program, which
 * the script has in a variable. */
static diloco_status add_command(dl_buf *out, const dl_launch_spec *spec)
{
    static const char mark[] = "@rank@";
    char **words;
    DL_TRY(dl_replica_argv(&words, spec, "", mark));
    diloco_status status = dl_buf_addf(out, "\"$program\"");
    for (char **word = words + 1; !status && *word; word++) {
        status = dl_buf_addf(out, " ");
        if (!status) status = add_word(out, *word, mark);
    }
    dl_argv_free(words);
    return status;
}

/* Compare the node with the program's architecture. The exit code is written, so that Slurm's state
 * does not count as a lost task, which would be submitted again. */
static diloco_status add_machine_check(dl_buf *out, const char *machine)
{
    if (!machine) return DILOCO_OK; /* a script, or a wheel whose name has none */
    return dl_buf_addf(out,
                       "here=$(uname -sm)\n[ \"$here\" = 'Linux %s' ] || {\n"
                       "echo \"$(uname -n) is a machine of $here, and the program is for Linux %s: "
                       "set launch.binary to a diloco that was built for it\"\nfinish %d\n}\n",
                       machine, machine, diloco_exit_code(DILOCO_EREFUSED));
}

/* umask 077 keeps output and exit code private. sha256sum gets the program's path below the working
 * folder: a line of it has no place for a newline, which launch.dir may have. `wait` returns early
 * when a trapped signal comes, so the script waits again while the replica runs. */
diloco_status dl_slurm_script(dl_buf *out, const dl_launch_spec *spec, uint32_t generation,
                              const char *digest)
{
    DL_TRY(dl_buf_addf(out, "#!/bin/sh\numask 077\nrank=$SLURM_ARRAY_TASK_ID\ndir="));
    DL_TRY(dl_shell_quote(out, spec->dir));
    const bool wheel = dl_program_is_wheel(spec->program);
    DL_TRY(
        dl_buf_addf(out,
                    "\nname=diloco-%.8s-r$rank-g%u\nprogram=$dir/bin/%s/%s\n"
                    "cd \"$dir\" && mkdir -p \"$name\" && rm -f \"$name/exit\" || exit 1\n"
                    "finish() {\necho \"exit $1 ${SLURM_RESTART_COUNT:-0}\" >\"$name/exit.tmp\" && "
                    "mv \"$name/exit.tmp\" \"$name/exit\"\nexit \"$1\"\n}\n"
                    "export DILOCO_RANK=\"$rank\" DILOCO_JOB=\"$name\"\n",
                    spec->run, generation, digest, wheel ? DL_WHEEL_PROGRAM : "diloco"));
    DL_TRY(add_machine_check(out, dl_program_machine(spec->program)));
    if (wheel) DL_TRY(dl_buf_addf(out, "export PYTHONPATH=\"$dir/bin/%s/site\"\n", digest));
    DL_TRY(add_exports(out, spec));
    if (*spec->secrets) DL_TRY(dl_buf_addf(out, ". \"$dir/secrets\" || exit 1\n"));
    DL_TRY(dl_buf_addf(out,
                       "echo '%s  bin/%s/diloco%s' | sha256sum -c --status || "
                       "{ echo 'the program was changed'; exit 1; }\n",
                       digest, digest, wheel ? ".whl" : ""));
    if (wheel)
        DL_TRY(dl_buf_addf(out,
                           "(cd bin/%s && " DL_WHEEL_CHECK ") || "
                           "{ echo 'the installed wheel was changed'; exit 1; }\n",
                           digest));
    /* A signal to the script alone is passed on, also one that comes before the replica does. */
    DL_TRY(dl_buf_addf(out, "asked= replica=\ntrap 'asked=1; [ -z \"$replica\" ] || "
                            "kill -TERM $replica 2>/dev/null' TERM\n"));
    DL_TRY(add_command(out, spec));
    /* Slurm signals every process of the job when it stops it: the replica ends by itself. */
    return dl_buf_addf(out, " &\nreplica=$!\n[ -z \"$asked\" ] || kill -TERM $replica 2>/dev/null\n"
                            "wait $replica\ncode=$?\n"
                            "while kill -0 $replica 2>/dev/null; do wait $replica; code=$?; done\n"
                            "finish $code\n");
}
