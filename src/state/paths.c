/* paths.c - see paths.h. */
#include "state/paths.h"

#include "protocol/logical_clients.h"
#include "state/private_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

diloco_status dl_run_state_dir(dl_config_path out, const dl_config *config)
{
    if (!config->state_dir[0]) return dl_run_state_dir_of(out, config->store);
    memcpy(out, config->state_dir, sizeof(dl_config_path));
    return DILOCO_OK;
}

/* The host's name separates machines that share a network folder: each has a private state of its
 * own. */
diloco_status dl_run_state_dir_of(dl_config_path out, const char *store)
{
    const char *place = store;
    if (strncmp(place, "file://", 7) == 0)
        place += 7;
    else if (strstr(place, "://"))
        return dl_fail(DILOCO_EINVAL,
                       "set run.state_dir (a folder, or \"none\"): %s has no folder beside it for "
                       "private state",
                       store);
    char host[64] = "host";
    (void)!gethostname(host, sizeof host - 1);
    size_t len = strlen(place);
    while (len > 1 && place[len - 1] == '/')
        len--;
    const int n = snprintf(out, sizeof(dl_config_path), "%.*s.local/%s", (int)len, place, host);
    if (n < 0 || (size_t)n >= sizeof(dl_config_path))
        return dl_fail(DILOCO_EINVAL, "the store's path is too long: set run.state_dir");
    return DILOCO_OK;
}

bool dl_run_was_here(const dl_config *config, const char *replica)
{
    dl_config_path dir;
    return strcmp(config->state_dir, "none") != 0 && !dl_run_state_dir(dir, config) &&
           dl_local_exists(dir, replica);
}

/* Returns this machine's folder for data that only it needs. */
static const char *scratch_dir(dl_config_path out, const dl_config *config)
{
    if (strcmp(config->state_dir, "none") == 0 || dl_run_state_dir(out, config)) {
        const char *tmp = getenv("TMPDIR");
        snprintf(out, sizeof(dl_config_path), "%s", tmp && tmp[0] ? tmp : "/tmp");
    }
    return out;
}

bool dl_run_spools(const dl_config *config, double bytes)
{
    const bool many =
        dl_config_federated(config) && dl_clients_per_round(config) > DL_SPOOL_CLIENTS;
    if (config->spool != DL_SPOOL_AUTO) return config->spool == DL_SPOOL_DISK;
    return many || bytes > (double)config->spool_mb * 1048576;
}

/* The estimate takes the largest fragment in float32 from each replica that an entry may count. */
const char *dl_run_spool_dir(dl_config_path out, const dl_config *config, const dl_runfile *run)
{
    size_t most = 0; /* floats of a fragment */
    for (int f = 0; f < run->manifest.n_fragments; f++) {
        const dl_fragment_shape *s = &run->manifest.fragments[f];
        most = dl_size_max(most, s->n_trained + s->n_averaged);
    }
    const double bytes = 4.0 * (double)most * (double)dl_clients_per_round(config);
    return dl_run_spools(config, bytes) ? scratch_dir(out, config) : NULL;
}

const char *dl_run_offload_dir(dl_config_path out, const dl_config *config)
{
    return config->offload == DL_OFFLOAD_DISK ? scratch_dir(out, config) : NULL;
}
