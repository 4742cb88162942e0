/* sim_announcer.c - a writer that announces what never comes, in a simulated run without keys.
 *
 * It creates empty contributions under names of no replica, for any entries, and does not double
 * their distance (P9.6). It also announces the malicious replica again, which is fenced by that. It
 * reports stops of generations that are running, will come, or never were. Contents are valid
 * or nonsense. All invariants hold all the same, progress (I4) among them. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 12, FAR = 40 };

static uint64_t below(sim *s, uint64_t n)
{
    return dl_rng_below(&s->announcer.rng, n);
}

/* The malicious replica's generation, where there is one; else one of no replica. */
static dl_generation draw_generation(sim *s)
{
    const replica *r = &s->replicas[s->n - 1];
    const bool began = dl_generation_ok(&r->generation);
    if (r->kind.byzantine && began && below(s, 4) == 0) return r->generation;
    dl_generation generation = {.number = (uint32_t)below(s, 3)};
    snprintf(generation.replica, sizeof generation.replica, "a%u", (unsigned)below(s, NAMES));
    return generation;
}

static void create(sim *s, const char *key, const void *bytes, size_t len)
{
    bool taken;
    const dl_span span = {bytes, len};
    const diloco_status status = dl_store_create(s->store, key, &span, 1, &taken, DL_NEVER);
    if (status && status != DILOCO_EEXIST) DIE(s, "%s: %s", key, diloco_error_text());
    sim_happened[SIM_FALSE_NEWS] += !taken;
    if (!taken) sim_notify(s, key);
}

/* The base of an announcement may be any, and its other numbers are claims. */
static void announce(sim *s)
{
    unsigned char header[DL_CONTRIBUTION_HEADER];
    const uint64_t open = sim_open_entry(s), entry = open + below(s, below(s, 2) ? 4 : FAR);
    dl_contribution c = {.generation = draw_generation(s),
                         .entry = entry,
                         .fragment = (uint32_t)(entry % s->n_fragments),
                         .codec = "f32",
                         .base = dl_hash_bytes(&entry, sizeof entry),
                         .manifest = s->file.manifest.digest,
                         .body = dl_digest_bytes("", 0)};
    dl_key key;
    memcpy(c.run, s->file.id, sizeof c.run);
    if (below(s, 4) == 0) c.stats.position = UINT64_MAX / 2;
    if (below(s, 8) == 0) c.fragment++;
    if (below(s, 8) == 0) c.entry++;
    dl_contribution_write_header(header, &c);
    dl_key_contribution(key, entry, &c.generation);
    create(s, key, header, below(s, 8) ? sizeof header : below(s, sizeof header));
}

static void report_stop(sim *s)
{
    static const char *const texts[] = {"", "junk", "{\"kind\":\"diloco-end\"}"};
    const char *text = texts[below(s, sizeof texts / sizeof *texts)];
    dl_generation generation = draw_generation(s);
    dl_key key;
    if (below(s, 4) == 0) generation.number++;
    if (below(s, 8) == 0) generation.number = DL_GENERATION_MAX;
    dl_key_end(key, &generation);
    create(s, key, text, strlen(text));
}

void sim_announce(sim *s)
{
    if (!s->kind.announcer || s->now < s->announcer.next || s->now >= SIM_QUIET) return;
    s->announcer.next = s->now + 0.2 + 5 * dl_rng_f64(&s->announcer.rng);
    if (below(s, 4))
        announce(s);
    else
        report_stop(s);
}
