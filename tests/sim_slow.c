/* sim_slow.c - a replica whose requests take longer than a round of the others, and which joins a
 * run that has begun.
 *
 * It reads the log more slowly than the log grows, and each of its uploads arrives after its entry
 * has closed. The number of entries of which it is a member all the same is measured (P9).
 *
 * It may also be late: when it joins, there is no snapshot yet, and the log is too long to be read
 * while the others wait. It has to rejoin from the first snapshot, which comes soon.
 *
 * Instead it may be mute: it announces itself as often as it can, and contributes nothing. Then
 * the run has to take no longer than one deadline for each entry. */
#include "protocol/machine_parts.h"
#include "sim.h"

#include <math.h>
#include <string.h>

static bool is_slow(const replica *r)
{
    const sim *s = r->sim;
    return s->calm.slow_s > 0 && r == &s->replicas[s->n - 1];
}

double sim_slow_joins_after(const sim *s)
{
    return s->calm.late ? 18 : 2;
}

double sim_request_s(const replica *r)
{
    return is_slow(r) ? r->sim->calm.slow_s : r->sim->calm.request_s;
}

bool sim_slow_is_mute(const replica *r)
{
    return r->sim->calm.mute && is_slow(r) && r->request.kind == DL_REQUEST_CONTRIBUTE &&
           !r->request.contribute.announce;
}

void sim_slow_announce(replica *r)
{
    if (!r->sim->calm.mute || !is_slow(r)) return;
    r->machine->self.n_announcements = 0;
    r->machine->self.announce_at = 0;
}

static void set(sim *s, const char *name, const char *value)
{
    if (dl_config_set(&s->config, name, value, "sim")) DIE(s, "%s", diloco_error_text());
}

void sim_slow_configure(sim *s)
{
    char n[32], rounds[32];
    snprintf(n, sizeof n, "%zu", s->n - 1); /* the run does not wait for it to begin */
    snprintf(rounds, sizeof rounds, "%d", ENTRIES);
    dl_config_init(&s->config);
    s->n_fragments = 1;
    set(s, "run.replicas", n);
    set(s, "run.state_dir", "none");
    set(s, "run.patience", "30");
    if (s->calm.mute) set(s, "run.on_missing", "commit_partial");
    if (s->calm.late) set(s, "run.snapshot_every", "1200"); /* P25.2: one after 20 s */
    set(s, "trainer.rounds", rounds);
    set(s, "trainer.batch_size", "1");
    set(s, "trainer.local_steps_per_round", "5");
    set(s, "server.diloco.exchange", s->kind.topology);
    if (dl_schedule_of(&s->schedule, &s->config, 1)) DIE(s, "%s", diloco_error_text());
}

static bool has_member(const dl_entry *e, const char *name)
{
    for (size_t i = 0; e->commit && i < e->n_members; i++)
        if (!strcmp(e->members[i].generation.replica, name)) return true;
    return false;
}

void sim_slow_measure(sim *s)
{
    const char *slow = s->replicas[s->n - 1].name;
    uint64_t n = 0, first = ENTRIES, awaited = 0;
    dl_buf text;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    for (uint64_t e = 0; e < ENTRIES; e++) {
        dl_buf_clear(&text);
        if (dl_entry_get(&text, s->store, e, DL_NEVER) ||
            dl_entry_read(&s->truth.entry, text.data, text.len, dl_outer_find("nesterov")))
            DIE(s, "%s", diloco_error_text());
        awaited += dl_roster_has(&s->truth.entry.roster, slow, NULL);
        if (!has_member(&s->truth.entry, slow)) continue;
        first = first < e ? first : e;
        n++;
    }
    dl_buf_deinit(&text);
    s->calm.counted = n;
    printf("%zu replicas, one with %g s a request: awaited by %llu of %d entries, member of %llu, "
           "the first is %llu; %.1f s\n",
           s->n, s->calm.slow_s, (unsigned long long)awaited, ENTRIES, (unsigned long long)n,
           (unsigned long long)first, s->calm.grew_at - SIM_QUIET);
}
