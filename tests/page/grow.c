/* grow.c - a FAKE run for the tests and the measurement of the page: it was never trained.
 *
 *     grow STORE ENTRIES REPLICAS [hostile|slow]
 *
 * STORE is a run that was made for at least ENTRIES entries and has one. Its log is grown to
 * ENTRIES by copies of that entry, chained as real ones are, of REPLICAS replicas named r0, r1, …;
 * each gets a claim, a heartbeat and a record. `hostile`: hosts, reasons and warnings are what an
 * attacker would write for a browser. The states that the entries name are false: "diloco verify"
 * refuses them. */
#include "base/clock.h"
#include "inspect/reader.h"
#include "log/zstd_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPLICAS = 256 };

static const char nasty[] =
    "<img src=x onerror=\\\"window.owned=1\\\"><script>window.owned=1</script>"
    "\\u202e\\u2066&lt;b&gt;'\\\"`${1}";

static void check(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "grow: %s\n", diloco_error_text());
    exit(1);
}

static dl_time no_limit(void)
{
    return dl_time_after(dl_clock_now(), 60 * DL_SECOND);
}

static dl_generation generation_of(size_t replica)
{
    dl_generation generation = {.number = 0};
    snprintf(generation.replica, sizeof generation.replica, "r%zu", replica);
    return generation;
}

static int by_generation(const void *a, const void *b)
{
    const dl_member *x = a, *y = b;
    return dl_generation_compare(&x->generation, &y->generation);
}

static double loss_at(uint64_t e)
{
    return 2 + 4 / sqrt(1 + (double)e / 50) + 0.02 * sin((double)e * 1.7);
}

/* ---- the log */

static void grow_log(dl_reader *r, uint64_t n, size_t replicas, bool hostile)
{
    const dl_outer *outer = dl_outer_of(&r->file.config);
    dl_entry model, entry;
    dl_buf text;
    dl_key key;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    check(dl_entry_init(&model, MOST_REPLICAS + 64));
    check(dl_entry_init(&entry, MOST_REPLICAS + 64));
    check(dl_entry_get(&text, r->store, 0, no_limit()));
    check(dl_reader_entry(&model, &text, r, 0));
    dl_hash before = dl_hash_bytes(text.data, text.len);
    const dl_member one = model.members[0];
    const uint64_t per_entry = model.position;
    for (uint64_t e = 1; e < n; e++) {
        dl_member *members = entry.members;
        const dl_roster roster = entry.roster;
        dl_rejected *rejected = entry.rejected;
        const size_t cap = entry.cap_members;
        entry = model;
        entry.members = members, entry.roster = roster, entry.rejected = rejected;
        entry.cap_members = cap;
        entry.entry = e;
        entry.position = per_entry * (e + 1);
        entry.prev = before;
        entry.loss = loss_at(e);
        entry.n_members = replicas;
        entry.roster.n = 0;
        for (size_t i = 0; i < replicas; i++) {
            members[i] = one;
            members[i].generation = generation_of(i);
            members[i].weight = 1 / (float)replicas;
        }
        qsort(members, replicas, sizeof *members, by_generation);
        for (size_t i = 0; i < replicas; i++)
            (void)dl_roster_add(&entry.roster, members[i].generation.replica, 0);
        if (hostile && e % 4 == 3) {
            entry.commit = false;
            entry.result = entry.base;
            entry.loss = NAN;
            snprintf(entry.abort.reason, sizeof entry.abort.reason, "%s",
                     "<img src=x onerror=\"window.owned=1\"><svg onload=window.owned=1>");
        }
        dl_buf_clear(&text);
        check(dl_entry_write(&text, &entry, outer));
        before = dl_hash_bytes(text.data, text.len);
        dl_key_entry(key, e);
        check(dl_store_create(r->store, key, &(dl_span){text.data, text.len}, 1, NULL, no_limit()));
    }
    dl_buf_deinit(&text);
}

/* ---- the replicas */

