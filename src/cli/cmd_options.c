/* cmd_options.c - every option, those that a part of a name finds, or the page docs/options.md.
 *
 * The option table (base/config.h) is the only source; help.c writes the text. The page is part of
 * the documentation, and a test compares it with this output. */
#include "base/config.h"
#include "cli/help.h"

/* Compose the error for a word that neither a name nor a help text contains, with the nearest
 * name. */
static diloco_status none_found(const char *part)
{
    const char *nearest = dl_option_nearest(dl_config_table, part);
    if (nearest)
        return dl_fail(DILOCO_EINVAL,
                       "no option has \"%.60s\" in its name or its help; did you mean %s?", part,
                       nearest);
    return dl_fail(DILOCO_EINVAL,
                   "no option has \"%.60s\" in its name or its help: diloco options lists all",
                   part);
}

/* Without a target the advanced options are listed, too, and those with one value are left out. */
static diloco_status cmd_options(const dl_args *args)
{
    const bool page = dl_args_has(args, DL_FLAG_MARKDOWN);
    if (page && args->target)
        return dl_fail(DILOCO_EINVAL, "--markdown writes the page of all options: omit %.60s",
                       args->target);
    if (args->target)
        return dl_help_options_with(stdout, args->target) ? DILOCO_OK : none_found(args->target);
    if (page)
        dl_help_options_page(stdout);
    else
        dl_help_options(stdout, false, true);
    return DILOCO_OK;
}

const dl_command dl_command_options = {
    .name = "options",
    .target = "[NAME]",
    .words = DL_COMPLETE_OPTIONS,
    .summary = "options: range, unit, default, meaning",
    .details = "All options, or those with NAME in their names. If no name matches, the meanings\n"
               "are searched.\n"
               "  diloco options lr",
    .flags = DL_FLAGS(DL_FLAG_MARKDOWN),
    .run = cmd_options,
};
