/* status.c - the error text of a thread is one fixed buffer, so that wording a failure
 * can itself not fail. A new text is built aside first: its arguments may be the old one. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 2048 }; /* with its zero byte */

static _Thread_local char text[TEXT_MAX];

/* A row for each status: its name in texts, and the exit code of a program that ends with it. A new
 * status needs a row. */
static const struct {
    const char *name;
    int exit_code;
} statuses[DILOCO_N_STATUS] = {
    [DILOCO_OK] = {"ok", 0},
    [DILOCO_EINVAL] = {"invalid", 2},
    [DILOCO_EREFUSED] = {"refused", 3},
    [DILOCO_EUNREACHABLE] = {"unreachable", 4},
    [DILOCO_EINTERRUPTED] = {"interrupted", 130},
    [DILOCO_ENOMEM] = {"memory", 1},
    [DILOCO_EIO] = {"io", 1},
    [DILOCO_EFULL] = {"full", 1},
    [DILOCO_ENOENT] = {"missing", 1},
    [DILOCO_EEXIST] = {"exists", 1},
    [DILOCO_EPROTO] = {"damaged", 1},
    [DILOCO_ENUMERIC] = {"numeric", 1},
    [DILOCO_ETIMEDOUT] = {"timeout", 1},
    [DILOCO_ECLOSED] = {"closed", 1},
    [DILOCO_EFENCED] = {"fenced", 1},
    [DILOCO_EDIFFERS] = {"differs", 1},
};

const char *diloco_error_text(void)
{
    return text;
}

const char *diloco_status_name(diloco_status status)
{
    return (unsigned)status < DILOCO_N_STATUS ? statuses[status].name : "unknown";
}

int diloco_exit_code(diloco_status status)
{
    return (unsigned)status < DILOCO_N_STATUS ? statuses[status].exit_code : 1;
}

/* The text belongs to the calling thread, and the next failure there replaces it. */
diloco_status dl_fail(diloco_status status, const char *format, ...)
{
    char made[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(made, sizeof made, format, args);
    va_end(args);
    strcpy(text, made);
    return status;
}

/* The text is cut at its end if both do not fit, so the context always shows. */
diloco_status dl_fail_context(diloco_status status, const char *format, ...)
{
    char made[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(made, sizeof made, format, args);
    va_end(args);

    strncat(made, ": ", TEXT_MAX - 1 - strlen(made));
    strncat(made, text, TEXT_MAX - 1 - strlen(made));
    strcpy(text, made);
    return status;
}

/* A bug ends the process at once: continuing could publish wrong state. */
void dl_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "diloco: bug at %s:%d: %s does not hold\n", file, line, condition);
    abort();
}
