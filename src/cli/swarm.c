/* swarm.c - see swarm.h. A program without the hub (DILOCO_CLOUD=OFF) has no nodes, and each
 * function then says so.
 *
 * A node trains by gossip (src/gossip) and keeps its objects in a folder of its machine. This file
 * answers the questions that commands have about such runs: is it one, what are the settings, which
 * names do the nodes here have, and what is their status. */
#include "cli/swarm.h"

#include "cli/crew/names.h"
#include "cli/settings/settings.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A node serves its objects below /run, which a person need not know. */
void dl_swarm_place(dl_config_path store)
{
    const char *host = strncmp(store, "http", 4) ? NULL : strstr(store, "://");
    if (host && !strchr(host + 3, '/') && strlen(store) + 5 < sizeof(dl_config_path))
        strcat(store, "/run");
}

/* A store that cannot be read is not one: the command that follows reports the error itself. */
bool dl_swarm_is_at(const char *store)
{
    dl_config *run = malloc(sizeof *run);
    if (!run) return false;
    dl_config_init(run);
    const bool is = !diloco_run_config(run, store) && dl_swarm_is(run);
    free(run);
    return is;
}

/* Reads run.json once more than the command needs; that is one small request. */
diloco_status dl_swarm_refuse(const char *store, const char *command)
{
    if (!dl_swarm_is_at(store)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "the run in %s has no log (swarm.consensus = \"none\"), so there is nothing to "
                   "%s: each node decides for itself; diloco status shows the nodes",
                   store, command);
}

#if !DL_CLOUD

/* The error of every function that needs the hub, in a program built without it. */
static diloco_status left_out(void)
{
    return dl_fail(DILOCO_EREFUSED, "swarm.consensus = \"none\" needs the hub, which this program "
                                    "was built without (DILOCO_CLOUD=OFF)");
}

void dl_swarm_use_peers(void) {}

diloco_status dl_swarm_train(const dl_config *config, const char *name,
                             const diloco_train_hooks *hooks)
{
    (void)config, (void)name, (void)hooks;
    return left_out();
}

diloco_status dl_swarm_settings(dl_config *out, const dl_args *args)
{
    (void)out, (void)args;
    return left_out();
}

void dl_swarm_names(dl_replica_name *out, size_t n, const dl_config *config)
{
    (void)out, (void)n, (void)config;
}

diloco_status dl_swarm_status(const char *store, bool json)
{
    (void)store, (void)json;
    return left_out();
}

#else

#include "gossip/direct.h"
#include "gossip/gossip.h"

void dl_swarm_use_peers(void)
{
    dl_direct_use();
}

diloco_status dl_swarm_train(const dl_config *config, const char *name,
                             const diloco_train_hooks *hooks)
{
    return dl_gossip_train(config, name, hooks);
}

/* Return true if this node will speak TLS. Then an address without a scheme is https. */
static bool asks_for_tls(const dl_args *args)
{
    for (size_t i = 0; i < args->n_sets; i++)
        if (!strncmp(args->sets[i], "swarm.cert=", 11)) return args->sets[i][11] != '\0';
    return false;
}

/* Write the node's folder: --store, or --set run.store. Two different ones are a contradiction. */
static diloco_status find_folder(const char **store, const dl_args *args)
{
    const char *flag = args->flags[DL_FLAG_STORE], *set = NULL;
    for (size_t i = 0; i < args->n_sets; i++)
        if (!strncmp(args->sets[i], "run.store=", 10)) set = args->sets[i] + 10;
    if (flag && set && strcmp(flag, set) != 0)
        return dl_fail(DILOCO_EINVAL, "--store and --set run.store contradict each other");
    *store = flag ? flag : set ? set : "runs/swarm";
    return DILOCO_OK;
}

/* Copy the run's settings from the node into the folder, then read them from there. A folder
 * that has them already is enough, so a node resumes while its peer is down. */
