/* cmd_options.c - every option, for reading or as the page docs/options.md. */
#include "cli/help.h"

diloco_status dl_cmd_options(const dl_args *args)
{
    if (dl_args_has(args, DL_FLAG_MARKDOWN))
        dl_help_options_page(stdout);
    else
        dl_help_options(stdout, false);
    return DILOCO_OK;
}
