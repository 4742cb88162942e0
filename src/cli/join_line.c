/* join_line.c - see join_line.h. The secret part is in no error of this file, and is removed
 * from argv as soon as the command line is parsed. */
#include "cli/join_line.h"

#include "base/signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are read of a line at once; hex digits of a SHA-256. */
enum { LINE_MAX_BYTES = 4096, PIN_HEX = 64 };

/* Write 32 bytes in standard base64, with its padding: 44 characters. DILOCO_HUB_PIN has that
 * form, as curl's --pinnedpubkey has. */
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

/* Put the part after the # into the environment: the hash as a pin, the token as a token. A line
 * without a token is for a hub that asks for none. */
static diloco_status take_fragment(const char *fragment)
{
    unsigned char hash[32];
    char pin[64] = "sha256//";
    const size_t digits = strcspn(fragment, ".");
    const char *token = fragment[digits] ? fragment + digits + 1 : NULL;
    if (digits != PIN_HEX || !dl_unhex(hash, sizeof hash, fragment, digits) || (token && !*token))
        return dl_fail(DILOCO_EINVAL,
                       "that is no join line: 64 hex digits, a dot and a token have to follow "
                       "the #, as diloco serve --join prints them");
    base64(pin + strlen(pin), hash);
    /* Replicas inherit the variables. Other users of the machine cannot read them. */
    if (setenv("DILOCO_HUB_PIN", pin, 1) || (token && setenv("DILOCO_HUB_TOKEN", token, 1)))
        return dl_fail(DILOCO_ENOMEM, "out of memory for a join line");
    return DILOCO_OK;
}

/* Take the fragment of an argument and blot it out: the URL remains, and *blotted is set to it.
 * Other arguments with a '#' are left alone, as they are no https URLs. */
static diloco_status take(const char **argument, const char **blotted)
{
    char *text = (char *)(uintptr_t)*argument; /* argv's: ours to write */
    char *hash = text ? strchr(text, '#') : NULL;
    if (!hash || strncmp(text, "https://", 8) != 0) return DILOCO_OK;
    const diloco_status status = take_fragment(hash + 1);
    memset(hash, 0, strlen(hash));
    *blotted = text;
    return status;
}

/* Read the URL of the first join line; serve --join prints other lines, too. The rest of the
 * buffer is wiped. */
static diloco_status read_line(char out[LINE_MAX_BYTES], FILE *file, const char *name)
{
    while (fgets(out, LINE_MAX_BYTES, file)) {
        const char *url = strstr(out, "https://");
        const size_t len = url ? strcspn(url, " \t\r\n") : 0;
        if (!url || !memchr(url, '#', len)) continue;
        memmove(out, url, len);
        memset(out + len, 0, LINE_MAX_BYTES - len);
        return DILOCO_OK;
    }
    memset(out, 0, LINE_MAX_BYTES);
    return dl_fail(DILOCO_EINVAL, "%s holds no join line: https://HOST:PORT/RUN#…", name);
}

/* Replace "@FILE" and "-" by the URL in it. `line` has to be valid as long as argv, because the
 * argument points into it. */
static diloco_status read_named(const char **argument, char line[LINE_MAX_BYTES])
{
    const char *name = *argument;
    const bool is_stdin = name && !strcmp(name, "-");
    if (!name || (!is_stdin && name[0] != '@')) return DILOCO_OK;
    FILE *file = is_stdin ? stdin : fopen(name + 1, "r");
    if (!file) return dl_fail(DILOCO_EINVAL, "there is no file %s", name + 1);
    const diloco_status status = read_line(line, file, is_stdin ? "stdin" : name + 1);
    if (!is_stdin) fclose(file);
    if (!status) *argument = line;
    return status;
}

/* The URL and --store may both be join lines, hence two buffers. Only commands whose target is a
 * URL read it from a file. */
diloco_status dl_join_line_take(dl_args *args)
{
    static char lines[2][LINE_MAX_BYTES];
    const char **store = &args->flags[DL_FLAG_STORE];
    const char *target = args->command->target;
    if (target && strstr(target, "URL")) DL_TRY(read_named(&args->target, lines[0]));
    DL_TRY(read_named(store, lines[1]));
    DL_TRY(take(&args->target, &args->blotted[0]));
    return take(store, &args->blotted[1]);
}
