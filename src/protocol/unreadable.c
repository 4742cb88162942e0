/* unreadable.c - see unreadable.h. */
#include "protocol/unreadable.h"

#include "base/run_kind.h"
#include "combine/combine.h"

#include <string.h>

size_t dl_unread_liars(const dl_config *config, const dl_identity *identity,
                       const dl_roster *roster)
{
    size_t n = (size_t)config->replicas; /* a roster may have shrunk; clients close nothing */
    if (dl_run_kind_of(config)->processes) n = dl_size_max(n, roster->n);
    if (config->single_committer[0]) n = 1;
    if (identity && identity->n_committers) n = dl_size_min(n, identity->n_committers);
    dl_combine_rule rule;
    size_t f = 1;
    if (!dl_combine_rule_of(&rule, config)) f = dl_size_max(f, dl_combine_tolerated(&rule, n));
    return dl_size_min(dl_size_min(f, n ? (n - 1) / 2 : 0), DL_UNREAD_BY - 1);
}

bool dl_unread_is_operators(const dl_config *config, const dl_identity *identity)
{
    const dl_roster none = {.n = 0};
    return dl_unread_liars(config, identity, &none) == 0;
}

static void add(dl_unread *u, const dl_entry *entry, size_t n_liars)
{
    bool there = false;
    DL_ASSERT(u->n_by <= DL_UNREAD_BY && n_liars < DL_UNREAD_BY);
    for (size_t i = 0; i < u->n_by; i++)
        there |= !strcmp(u->by[i], entry->committer.replica);
    if (!there && u->n_by < DL_UNREAD_BY)
        memcpy(u->by[u->n_by++], entry->committer.replica, sizeof u->by[0]);
    u->stands |= u->n_by > n_liars;
}

void dl_unread_meet(dl_unread *u, const dl_entry *entry, size_t n_liars)
{
    if (u->after == entry->entry + 1) return;
    *u = (dl_unread){.after = entry->entry + 1, .state = entry->result};
    add(u, entry, n_liars);
}

void dl_unread_meet_damaged(dl_unread *u, uint64_t entry)
{
    if (u->after == entry + 1) return;
    *u = (dl_unread){.after = entry + 1, .damaged = true, .unknown = true};
}

bool dl_unread_carries(const dl_unread *u, const dl_entry *entry)
{
    if (!u->after || u->after > entry->entry) return false;
    return u->unknown || dl_hash_equal(u->state, entry->base);
}

void dl_unread_follow(dl_unread *u, const dl_entry *entry, size_t n_liars)
{
    DL_ASSERT(u->after && (u->n_by > 0 || u->unknown));
    u->unknown = false;
    u->state = entry->result; /* an abort's result is its base */
    add(u, entry, n_liars);
}
