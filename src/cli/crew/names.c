/* names.c - a listing of the state folder, and one of the run's replicas.
 *
 * Two machines that join in the same moment may choose the same new name. The second to claim
 * its first generation notices (PROTOCOL P6), and gets another (processes.h). So choosing needs
 * no lock: a wrong choice costs one start of a process. */
#include "cli/crew/names.h"

#include "hub/status_json.h"
#include <diloco/inspect.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Larger numbers in names are not ours. */
enum { NUMBERS_MAX = 1 << 20 };

/* Read "r12" as 12. Returns false for other names, and for a leading zero, which would be
 * another name of the same number. */
static bool number_of(uint64_t *out, const char *name, char letter)
{
    char *end;
    if (name[0] != letter || name[1] < '0' || name[1] > '9' || (name[1] == '0' && name[2]))
        return false;
    *out = strtoull(name + 1, &end, 10);
    return !*end && *out < NUMBERS_MAX;
}

/* Return true if a process on this machine holds the name's lock. The lock is that of
 * state/private_state.h. It is tried without waiting, and released at once. */
bool dl_name_runs_here(const char *state_dir, const char *name)
{
    char path[DL_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s/lock", state_dir, name);
    int lock = open(path, O_RDWR | O_CLOEXEC);
    if (lock < 0) return false;
    bool held = flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(lock);
    return held;
}

/* Ascending; the difference of two unsigned numbers would wrap. */
static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Write the numbers of the names in the state folder, ascending, at most cap. They come first,
 * since their state resumes. */
static size_t read_state_dir(uint64_t *numbers, size_t cap, const char *state_dir, char letter)
{
    size_t n = 0;
    DIR *dir = opendir(state_dir);
    if (!dir) return 0; /* no replica was here yet */
    for (struct dirent *entry; n < cap && (entry = readdir(dir));)
        n += number_of(&numbers[n], entry->d_name, letter);
    closedir(dir);
    qsort(numbers, n, sizeof *numbers, by_number);
    return n;
}

/* Any name counts here, as nodes have random ones. */
size_t dl_names_idle(dl_replica_name *out, size_t n, const char *state_dir)
{
    size_t found = 0;
    DIR *dir = opendir(state_dir);
    if (!dir) return 0;
    for (struct dirent *entry; found < n && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (name[0] == '.' || strlen(name) > DL_REPLICA_NAME_MAX) continue;
        if (!dl_name_runs_here(state_dir, name)) snprintf(out[found++], sizeof *out, "%s", name);
    }
    closedir(dir);
    return found;
}

/* Return true if the name's folder has this file. A path that is too long does not exist. */
static bool has_file(const char *state_dir, const char *name, const char *file)
{
    char path[DL_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s/%s", state_dir, name, file);
    return access(path, F_OK) == 0;
}

/* Return true if the name has saved state. A folder without it may be what is left of a name
 * that another machine was quicker to take. */
static bool has_state(const char *state_dir, const char *name)
{
    return has_file(state_dir, name, "local.safetensors");
}

/* Any saved state counts, of whichever name: it belongs to the run that was there. */
bool dl_names_any_state(const char *state_dir)
{
    bool found = false;
    DIR *dir = opendir(state_dir);
    if (!dir) return false;
    for (struct dirent *entry; !found && (entry = readdir(dir));)
        found = entry->d_name[0] != '.' && has_state(state_dir, entry->d_name);
    closedir(dir);
    return found;
}

/* Return true if the name is among names[n]. */
static bool has(const dl_replica_name *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Return true if a new replica here cannot use this name, because the run has one of that name.
 * With `join` every such name is taken. Otherwise one of this host may be our own. Of two
 * machines with one host name that have raced for it, the loser has a note of that
 * (state/private_state.h). */
static bool taken(const diloco_run_status *run, const char *state_dir, const char *name, bool join)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        if (strcmp(r->replica, name) != 0) continue;
        return join || (*r->host && strcmp(r->host, host) != 0) ||
               has_file(state_dir, name, "lost");
    }
    return false;
}

/* The facts that a choice of names depends on; borrowed from the caller. */
typedef struct asked {
    char letter;                  /* 'r', or 's' of a server */
    const char *state_dir;        /* of this machine */
    const diloco_run_status *run; /* as it was a moment ago */
    bool join;                    /* every name that the run has is taken */
} asked;

/* Find the smallest number from *number on whose name is free. The loop ends because a run has a
 * bounded number of replicas. */
static void smallest_free(dl_replica_name *out, uint64_t *number, const dl_replica_name *names,
                          size_t n, const asked *a)
{
    for (;; ++*number) {
        snprintf(*out, sizeof *out, "%c%llu", a->letter, (unsigned long long)*number);
        if (has(names, n, *out) || taken(a->run, a->state_dir, *out, a->join)) continue;
        if (!a->join || !dl_name_runs_here(a->state_dir, *out)) return;
    }
}

/* First the names that have state here, in order, then new ones. */
static void choose(dl_replica_name *out, size_t n, const uint64_t *known, size_t n_known,
                   const asked *a)
{
    size_t chosen = 0;
    for (size_t i = 0; i < n_known && chosen < n; i++) {
        snprintf(out[chosen], sizeof *out, "%c%llu", a->letter, (unsigned long long)known[i]);
        if (a->join && dl_name_runs_here(a->state_dir, out[chosen])) continue;
        chosen += has_state(a->state_dir, out[chosen]) ||
                  !taken(a->run, a->state_dir, out[chosen], false);
    }
    for (uint64_t number = 0; chosen < n; chosen++)
        smallest_free(&out[chosen], &number, out, chosen, a);
}

/* ---- a closed roster: the names that run.json gives to this machine's key */

/* A choice among the names of a closed roster. It is made in up to three passes, by what is
 * `wanted`. */
typedef struct listed {
    dl_replica_name *out;      /* [n], of the caller */
    bool *is_new;              /* [n]: chosen as new ones */
    size_t n, chosen, beating; /* wanted; found; running elsewhere */
    const char *state_dir;
    enum { RAN_HERE, NEW, SILENT } wanted; /* by this pass */
} listed;

/* Return true if a process has begun as this name with this state folder, and did not lose it to
 * another. */
static bool ran_here(const char *state_dir, const char *name)
{
    return has_state(state_dir, name) ||
           (has_file(state_dir, name, "lock") && !has_file(state_dir, name, "lost"));
}

/* Called for each name that the roster gives to this machine's key. `begun` and `beats` are of
 * the run; the rest is seen here. */
static diloco_status choose_own(void *user, const char *replica, bool begun, bool beats)
{
    listed *l = user;
    const bool here = ran_here(l->state_dir, replica);
    l->beating += beats && !here;
    if (l->chosen == l->n || has(l->out, l->chosen, replica)) return DILOCO_OK;
    if (dl_name_runs_here(l->state_dir, replica)) return DILOCO_OK;
    if (l->wanted == RAN_HERE ? !here : l->wanted == NEW ? begun : beats) return DILOCO_OK;
    l->is_new[l->chosen] = l->wanted == NEW;
    snprintf(l->out[l->chosen++], sizeof *l->out, "%s", replica);
    return DILOCO_OK;
}

/* The two causes need different remedies, so they have different texts. */
static diloco_status refuse_roster(const listed *l)
{
    if (l->beating)
        return dl_fail(DILOCO_EREFUSED,
                       "%zu of the names that this run's closed roster gives to the key here run "
                       "elsewhere: their heartbeats change. Give each machine a key of its own, or "
                       "take over the name rN with --rank N",
                       l->beating);
    return dl_fail(DILOCO_EREFUSED,
                   "the key here has %zu names that are free in this run's closed roster, and %zu "
                   "replicas are to run. The roster is made when a run is created; see it with "
                   "'diloco status'",
                   l->chosen, l->n);
}

/* Choose among the listed names. First those that have run here, then new ones. One that has
 * begun elsewhere is taken only if no process runs as it, which takes run.patience to see. */
static diloco_status choose_listed(dl_replica_name *out, bool *is_new, size_t n,
                                   const dl_config *config)
{
    listed l = {.out = out, .is_new = is_new, .n = n, .state_dir = config->state_dir};
    DL_TRY(diloco_own_names(config->store, config->key, false, choose_own, &l));
    l.wanted = NEW;
    if (l.chosen < n) DL_TRY(diloco_own_names(config->store, config->key, false, choose_own, &l));
    if (l.chosen == n) return DILOCO_OK;
    fprintf(stderr, "watching the heartbeats of this key's names for %.0f s …\n",
            config->patience_s);
    l.wanted = SILENT;
    DL_TRY(diloco_own_names(config->store, config->key, true, choose_own, &l));
    return l.chosen == n ? DILOCO_OK : refuse_roster(&l);
}

/* Choose a new name in place of names[i]. The others are passed in, so that none of them is
 * chosen again. */
static diloco_status choose_another_listed(dl_replica_name *names, size_t n, size_t i,
                                           const dl_config *config)
{
    dl_replica_name *more = malloc((n + 1) * sizeof *more);
    bool *is_new = calloc(n + 1, sizeof *is_new);
    /* The names in use are already "chosen", so choose_own skips them and adds one. */
    listed l = {.out = more, .is_new = is_new, .n = n + 1, .chosen = n, .wanted = NEW};
    l.state_dir = config->state_dir;
    diloco_status status = DILOCO_OK;
    if (!more || !is_new) status = dl_fail(DILOCO_ENOMEM, "not enough memory to name the replicas");
    if (!status) memcpy(more, names, n * sizeof *more);
    if (!status) status = diloco_own_names(config->store, config->key, false, choose_own, &l);
    if (!status && l.chosen == n)
        status = dl_fail(DILOCO_EREFUSED,
                         "another process took the name %s, and this run's closed "
                         "roster has no new one for the key here",
                         names[i]);
    if (!status) memcpy(names[i], more[n], sizeof *more);
    free(more);
    free(is_new);
    return status;
}

/* ---- all of them */

/* Servers of logical clients have names of their own, because workers are counted by the letter
 * r. */
static asked ask_for(const dl_config *config, const diloco_run_status *run, bool join)
{
    return (asked){.letter = config->role == DL_ROLE_SERVER ? 's' : 'r',
                   .state_dir = config->state_dir,
                   .run = run,
                   .join = join};
}

/* is_new is asked of the run with `join` true: a name that the run has ever had is not new. */
diloco_status dl_names_choose(dl_replica_name *out, bool *is_new, size_t n, const dl_config *config,
                              bool join)
{
    memset(is_new, 0, n * sizeof *is_new);
    dl_roster_view roster;
    DL_TRY(dl_roster_view_read(&roster, config->store));
    if (!strcmp(roster.roster, "closed")) return choose_listed(out, is_new, n, config);
    uint64_t *known = malloc(DL_LAUNCH_MAX * sizeof *known);
    diloco_run_status run = {.done = false};
    diloco_status status = DILOCO_OK;
    if (!known) status = dl_fail(DILOCO_ENOMEM, "not enough memory to name the replicas");
    if (!status) status = diloco_run_status_read(&run, config->store, 0);
    /* `run` is zeroed after an error, and is then not looked at. */
    const asked a = ask_for(config, &run, join);
    if (!status)
        choose(out, n, known, read_state_dir(known, DL_LAUNCH_MAX, a.state_dir, a.letter), &a);
    /* Another machine may have chosen a name since; it is noticed when the generation is claimed
     * (P6.5). */
    for (size_t i = 0; i < n && !status; i++)
        is_new[i] = !taken(&run, a.state_dir, out[i], true);
    free(known);
    diloco_run_status_free(&run);
    return status;
}

/* Name the replica by its rank. A replica that is started again elsewhere keeps its name, since
 * the log waits for it by that. */
diloco_status dl_names_of_rank(dl_replica_name *out, const dl_args *args)
{
    uint64_t rank;
    DL_TRY(dl_args_u64(&rank, args, DL_FLAG_RANK, 0, NUMBERS_MAX - 1));
    snprintf(*out, sizeof *out, "r%llu", (unsigned long long)rank);
    return DILOCO_OK;
}

/* The name was taken between our look and our claim, so the run is read again. */
diloco_status dl_names_choose_another(dl_replica_name *names, size_t n, size_t i,
                                      const dl_config *config)
{
    diloco_run_status run;
    uint64_t number = 0;
    dl_replica_name name;
    dl_roster_view roster;
    DL_TRY(dl_roster_view_read(&roster, config->store));
    /* In a closed roster only listed names are allowed. */
    if (!strcmp(roster.roster, "closed")) return choose_another_listed(names, n, i, config);
    const diloco_status status = diloco_run_status_read(&run, config->store, 0);
    const asked a = ask_for(config, &run, true);
    if (!status) {
        smallest_free(&name, &number, names, n, &a);
        memcpy(names[i], name, sizeof name);
    }
    diloco_run_status_free(&run);
    return status;
}
