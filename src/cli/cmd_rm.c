/* cmd_rm.c - remove a run: its objects in the store, and the private state of its replicas.
 *
 * Only what this program wrote is removed: the run's objects (inspect/remove.c), and in the
 * state folder what replicas keep there. The order is: refuse what is alive, then the store,
 * then the state. So a repeated command continues after a failure. */
#include "base/file.h"
#include "cli/crew/names.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "launch/batch.h"
#include <diloco/inspect.h>

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* ---- state folders: run.state_dir, or that of each host in <store>.local */

typedef diloco_status (*state_fn)(const char *dir, const char *name, uint64_t *n);

/* Return true if this program has chosen the state folder. All that is in it is then a run's. */
static bool chosen(const dl_config *config)
{
    return strcmp(dl_config_origin(config, "run.state_dir"), "chosen") == 0;
}

/* A replica's folder has a lock, which no other folder has. */
static bool has_lock(const char *dir, const char *name)
{
    dl_config_path lock;
    const int n = snprintf(lock, sizeof lock, "%s/%s/lock", dir, name);
    return name[0] != '.' && n > 0 && (size_t)n < sizeof lock && dl_file_exists(lock);
}

/* Return true for a replica's folder, and for that of the logical clients. A state folder that
 * was given may be in use for other things, too. */
static bool is_state(const dl_config *config, const char *dir, const char *name)
{
    return has_lock(dir, name) || (chosen(config) && strcmp(name, "clients") == 0);
}

/* Call fn for each replica's state in one folder. A folder that does not exist has none. */
static diloco_status walk_state(const dl_config *config, const char *dir, state_fn fn, uint64_t *n)
{
    DIR *folder = opendir(dir);
    diloco_status status = DILOCO_OK;
    if (!folder) return DILOCO_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));)
        if (is_state(config, dir, entry->d_name)) status = fn(dir, entry->d_name, n);
    closedir(folder);
    return status;
}

/* Write the folder that holds a state folder for each host. Returns false if run.state_dir was
 * given. */
static bool folder_of_hosts(dl_config_path out, const dl_config *config)
{
    if (!chosen(config)) return false;
    memcpy(out, config->state_dir, sizeof(dl_config_path));
    *strrchr(out, '/') = '\0';
    return true;
}

/* The state of all hosts is removed: with a shared folder, several machines may have left
 * theirs. */
static diloco_status walk_states(const dl_config *config, state_fn fn, uint64_t *n)
{
    dl_config_path hosts, dir;
    diloco_status status = DILOCO_OK;
    if (!*config->state_dir || strcmp(config->state_dir, "none") == 0) return DILOCO_OK;
    if (!folder_of_hosts(hosts, config)) return walk_state(config, config->state_dir, fn, n);
    DIR *folder = opendir(hosts);
    if (!folder) return DILOCO_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        const int len = snprintf(dir, sizeof dir, "%s/%s", hosts, entry->d_name);
        if (entry->d_name[0] != '.' && len > 0 && (size_t)len < sizeof dir)
            status = walk_state(config, dir, fn, n);
    }
    closedir(folder);
    return status;
}

/* ---- is a replica alive? */

/* Refuse to continue if a process holds the lock of this state; otherwise count it. */
static diloco_status refuse_running(const char *dir, const char *name, uint64_t *n)
{
    ++*n;
    if (!dl_name_runs_here(dir, name)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED, "replica %s is running here (%s/%s/lock): stop it first", name,
                   dir, name);
}

/* Return true if a process on this machine held this name, and is over. Its lock shows that at
 * once, without watching. */
static bool ended_here(const dl_config *config, const char *name)
{
    return has_lock(config->state_dir, name) && !dl_name_runs_here(config->state_dir, name);
}

/* Return true if some replica may be alive that this machine knows nothing about. */
static bool worth_watching(const diloco_run_status *run, const dl_config *config)
{
    for (size_t i = 0; i < run->n_replicas; i++)
        if (!run->replicas[i]->ended && !ended_here(config, run->replicas[i]->replica)) return true;
    return false;
}

/* Refuse if a heartbeat has changed. A replica that has said that it leaves cannot be alive. */
static diloco_status refuse_alive(const diloco_run_status *run, const char *store)
{
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        if (!r->ended && r->alive)
            return dl_fail(DILOCO_EREFUSED,
                           "replica %s of the run in %s is alive%s%s: stop it first", r->replica,
                           store, *r->host ? " on " : "", r->host);
    }
    return DILOCO_OK;
}

/* Refuse a run with a replica that is alive. Heartbeats of other machines are watched only where
 * a replica may be alive. */
static diloco_status check_heartbeats(const dl_config *config)
{
    diloco_run_status run;
    diloco_status status = diloco_run_status_read(&run, config->store, 0);
    if (!status && worth_watching(&run, config)) {
        /* A heartbeat of a live replica changes within this time. */
        const double seconds = run.alive_s;
        fprintf(stderr, "watching heartbeats for %.0f s …\n", seconds);
        diloco_run_status_free(&run);
        status = diloco_run_status_read(&run, config->store, seconds);
        if (!status) status = refuse_alive(&run, config->store);
    }
    diloco_run_status_free(&run);
    return status;
}

/* ---- the run */

/* Remove what is left of a folder: unfinished files in .tmp, and the folder itself if it is
 * empty. A failure is a warning, since the run is gone already. */
