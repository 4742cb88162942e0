/* cmd_train.c - start a run or resume it: check everything first, then create, then train. */
#include "cli/crew.h"
#include "cli/settings.h"
#include "cli/swarm.h"
#include <diloco/train.h>

#include <string.h>

/* Replicas are processes, and memory is not shared between them. */
static diloco_status check_store(const dl_config *config)
{
    if (strncmp(config->store, "mem://", 6) != 0) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "run.store = \"%s\" (%s): a mem:// store lives in one process, and every "
                   "replica is a process; name a folder",
                   config->store, dl_config_origin(config, "run.store"));
}

diloco_status dl_cmd_train(const dl_args *args)
{
    dl_config config;
    DL_TRY(dl_settings_load(&config, args));
    if (dl_args_has(args, DL_FLAG_PRINT_CONFIG))
        return dl_settings_print(&config, dl_args_has(args, DL_FLAG_JSON));
    DL_TRY(check_store(&config));
    DL_TRY(diloco_train_check(&config));
    DL_TRY(diloco_train_create(&config));
    return dl_crew_run(&config, args, false);
}