static void add_record(dl_store *store, size_t i, uint64_t n, uint64_t steps, bool hostile,
                       bool slow)
{
    const dl_generation generation = generation_of(i);
    dl_zipper *zipper;
    dl_buf text;
    dl_key key;
    uint64_t part = 0;
    const double now = dl_clock_wall();
    check(dl_zipper_create(&zipper, 1 << 20));
    dl_buf_init(&text, 64 << 20);
    check(dl_buf_addf(&text, "{\"event\":\"run\",\"life\":\"%s.0000\",\"entry\":0,\"time\":%.3f}\n",
                      generation.replica, now - 10 * (double)n));
    if (hostile)
        check(dl_buf_addf(&text, "{\"event\":\"warn\",\"code\":\"x\",\"text\":\"%s\"}\n", nasty));
    for (uint64_t e = 0; e < n; e++) {
        const double train = slow ? (i == 2 ? 9 : 3) : 9 - 0.1 * (double)(i % 8),
                     end = now - 10 * (double)(n - e - 1);
        check(dl_buf_addf(&text,
                          "{\"event\":\"step\",\"replica\":\"%s\",\"step\":%" PRIu64
                          ",\"position\":%" PRIu64 ",\"entry\":%" PRIu64
                          ",\"tokens\":1000,\"samples\":10,\"loss\":%.4f,\"tokens_per_s\":%.3f}\n",
                          generation.replica, steps * e, steps * e, e, loss_at(e), 1000 / train));
        check(dl_buf_addf(&text,
                          "{\"event\":\"contribution\",\"replica\":\"%s\",\"entry\":%" PRIu64
                          ",\"pseudo_grad_norm\":%.3f,\"encode_s\":0.1,\"put_s\":0.4}\n",
                          generation.replica, e, 1 + 5 / (1 + (double)e / 100)));
        check(dl_buf_addf(
            &text,
            "{\"event\":\"commit\",\"replica\":\"%s\",\"entry\":%" PRIu64
            ",\"missing\":[],\"peer_grad_similarity\":%.3f,\"aggregated_grad_norm\":%.3f,"
            "\"own_similarity\":%.3f,\"bytes_sent\":500000,\"bytes_received\":4000000,\"requests_"
            "read\":10,"
            "\"requests_write\":3,\"wait_s\":%.2f,\"exchange_s\":0.9,\"time\":%.3f}\n",
            generation.replica, e, 0.3 + 0.6 / (1 + (double)e / 200), 3 / (1 + (double)e / 100),
            0.9 - 0.05 * (double)(i % 8), 9 - train, end));
        if (text.len < 256 << 10 && e + 1 < n) continue;
        dl_span frame;
        check(dl_zip(zipper, &frame, text.data, text.len));
        dl_key_record(key, &generation, part);
        (void)!dl_store_delete(store, key, no_limit()); /* of the run that was the model */
        check(dl_store_create(store, key, &frame, 1, NULL, no_limit()));
        part++;
        dl_buf_clear(&text);
    }
    dl_buf_deinit(&text);
    dl_zipper_destroy(zipper);
}

static void add_replica(dl_store *store, size_t i, uint64_t n, uint64_t steps, bool hostile,
                        bool slow)
{
    const dl_generation generation = generation_of(i);
    dl_buf text;
    dl_key key;
    dl_buf_init(&text, 1 << 16);
    dl_key_gen(key, &generation);
    check(dl_buf_addf(&text, "{\"replica\":\"%s\",\"generation\":0,\"host\":\"%.60s\"}",
                      generation.replica,
                      hostile ? "<img src=x onerror=window.owned=1>" : "machine"));
    (void)!dl_store_delete(store, key, no_limit());
    check(dl_store_create(store, key, &(dl_span){text.data, text.len}, 1, NULL, no_limit()));
    dl_buf_clear(&text);
    check(dl_buf_addf(
        &text,
        "{\"replica\":\"%s\",\"generation\":0,\"beat\":1,\"step\":%" PRIu64 ",\"position\":%" PRIu64
        ",\"entry\":%" PRIu64 ",\"steps_per_s\":3.3,\"time\":%.3f,\"up_bps\":1e7,\"down_bps\":5e7,"
        "\"request_s\":0.02,\"deadline_s\":20,\"address\":\"%s\"}",
        generation.replica, steps * n, steps * n, n, dl_clock_wall(), hostile ? nasty : ""));
    dl_key_heartbeat(key, &generation);
    check(dl_store_put(store, key, text.data, text.len, no_limit()));
    dl_buf_deinit(&text);
    dl_key_end(key, &generation);
    (void)!dl_store_delete(store, key, no_limit());
    if (slow) check(dl_store_create(store, key, &(dl_span){"{}", 2}, 1, NULL, no_limit()));
    add_record(store, i, n, steps, hostile, slow);
}

int main(int argc, char **argv)
{
    dl_reader r;
    if (argc < 4) return fprintf(stderr, "usage: grow STORE ENTRIES REPLICAS [hostile|slow]\n"), 2;
    const uint64_t n = strtoull(argv[2], NULL, 10);
    const size_t replicas = strtoul(argv[3], NULL, 10);
    const bool hostile = argc > 4 && !strcmp(argv[4], "hostile"),
               slow = argc > 4 && !strcmp(argv[4], "slow");
    if (n < 1 || replicas < 1 || replicas > MOST_REPLICAS) return 2;
    check(dl_reader_open(&r, argv[1]));
    grow_log(&r, n, replicas, hostile);
    for (size_t i = 0; i < replicas; i++)
        add_replica(r.store, i, n, 30, hostile, slow);
    dl_reader_close(&r);
    return 0;
}