static void remove_folder(const char *store)
{
    dl_config_path path;
    const char *folder = strncmp(store, "file://", 7) ? store : store + 7;
    if (strstr(folder, "://")) return;
    const int len = snprintf(path, sizeof path, "%s/.tmp", folder);
    DIR *tmp = len > 0 && (size_t)len < sizeof path ? opendir(path) : NULL;
    for (struct dirent *entry; tmp && (entry = readdir(tmp));)
        (void)!unlinkat(dirfd(tmp), entry->d_name, 0); /* "." and ".." are folders: kept */
    if (tmp) closedir(tmp);
    (void)!rmdir(path);
    if (!rmdir(folder) || errno == ENOENT) return;
    fprintf(stderr, "diloco: warning: %s is kept: %s\n", folder, strerror(errno));
}

/* Remove the objects. A hub lets no client remove a run.json or a log, and one of them goes first,
 * so nothing is gone then. */
static diloco_status remove_objects(uint64_t *n, const char *store)
{
    const diloco_status status = diloco_run_remove(n, store);
    if (status != DILOCO_EREFUSED || *n > 0) return status;
    char why[1024];
    snprintf(why, sizeof why, "%s", diloco_error_text());
    return dl_fail(status,
                   "%s; nothing was removed. A hub keeps its runs: remove this one on the hub's "
                   "machine with  diloco rm FOLDER",
                   why);
}

/* Remove the objects, then the folder if nothing else is in it. */
static diloco_status remove_run(const char *store)
{
    uint64_t n = 0;
    DL_TRY(remove_objects(&n, store));
    remove_folder(store);
    printf("removed the run in %s: %" PRIu64 " objects\n", store, n);
    return DILOCO_OK;
}

/* Remove the batch of `diloco launch job`, which has no replicas and no state. */
static diloco_status remove_batch(const char *store)
{
    uint64_t n;
    DL_TRY(dl_batch_remove(&n, store));
    remove_folder(store);
    printf("removed the batch in %s: %" PRIu64 " objects\n", store, n);
    return DILOCO_OK;
}

/* ---- the state */

/* nftw calls it for a folder after all that is in it (FTW_DEPTH), and follows no symbolic link
 * (FTW_PHYS). */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

/* Remove one replica's state, and print its path, so a person sees what is gone. */
static diloco_status remove_state(const char *dir, const char *name, uint64_t *n)
{
    dl_config_path path;
    const int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    DL_ASSERT(len > 0 && (size_t)len < sizeof path); /* is_state has looked inside */
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS))
        return dl_fail_errno(errno, "remove", path);
    printf("removed %s\n", path);
    ++*n;
    (void)!rmdir(dir); /* with the last of it */
    return DILOCO_OK;
}

/* Remove all state of the run, then the folder of the hosts if it is empty. */
static diloco_status remove_states(const dl_config *config)
{
    uint64_t n = 0;
    dl_config_path hosts;
    DL_TRY(walk_states(config, remove_state, &n));
    if (folder_of_hosts(hosts, config)) (void)!rmdir(hosts);
    return DILOCO_OK;
}

/* ---- */

/* Nodes keep their models in their own folders, which this machine cannot know all of. */
static diloco_status check_kind(const dl_config *run)
{
    if (!dl_swarm_is(run)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "the run in %s has no log (swarm.consensus = \"none\"): stop its nodes on every "
                   "machine, then remove their folders",
                   run->store);
}

/* Remove the batch, if the store without a run has one. */
static diloco_status remove_what_is_no_run(bool *removed, const char *store)
{
    const diloco_status status = remove_batch(store);
    *removed = !status;
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* Remove what is left of a run: objects without run.json, and the state beside the store. */
static diloco_status remove_rest(const dl_config *config, uint64_t n_states)
{
    const diloco_status status = remove_run(config->store);
    if (status && status != DILOCO_ENOENT) return status;
    if (status && n_states == 0)
        return dl_fail(DILOCO_ENOENT, "%s holds no run, and there is no state of one in %s",
                       config->store, config->state_dir);
    return remove_states(config);
}

/* A store without a run may have a batch, the rest of a run (EDIFFERS), or still state of a run
 * beside it. That is removed then. */
static diloco_status cmd_rm(const dl_args *args)
{
    static dl_config config, run; /* too large for some stacks */
    uint64_t n_states = 0;
    bool removed = false;
    DL_TRY(dl_settings_of_target(&config, args));
    dl_config_init(&run);
    const diloco_status there = diloco_run_config(&run, config.store);
    if (there && there != DILOCO_ENOENT && there != DILOCO_EDIFFERS) return there;
    if (there) DL_TRY(remove_what_is_no_run(&removed, config.store));
    if (removed) return DILOCO_OK;
    /* Locks first: they are of this machine, and need no waiting. Nothing is removed yet. */
    DL_TRY(walk_states(&config, refuse_running, &n_states));
    if (there) return remove_rest(&config, n_states);
    DL_TRY(check_kind(&run));
    DL_TRY(check_heartbeats(&config));
    DL_TRY(remove_run(config.store));
    return remove_states(&config);
}

const dl_command dl_command_rm = {
    .name = "rm",
    .target = "URL|CONFIG",
    .summary = "remove a run and the private state of its replicas on this machine",
    .details = "It does not ask. It refuses while a replica of the run is alive: one that runs "
               "here, or one\n"
               "whose heartbeat changes. Only what diloco wrote is removed, and each thing is "
               "named. A run\n"
               "whose folder is gone leaves its replicas' state in <folder>.local: that is "
               "removed, too,\n"
               "and so is the rest of a run that lost run.json. A hub lets no client remove a "
               "run: do it\n"
               "on the hub's machine.\n"
               "  diloco rm runs/demo",
    .flags = DL_FLAGS(DL_FLAG_SET),
    .sets = DL_SETS_MACHINE,
    .run = cmd_rm,
};
