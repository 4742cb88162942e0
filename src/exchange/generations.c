/* generations.c - see generations.h. */
#include "exchange/generations.h"

#include "base/json.h"
#include "base/rng.h"
#include "log/fields.h"
#include "log/keyring.h"
#include "tensor/isa.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    GENERATION_STRIDE = 10000
}; /* of an unguarded store: no two processes should draw one number */
static const dl_time LIMIT = 3600 * DL_SECOND;

static dl_time limit(void)
{
    return dl_time_after(dl_clock_now(), LIMIT);
}

/* The generations of one replica in gen/, as one listing shows them. */
typedef struct claims {
    const char *replica;
    int64_t newest;      /* -1: does not exist */
    int64_t last;        /* the highest in gen/, of any writer; -1: does not exist */
    unsigned char *used; /* [DL_GENERATION_MAX / 8 + 1] one bit for each; NULL: not needed */
    dl_key before;       /* its keys follow this one, and begin with it but for the last digit */
    bool passed;         /* the listing shows the next replica's */
} claims;

static diloco_status out_of_memory(const char *replica)
{
    return dl_fail(DILOCO_ENOMEM, "out of memory for the generations of %s", replica);
}

/* The names alone say which numbers are used. newest_signed later decides which of them count. */
static diloco_status found_generation(void *context, const char *key, size_t len)
{
    claims *l = context;
    dl_generation generation;
    (void)len;
    l->passed = strncmp(key, l->before, strlen(l->before) - 1) != 0;
    if (l->passed) return DILOCO_ECLOSED;
    if (!dl_key_parse_generation(&generation, key, "gen/") ||
        strcmp(generation.replica, l->replica) != 0)
        return DILOCO_OK;
    if ((int64_t)generation.number > l->last) l->newest = l->last = generation.number;
    if (l->used) l->used[generation.number / 8] |= (unsigned char)(1 << generation.number % 8);
    return DILOCO_OK;
}

/* Lists the replica's own part of gen/, which may have a thousand replicas. */
static diloco_status list_generations(claims *l, dl_store *store)
{
    snprintf(l->before, sizeof l->before, "gen/%s.0", l->replica);
    const diloco_status status =
        dl_store_list(store, "gen/", l->before, found_generation, l, limit());
    return l->passed ? DILOCO_OK : status;
}

static diloco_status sign_generation(dl_buf *text, const dl_generation *generation,
                                     const dl_runfile *run, const dl_signer *signer)
{
    const dl_statement what = {.kind = "life", .run = run->id, .generation = generation};
    return run->identity.policy == DL_TRUSTED ? DILOCO_OK : dl_sealed_sign(text, 0, signer, &what);
}

/* Writes the claim: the process, its machine and its program, for people and for admission. Only
 * run, replica, generation and invitation are ever checked. */
static diloco_status write_generation(dl_buf *text, const dl_generation *generation,
                                      const dl_runfile *run, const char *invitation)
{
    dl_invitation i;
    char host[64] = "";
    size_t start;
    dl_json j;
    (void)!gethostname(host, sizeof host - 1);
    dl_buf_clear(text);
    dl_sealed_begin(&j, &start, text, "diloco-life");
    dl_json_str(&j, "run", run->id);
    dl_json_str(&j, "replica", generation->replica);
    dl_json_u64(&j, "generation", generation->number);
    dl_json_str(&j, "host", host);
    dl_json_i64(&j, "pid", (int64_t)getpid());
    dl_json_f64(&j, "time", dl_clock_wall()); /* makes two claims of one generation differ */
    dl_json_i64(&j, "clock", dl_clock_now());
    dl_json_str(&j, "program", DILOCO_VERSION);
    dl_json_str(&j, "isa", dl_isa_name(dl_isa_chosen()));
    if (invitation[0]) {
        DL_TRY(dl_invitation_read(&i, invitation, strlen(invitation)));
        dl_json_str(&j, "invitation", i.id);
    }
    return dl_sealed_end(&j, start);
}

