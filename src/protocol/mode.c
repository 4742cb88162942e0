/* mode.c - see mode.h. */
#include "protocol/mode.h"

const dl_mode *dl_mode_of(const dl_machine_args *a)
{
    if (a->pace->schedule.async) return &dl_mode_async;
    return dl_config_federated(a->config) ? &dl_mode_clients : &dl_mode_rounds;
}
