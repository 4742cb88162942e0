/* line.c - see line.h. */
#include "cli/line.h"

#include "base/sign.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4096, PIN_HEX = 64 };

/* In standard base64, with its padding: 32 bytes are 44 characters. */
static void base64(char out[45], const unsigned char in[32])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0, o = 0; i < 32; i += 3, o += 4) {
        const unsigned b = (unsigned)in[i] << 16 | (unsigned)in[i + 1] << 8 |
                           (i + 2 < 32 ? (unsigned)in[i + 2] : 0);
        out[o] = letters[b >> 18];
        out[o + 1] = letters[b >> 12 & 63];
        out[o + 2] = letters[b >> 6 & 63];
        out[o + 3] = i + 2 < 32 ? letters[b & 63] : '=';
    }
    out[44] = '\0';
}

/* What is behind the #, into the environment. */
static diloco_status take_fragment(const char *fragment)
{
    unsigned char hash[32];
    char pin[64] = "sha256//";
    const size_t digits = strcspn(fragment, ".");
    const char *token = fragment[digits] ? fragment + digits + 1 : NULL;
    if (digits != PIN_HEX || !dl_unhex(hash, sizeof hash, fragment, digits) || (token && !*token))
        return dl_fail(DILOCO_EINVAL,
                       "that is no join line: behind the # stand 64 hex digits, a dot and a token, "
                       "as diloco serve --join prints them");
    base64(pin + strlen(pin), hash);
    if (setenv("DILOCO_HUB_PIN", pin, 1) || (token && setenv("DILOCO_HUB_TOKEN", token, 1)))
        return dl_fail(DILOCO_ENOMEM, "no memory for a join line");
    return DILOCO_OK;
}

/* The fragment of an argument, taken and blotted out: what is left is the url. */
static diloco_status take(const char **argument)
{
    char *text = (char *)(uintptr_t)*argument; /* argv's: ours to write */
    char *hash = text ? strchr(text, '#') : NULL;
    if (!hash || strncmp(text, "https://", 8) != 0) return DILOCO_OK;
    const diloco_status status = take_fragment(hash + 1);
    memset(hash, 0, strlen(hash));
    return status;
}

/* The first line, or what stands behind "diloco join " in it. */
static diloco_status read_line(char out[LINE_MAX_BYTES], FILE *file, const char *name)
{
    static const char command[] = "diloco join ";
    if (!fgets(out, LINE_MAX_BYTES, file))
        return dl_fail(DILOCO_EINVAL, "%s holds no join line", name);
    out[strcspn(out, "\r\n")] = '\0';
    if (strncmp(out, command, sizeof command - 1) == 0)
        memmove(out, out + sizeof command - 1, strlen(out) - (sizeof command - 1) + 1);
    if (strncmp(out, "https://", 8) == 0 && strchr(out, '#')) return DILOCO_OK;
    memset(out, 0, LINE_MAX_BYTES);
    return dl_fail(DILOCO_EINVAL, "%s holds no join line: https://HOST:PORT/RUN#…", name);
}

static diloco_status read_target(dl_args *args)
{
    static char line[LINE_MAX_BYTES]; /* as long as argv */
    const char *target = args->target;
    if (strcmp(target, "-") == 0) {
        DL_TRY(read_line(line, stdin, "stdin"));
    } else {
        FILE *file = fopen(target + 1, "r");
        if (!file) return dl_fail(DILOCO_ENOENT, "there is no file %s", target + 1);
        const diloco_status status = read_line(line, file, target + 1);
        fclose(file);
        DL_TRY(status);
    }
    args->target = line;
    return DILOCO_OK;
}

diloco_status dl_line_take(dl_args *args)
{
    const bool joins = strcmp(args->command->name, "join") == 0;
    if (joins && args->target && (args->target[0] == '@' || !strcmp(args->target, "-")))
        DL_TRY(read_target(args));
    DL_TRY(take(&args->target));
    return take(&args->flags[DL_FLAG_STORE]);
}