diloco_status dl_run_newest_generation(dl_generation *out, dl_store *store, const char *replica)
{
    claims l = {.replica = replica, .newest = -1, .last = -1};
    if (dl_replica_name_ok(replica)) DL_TRY(list_generations(&l, store));
    if (l.newest < 0)
        return dl_fail(DILOCO_ENOENT, "no replica %s has ever been in %s", replica,
                       dl_store_url(store));
    *out = (dl_generation){.number = (uint32_t)l.newest};
    snprintf(out->replica, sizeof out->replica, "%s", replica);
    return DILOCO_OK;
}

bool dl_run_is_restart(const dl_generation *generation, const dl_config *config)
{
    return generation->number >= (config->single_committer[0] ? 2 * GENERATION_STRIDE : 1);
}

/* Returns the number after all existing ones, in an unguarded store at a random distance. */
static diloco_status first_generation(int64_t *out, const claims *l, const dl_runfile *run)
{
    uint32_t random;
    *out = l->newest + 1;
    if (!run->config.single_committer[0]) return DILOCO_OK;
    DL_TRY(dl_random_bytes(&random, sizeof random));
    *out = (l->newest / GENERATION_STRIDE + 1) * GENERATION_STRIDE + random % GENERATION_STRIDE;
    return DILOCO_OK;
}

/* The name had no generation a moment ago, so another machine has chosen it, too. */
diloco_status dl_run_refuse_twin(const char *replica, dl_store *store)
{
    return dl_fail(DILOCO_EFENCED,
                   "another replica took the name %s in %s at the same time: start again with a "
                   "free name (join finds one)",
                   replica, dl_store_url(store));
}

/* ---- runs with keys: a name in gen/ without this replica's signature is not this replica's.
 *
 * A replica claims the first free generation after all that it has signed. It finds those by
 * reading names in order. It does not read all, since anyone may have created a hundred thousand:
 * it stops after LOOKS names in a row that it has not signed. Generations are created in order. So
 * a signed one is further away only if this replica had to skip that many names. */

enum { LOOKS = 256 };

static bool is_used(const claims *l, int64_t g)
{
    return l->used[g / 8] >> g % 8 & 1;
}

/* Returns the first existing generation from g on, or l->last + 1. */
static int64_t next_used(const claims *l, int64_t g)
{
    while (g <= l->last && !is_used(l, g))
        g++;
    return g;
}

/* Reads from g on. n restarts at each signed name, so a replica with a long history of its own is
 * read through. */
static diloco_status newest_signed(claims *l, int64_t g, dl_store *store, const dl_runfile *run,
                                   const dl_public *key)
{
    l->newest = g - 1;
    g = next_used(l, g);
    for (int n = 0; n < LOOKS && g <= l->last; n++, g = next_used(l, g + 1)) {
        bool theirs;
        dl_generation generation = {.number = (uint32_t)g};
        snprintf(generation.replica, sizeof generation.replica, "%s", l->replica);
        DL_TRY(dl_members_has_generation(&theirs, store, run, &generation, key, limit()));
        if (theirs) l->newest = g, n = 0;
    }
    return DILOCO_OK;
}

/* Unlike a claim it creates nothing. */
diloco_status dl_run_newest_signed(dl_generation *out, dl_store *store, const char *replica,
                                   const dl_runfile *run, const dl_public *key)
{
    claims l = {.replica = replica, .newest = -1, .used = calloc(DL_GENERATION_MAX / 8 + 1, 1)};
    if (!l.used) return out_of_memory(replica);
    diloco_status status = list_generations(&l, store);
    if (!status) status = newest_signed(&l, 0, store, run, key);
    free(l.used);
    if (!status && l.newest < 0)
        status = dl_fail(DILOCO_ENOENT, "this key has signed no generation of %s", replica);
    if (!status) *out = (dl_generation){.number = (uint32_t)l.newest};
    if (!status) snprintf(out->replica, sizeof out->replica, "%s", replica);
    return status;
}

/* ---- claiming ----------------------------------------------------------------------------- */

/* In a run with keys `newest` is the newest that `signer` has signed. Call claims_deinit also after
 * an error. `first`: the name has to be new; returns DILOCO_EFENCED if it is not. In a run with
 * keys the bits of the used names take 1.25 MB. */