diloco_status dl_swarm_settings(dl_config *out, const dl_args *args)
{
    const char *peer = args->flags[DL_FLAG_PEER], *store = NULL;
    dl_args local = *args;
    if (args->target)
        return dl_fail(DILOCO_EINVAL, "give either --peer or the URL of a run, not both");
    DL_TRY(find_folder(&store, args));
    local.target = store;
    const diloco_status status = dl_gossip_take_run(local.target, peer, asks_for_tls(args));
    if (status && (status != DILOCO_EUNREACHABLE && status != DILOCO_ETIMEDOUT)) return status;
    if (status && !dl_swarm_is_at(local.target))
        return dl_fail(status, "no node answers at %s, and %s has no run to resume", peer,
                       local.target);
    DL_TRY(dl_settings_of_run(out, &local));
    return dl_config_set(out, "swarm.bootstrap", peer, "--peer");
}

/* Names of this folder come first, so nodes resume with their models. */
void dl_swarm_names(dl_replica_name *out, size_t n, const dl_config *config)
{
    size_t known = dl_names_idle(out, n, config->state_dir);
    while (known < n)
        dl_gossip_name(out[known++]);
}

/* ---- status */

/* Return a divergence as text, or "-" before the first exchange has measured it. */
static const char *divergence_text(char out[16], double divergence)
{
    if (isnan(divergence)) return "-";
    snprintf(out, 16, "%.4g", divergence);
    return out;
}

/* Print a line for each node. `divergence` is the root mean square distance of the models that the
 * node saw last from their mean. */
static void print_peers(const dl_gossip_status *s, const char *store)
{
    printf("run        %s at %s\n", s->run, store);
    printf("consensus  none: each node has a model of its own\n\n");
    printf("%-12s %-4s %-9s %10s %10s %8s %10s  %-12s %s\n", "node", "gen", "state", "round",
           "step", "stepped", "divergence", "model", "address");
    for (size_t i = 0; i < s->n; i++) {
        const dl_gossip_peer *p = &s->peers[i];
        char divergence[16];
        printf("%-12s %-4u %-9s %4" PRIu64 "/%-5" PRIu64 " %10" PRIu64 " %8" PRIu64
               " %10s  %-12.12s %s\n",
               p->name, p->generation,
               p->done      ? "done"
               : p->reached ? "reachable"
                            : "silent",
               p->round, s->rounds, p->step, p->stepped, divergence_text(divergence, p->divergence),
               p->digest, p->address);
    }
}

/* Print the same as one object. Member names are part of the documented output and stay as they
 * are. */
static diloco_status print_json(const dl_gossip_status *s, const char *store)
{
    dl_buf out;
    dl_json j;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&j, &out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "run", s->run);
    dl_json_str(&j, "store", store);
    dl_json_str(&j, "consensus", "none");
    dl_json_u64(&j, "rounds", s->rounds);
    dl_json_array(&j, "nodes");
    for (size_t i = 0; i < s->n; i++) {
        const dl_gossip_peer *p = &s->peers[i];
        dl_json_object(&j, NULL);
        dl_json_str(&j, "node", p->name);
        dl_json_u64(&j, "life", p->generation);
        dl_json_bool(&j, "reached", p->reached);
        dl_json_bool(&j, "done", p->done);
        dl_json_u64(&j, "round", p->round);
        dl_json_u64(&j, "step", p->step);
        dl_json_u64(&j, "stepped", p->stepped);
        dl_json_u64(&j, "ignored", p->ignored);
        dl_json_f64(&j, "divergence", p->divergence);
        dl_json_str(&j, "model", p->digest);
        dl_json_str(&j, "address", p->address);
        dl_json_end(&j);
    }
    dl_json_end(&j);
    dl_json_end(&j);
    return dl_print_json(&j, &out);
}

/* The status has room for DL_GOSSIP_PEERS nodes and is too large for some stacks, hence the
 * heap. */
diloco_status dl_swarm_status(const char *store, bool json)
{
    dl_gossip_status *s = malloc(sizeof *s);
    if (!s) return dl_fail(DILOCO_ENOMEM, "out of memory for the nodes' status");
    diloco_status status = dl_gossip_status_read(s, store);
    if (!status && json) status = print_json(s, store);
    if (!status && !json) print_peers(s, store);
    free(s);
    return status;
}

#endif
