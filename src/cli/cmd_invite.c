/* cmd_invite.c - an invitation to a run, on stdout and nowhere else.
 *
 * The owner's key signs the invitation, so only the machine that has this key can make one. The
 * library composes the line; this file reads its time of validity. */
#include "cli/settings/settings.h"
#include <diloco/inspect.h>

#include <stdlib.h>
#include <string.h>

/* Read "24h" as seconds: a whole number of s, m, h or d. At most nine digits are read, so the
 * product cannot overflow. */
static diloco_status read_duration(uint64_t *out, const char *text)
{
    static const struct {
        char letter;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    const size_t digits = strspn(text, "0123456789");
    uint64_t n = digits && digits < 10 ? strtoull(text, NULL, 10) : 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (n && text[digits] == units[i].letter && !text[digits + 1]) {
            *out = n * units[i].seconds;
            if (*out <= UINT32_MAX) return DILOCO_OK;
        }
    return dl_fail(DILOCO_EINVAL, "--for %.20s is not a duration: write it as 90s, 30m, 24h or 7d",
                   text);
}

/* The invitation is a secret, so it goes to stdout and to no log. */
static diloco_status cmd_invite(const dl_args *args)
{
    char text[512];
    dl_config_path store;
    uint64_t seconds = 86400;
    const char *duration = args->flags[DL_FLAG_FOR];
    const char *key = args->flags[DL_FLAG_ID_KEY];
    if (duration) DL_TRY(read_duration(&seconds, duration));
    if (key && setenv("DILOCO_KEY", key, 1)) /* for a hub that asks for it */
        return dl_fail(DILOCO_ENOMEM, "out of memory for --key");
    DL_TRY(dl_settings_store(store, args->target));
    DL_TRY(diloco_invite(text, sizeof text, store, key, seconds));
    puts(text);
    return DILOCO_OK;
}

const dl_command dl_command_invite = {
    .name = "invite",
    .target = "URL",
    .summary = "let one more replica into a run with run.roster = invited",
    .details = "Prints an invitation line, which admits one replica, once. The invited person\n"
               "puts it into a file and takes part with\n"
               "  diloco join URL --set run.invitation=FILE\n"
               "The line is a secret until then.",
    .flags = DL_FLAGS(DL_FLAG_FOR, DL_FLAG_ID_KEY),
    .run = cmd_invite,
};