static diloco_status find_claims(claims *out, dl_store *store, const char *replica, bool first,
                                 const dl_runfile *run, const dl_signer *signer)
{
    *out = (claims){.replica = replica, .newest = -1, .last = -1};
    const bool keyed = run->identity.policy != DL_TRUSTED;
    if (keyed && !(out->used = calloc(DL_GENERATION_MAX / 8 + 1, 1))) return out_of_memory(replica);
    DL_TRY(list_generations(out, store));
    if (keyed) DL_TRY(newest_signed(out, 0, store, run, dl_signer_public(signer)));
    return first && out->newest >= 0 ? dl_run_refuse_twin(replica, store) : DILOCO_OK;
}

static void claims_deinit(claims *l)
{
    free(l->used);
}

/* The name exists. Returns DILOCO_OK if the next one may be tried: not if another process has just
 * begun as this replica, which had no generation a moment ago. */
static diloco_status is_taken(const claims *l, dl_store *store, const dl_runfile *run,
                              const dl_generation *generation, const dl_signer *signer)
{
    bool theirs = true;
    if (l->newest >= 0) return DILOCO_EEXIST;
    if (l->used)
        DL_TRY(dl_members_has_generation(&theirs, store, run, generation, dl_signer_public(signer),
                                         limit()));
    return theirs ? dl_run_refuse_twin(l->replica, store) : DILOCO_EEXIST;
}

/* Claims the first free generation from g on. The store creates each name once, so two processes
 * never get one generation. A taken name is either another generation of this replica, or junk, or
 * a twin (is_taken). Returns DILOCO_EINVAL if all numbers are used. */
static diloco_status claim_from(dl_generation *out, const claims *l, int64_t g, dl_store *store,
                                const dl_runfile *run, const dl_signer *signer,
                                const char *invitation)
{
    dl_buf text;
    dl_buf_init(&text, 4096);
    diloco_status status = DILOCO_EEXIST;
    for (; status == DILOCO_EEXIST && g <= DL_GENERATION_MAX; g++) {
        if (l->used && is_used(l, g)) continue;
        *out = (dl_generation){.number = (uint32_t)g};
        snprintf(out->replica, sizeof out->replica, "%s", l->replica);
        dl_key key;
        dl_key_gen(key, out);
        status = write_generation(&text, out, run, invitation);
        if (!status) status = sign_generation(&text, out, run, signer);
        const dl_span span = {text.data, text.len};
        if (!status) status = dl_store_create(store, key, &span, 1, NULL, limit());
        if (status == DILOCO_EEXIST) status = is_taken(l, store, run, out, signer);
    }
    dl_buf_deinit(&text);
    if (status != DILOCO_EEXIST) return status;
    return dl_fail(DILOCO_EINVAL, "%s.%d was its last generation in %s: take another name",
                   l->replica, DL_GENERATION_MAX, dl_store_url(store));
}

/* Lists, chooses the first number to try, and claims. */
static diloco_status claim(dl_generation *out, dl_store *store, const char *replica, bool first,
                           const dl_runfile *run, const dl_signer *signer, const char *invitation)
{
    claims l;
    int64_t g;
    diloco_status status = find_claims(&l, store, replica, first, run, signer);
    if (!status) status = first_generation(&g, &l, run);
    if (!status) status = claim_from(out, &l, g, store, run, signer, invitation);
    claims_deinit(&l);
    return status;
}

/* Sets *newest to the newest generation that `signer` has signed, from the claim on. Returns
 * DILOCO_EUNREACHABLE if the listing does not show the claim. */
static diloco_status newest_from(int64_t *newest, const dl_generation *claimed, dl_store *store,
                                 const dl_runfile *run, const dl_signer *signer)
{
    const int64_t number = claimed->number;
    claims l = {
        .replica = claimed->replica, .last = -1, .used = calloc(DL_GENERATION_MAX / 8 + 1, 1)};
    diloco_status status = l.used ? list_generations(&l, store) : out_of_memory(claimed->replica);
    if (!status && !is_used(&l, number))
        status = dl_fail(DILOCO_EUNREACHABLE,
                         "%s: the listing of gen/ does not show %s.%04u yet, which this process "
                         "has created",
                         dl_store_url(store), claimed->replica, (unsigned)number);
    if (!status) status = newest_signed(&l, number + 1, store, run, dl_signer_public(signer));
    *newest = l.newest;
    claims_deinit(&l);
    return status;
}

