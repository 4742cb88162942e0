/* unreadable.c - see unreadable.h. */
#include "protocol/void/unreadable.h"

#include "base/run_kind.h"
#include "combine/combine.h"

#include <string.h>

size_t dl_unreadable_max_byzantine(const dl_config *config, const dl_identity *identity,
                                   const dl_roster *roster)
{
    size_t n = (size_t)config->replicas; /* a roster may have shrunk; clients close nothing */
    if (dl_run_kind_of(config)->processes) n = dl_size_max(n, roster->n);
    if (config->single_committer[0]) n = 1;
    if (identity && identity->n_committers) n = dl_size_min(n, identity->n_committers);
    dl_combine_rule rule;
    size_t f = 1;
    if (!dl_combine_rule_of(&rule, config)) f = dl_size_max(f, dl_combine_tolerated(&rule, n));
    return dl_size_min(dl_size_min(f, n ? (n - 1) / 2 : 0), DL_UNREADABLE_MAX_SUPPORTERS - 1);
}

bool dl_unreadable_may_void(const dl_config *config, const dl_identity *identity)
{
    const dl_roster none = {.n = 0};
    return dl_unreadable_max_byzantine(config, identity, &none) == 0;
}

static void add(dl_unreadable *u, const dl_entry *entry, size_t max_byzantine)
{
    bool there = false;
    DL_ASSERT(u->n_supporters <= DL_UNREADABLE_MAX_SUPPORTERS &&
              max_byzantine < DL_UNREADABLE_MAX_SUPPORTERS);
    for (size_t i = 0; i < u->n_supporters; i++)
        there |= !strcmp(u->supporters[i], entry->committer.replica);
    if (!there && u->n_supporters < DL_UNREADABLE_MAX_SUPPORTERS)
        memcpy(u->supporters[u->n_supporters++], entry->committer.replica, sizeof u->supporters[0]);
    u->accepted |= u->n_supporters > max_byzantine;
}

void dl_unreadable_record(dl_unreadable *u, const dl_entry *entry, size_t max_byzantine)
{
    if (u->after == entry->entry + 1) return;
    *u = (dl_unreadable){.after = entry->entry + 1, .state = entry->result};
    add(u, entry, max_byzantine);
}

void dl_unreadable_record_damaged(dl_unreadable *u, uint64_t entry)
{
    if (u->after == entry + 1) return;
    *u = (dl_unreadable){.after = entry + 1, .damaged = true, .unknown = true};
}

bool dl_unreadable_is_base_of(const dl_unreadable *u, const dl_entry *entry)
{
    if (!u->after || u->after > entry->entry) return false;
    return u->unknown || dl_hash_equal(u->state, entry->base);
}

void dl_unreadable_support(dl_unreadable *u, const dl_entry *entry, size_t max_byzantine)
{
    DL_ASSERT(u->after && (u->n_supporters > 0 || u->unknown));
    u->unknown = false;
    u->state = entry->result; /* an abort's result is its base */
    add(u, entry, max_byzantine);
}
