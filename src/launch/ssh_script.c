/* ssh_script.c - see ssh_script.h. */
#include "launch/ssh_script.h"

#include "launch/program.h"

#include <stdio.h>
#include <string.h>

#define RECEIVE                                                                                    \
    "unset CDPATH; umask 077 && mkdir -p {D} && cd {D} && cat >part.$$ && "                        \
    "if echo {S}\"  part.$$\" | sha256sum -c --status; then "
#define DAMAGED "else rm -f part.$$; echo 'the program arrived damaged' >&2; exit 3; fi"

/* The commands for the other machine's shell, where with CDPATH `cd` could go to another folder: of
 * an executable file, and of a wheel (program.h). {D} is the program's folder, {S} its SHA-256 and
 * {N} the name of its file, each as a quoted word. An upload has a name of its own until its digest
 * is right, so two uploads do not mix. sha256sum gets names within the folder, since that of the
 * folder may have a newline. DL_SSH_USE serves both: of a program that was started earlier only the
 * digest is known. */
static const char *const scripts[][2] = {
    [DL_SSH_LOOK] =
        {"unset CDPATH; uname -sm && if cd {D} 2>/dev/null && echo {S}'  diloco' | sha256sum "
         "-c --status; "
         "then echo there; fi",
         "unset CDPATH; uname -sm && if cd {D} 2>/dev/null && echo {S}'  diloco.whl' | "
         "sha256sum -c --status && " DL_WHEEL_CHECK "; then echo there; fi"},
    [DL_SSH_UPLOAD] =
        {RECEIVE "chmod 700 part.$$ && mv part.$$ diloco; " DAMAGED, RECEIVE
         "rm -rf get.$$ && mkdir get.$$ && mv part.$$ get.$$/{N} && " DL_WHEEL_INSTALL
         "get.$$/site get.$$/{N} && rm -rf site && mv get.$$/site site && "
         "mv get.$$/{N} diloco.whl && rmdir get.$$ || { rm -rf get.$$; exit 3; }; " DAMAGED},
    [DL_SSH_USE] =
        {"unset CDPATH; if (cd {D} >/dev/null && echo {S}'  diloco' | sha256sum -c --status "
         "2>/dev/null); "
         "then exec {D}/diloco host; "
         "elif (cd {D} >/dev/null && echo {S}'  diloco.whl' | sha256sum -c --status "
         "2>/dev/null && " DL_WHEEL_CHECK
         "); then PYTHONPATH=$(cd {D} && pwd)/site; export PYTHONPATH; "
         "exec {D}/" DL_WHEEL_PROGRAM " host; else "
         "echo 'the uploaded program was changed' >&2; exit 3; fi"},
};

/* Append the quoted word for {D}, {S} or {N}. */
static diloco_status add_word(dl_buf *out, char name, const dl_launch_spec *spec,
                              const char *digest)
{
    char path[DL_PATH_MAX + DL_PROGRAM_DIGEST + 16];
    const char *slash = strrchr(spec->program, '/');
    if (name == 'S') return dl_shell_quote(out, digest);
    if (name == 'N') return dl_shell_quote(out, slash ? slash + 1 : spec->program);
    snprintf(path, sizeof path, "%s/bin/%s", spec->dir, digest);
    return dl_shell_quote(out, path);
}

/* Fill in a script of the table. */
diloco_status dl_ssh_script(char out[DL_SSH_SCRIPT], dl_ssh_script_kind kind,
                            const dl_launch_spec *spec, const char *digest)
{
    dl_buf text;
    diloco_status status = DILOCO_OK;
    const bool wheel = kind != DL_SSH_USE && dl_program_is_wheel(spec->program);
    dl_buf_init(&text, DL_SSH_SCRIPT - 1);
    for (const char *at = scripts[kind][wheel]; !status && *at;) {
        const bool mark = at[0] == '{' && at[1] && at[2] == '}';
        status = mark ? add_word(&text, at[1], spec, digest) : dl_buf_add(&text, at, 1);
        at += mark ? 3 : 1;
    }
    snprintf(out, DL_SSH_SCRIPT, "%.*s", (int)text.len, text.data ? (const char *)text.data : "");
    dl_buf_deinit(&text);
    return status == DILOCO_EPROTO ? dl_fail(DILOCO_EINVAL, "launch.dir: too long") : status;
}
