/* cmd_id.c - this machine's key: made if it does not exist, and its public half shown.
 *
 * The key is an Ed25519 key in a PEM file with mode 0600. Its public half is what an owner writes
 * into a roster. Nothing of a run is read. */
#include "base/signature.h"
#include "cli/cli.h"

#include <limits.h>

/* Print the public key on stdout. That a key was made is said on stderr, so a script gets the key
 * alone. */
static diloco_status print_id(const dl_args *args, const char *path, const char *id, bool made)
{
    if (!dl_args_has(args, DL_FLAG_JSON)) {
        if (made) fprintf(stderr, "%s: a new key; keep a copy, and keep it secret\n", path);
        puts(id);
        return DILOCO_OK;
    }
    dl_buf buf;
    dl_json json;
    dl_buf_init(&buf, 1 << 16);
    dl_json_init(&json, &buf);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "key", id);
    dl_json_str(&json, "file", path);
    dl_json_bool(&json, "made", made);
    dl_json_end(&json);
    return dl_print_json(&json, &buf);
}

/* Two processes may make the key at once. The one that finds it there opens what the other has
 * written. */
static diloco_status cmd_id(const dl_args *args)
{
    char path[PATH_MAX], id[DL_PUBLIC_TEXT];
    const char *given = args->flags[DL_FLAG_ID_KEY];
    dl_signer *signer;
    bool made = false;
    if (given && (size_t)snprintf(path, sizeof path, "%s", given) >= sizeof path)
        return dl_fail(DILOCO_EINVAL, "--key: the path is too long");
    if (!given) DL_TRY(dl_signer_path(path, sizeof path));
    diloco_status status = dl_signer_open(&signer, path);
    if (status == DILOCO_ENOENT) {
        status = dl_signer_make(path);
        if (status && status != DILOCO_EEXIST) return status; /* another was quicker */
        made = !status;
        status = dl_signer_open(&signer, path);
    }
    DL_TRY(status);
    dl_public_text(id, dl_signer_public(signer));
    dl_signer_close(signer);
    return print_id(args, path, id, made);
}

const dl_command dl_command_id = {
    .name = "id",
    .summary = "print this machine's public key; makes the key if it is missing",
    .details = "An Ed25519 key in PEM that only you can read. Runs with run.roster sign with it.\n"
               "The printed text may be public; the file is secret.",
    .flags = DL_FLAGS(DL_FLAG_ID_KEY, DL_FLAG_JSON),
    .run = cmd_id,
};