/* A replica of a run with keys leaves numbers out (contribute.c: renew). A stale listing may hide a
 * later generation of its past. Then the number that it claims is one that was left out, and the
 * later generation would fence it. A listing that shows the claim shows all that existed before it.
 * Without keys no number is left out, or each start takes a range of its own. */
diloco_status dl_run_confirm_claim(dl_generation *claimed, dl_store *store, const dl_runfile *run,
                                   const dl_signer *signer)
{
    while (run->identity.policy != DL_TRUSTED) {
        int64_t newest;
        dl_generation next;
        DL_TRY(newest_from(&newest, claimed, store, run, signer));
        if (newest == claimed->number) break;
        DL_TRY(claim(&next, store, claimed->replica, false, run, signer, ""));
        *claimed = next;
    }
    return DILOCO_OK;
}

/* A later generation in gen/ means that another process runs as this replica, so this one is fenced
 * (P6.1). */
diloco_status dl_run_claim_next(dl_generation *out, dl_store *store, const dl_generation *self,
                                uint32_t from, const dl_runfile *run, const dl_signer *signer)
{
    claims l;
    diloco_status status = find_claims(&l, store, self->replica, false, run, signer);
    if (l.newest < (int64_t)self->number) l.newest = (int64_t)self->number; /* a stale listing */
    if (!status && l.newest > (int64_t)self->number)
        status = dl_fail(DILOCO_EFENCED,
                         "replica %s has a newer generation (%u after %u): this "
                         "process stops",
                         self->replica, (unsigned)l.newest, self->number);
    if (!status) status = claim_from(out, &l, (int64_t)from, store, run, signer, "");
    claims_deinit(&l);
    return status;
}

/* Locks the file of invitations, which all replicas of this machine read: one at a time uses an
 * invitation. Returns -1 if there is no file or no lock. */
static int lock_invitations(const dl_config *config)
{
    const int fd = config->invitation[0] ? open(config->invitation, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) (void)!flock(fd, LOCK_EX);
    return fd;
}

/* The invitation is used only after the claim, so a failed claim costs none. Its id is part of the
 * first claim. So a process that is killed in between finds it again (keyring.c: pick). The last
 * check covers the race for the first generation of a name. */
static diloco_status claim_generation(dl_generation *out, dl_store *store, const char *replica,
                                      const dl_runfile *run, const dl_config *config,
                                      const dl_signer *signer)
{
    char invitation[DL_INVITATION_TEXT] = "", none[DL_INVITATION_TEXT];
    const bool keyed = run->identity.policy != DL_TRUSTED, first = config->first_generation;
    claims l;
    if (keyed && first) { /* whichever key the name has */
        const diloco_status status = find_claims(&l, store, replica, first, run, signer);
        claims_deinit(&l);
        DL_TRY(status);
    }
    if (keyed)
        DL_TRY(dl_members_may_join(invitation, store, run, config, signer, replica, limit()));
    DL_TRY(claim(out, store, replica, first, run, signer, invitation));
    if (invitation[0])
        DL_TRY(dl_members_use_invitation(store, run, signer, replica, invitation, limit()));
    /* Another replica may have claimed the first generation of this name in the meantime. */
    if (keyed && out->number > 0)
        DL_TRY(dl_members_may_join(none, store, run, config, signer, replica, limit()));
    return DILOCO_OK;
}

diloco_status dl_run_claim_generation(dl_generation *out, dl_store *store, const char *replica,
                                      const dl_runfile *run, const dl_config *config,
                                      const dl_signer *signer)
{
    DL_TRY(dl_members_fits(run, config));
    const int lock = lock_invitations(config);
    const diloco_status status = claim_generation(out, store, replica, run, config, signer);
    if (lock >= 0) close(lock);
    return status;
}
