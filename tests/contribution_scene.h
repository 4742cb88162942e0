/* contribution_scene.h - a contribution without errors, for the tests that break one thing of it.
 *
 * The object is made by hand with the header's own writer. "Broken" says that a header was changed
 * and sealed again, as a malicious member would. Header only. */
#ifndef DL_TESTS_CONTRIBUTION_SCENE_H
#define DL_TESTS_CONTRIBUTION_SCENE_H

#include "log/contribution.h"

#include "check.h"

#define RUN   "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdee"

enum { N = 26, N_INTEGERS = 2, N_BOOLEANS = 3, PAYLOAD = N * 4, SEAL_AT = 496 };
enum { BODY = PAYLOAD + 8 * N_INTEGERS + N_BOOLEANS, OBJECT = DL_CONTRIBUTION_HEADER + BODY };

static const diloco_tensor tensors[] = {
    {"embed", NULL, DILOCO_F32, DILOCO_PARAMETER, 2, {7, 3}, 0},
    {"scale", NULL, DILOCO_F32, DILOCO_FROZEN, 1, {5}, 0},
    {"counts", NULL, DILOCO_I64, DILOCO_BUFFER, 1, {2}, 0},
    {"mask", NULL, DILOCO_BOOL, DILOCO_BUFFER, 1, {3}, 0},
};

/* A contribution without errors, and the values that are expected of it. */
typedef struct scene {
    dl_manifest manifest;
    dl_codec_form form;
    dl_store *store;
    dl_slot *slot;
    dl_key key;
    dl_contribution facts;
    dl_contribution_expect expect;
    float g[N];
    unsigned char object[OBJECT + 2 * DL_CONTRIBUTION_PROOF]; /* with space for too many bytes */
    size_t len;
    const char *reason;
} scene;

static inline void reseal(unsigned char *header)
{
    dl_hash hash = dl_hash_bytes(header, SEAL_AT);
    memcpy(header + SEAL_AT, hash.bytes, sizeof hash.bytes);
}

/* Makes the object again from facts and g. */
static inline void make_object(scene *s)
{
    unsigned char *body = s->object + DL_CONTRIBUTION_HEADER;
    int64_t integers[N_INTEGERS] = {-1, INT64_MAX};
    memset(s->object, 0, sizeof s->object);
    memcpy(body, s->g, PAYLOAD);
    memcpy(body + PAYLOAD, integers, sizeof integers);
    memcpy(body + PAYLOAD + sizeof integers, "\1\0\1", N_BOOLEANS);
    s->facts.body = dl_digest_bytes(body, BODY);
    dl_contribution_write_header(s->object, &s->facts);
    s->len = OBJECT;
}

static inline void make_manifest(scene *s, const diloco_tensor *of, size_t n)
{
    static dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_manifest_init(&s->manifest, of, n, false));
    CHECK_OK(dl_codec_form_init(&s->form, &config, &s->manifest, 0));
}

static inline void drop_manifest(scene *s)
{
    dl_codec_form_deinit(&s->form);
    dl_manifest_deinit(&s->manifest);
}

static inline void scene_begin(scene *s, const char *url, const char *spool_dir)
{
    memset(s, 0, sizeof *s);
    make_manifest(s, tensors, 4);
    CHECK_OK(dl_store_open(&s->store, url, true));
    for (int i = 0; i < N; i++)
        s->g[i] = 0.5f - (float)i;
    dl_generation generation = {"r7", 3};
    s->facts = (dl_contribution){.run = RUN,
                                 .generation = generation,
                                 .entry = 12,
                                 .fragment = 0,
                                 .codec = "f32",
                                 .stats.position = 6000,
                                 .stats.step = 5999,
                                 .stats.steps = 500,
                                 .stats.samples = 4000,
                                 .stats.tokens = UINT64_MAX,
                                 .stats.shard = 2,
                                 .stats.first_sample = 44000,
                                 .stats.end_sample = 48000,
                                 .stats.loss = 3.25,
                                 .norm = 0.125,
                                 .base = dl_hash_bytes("base", 4),
                                 .manifest = s->manifest.digest,
                                 .n_floats = N,
                                 .n_integers = N_INTEGERS,
                                 .n_booleans = N_BOOLEANS,
                                 .payload_len = PAYLOAD};
    s->expect = (dl_contribution_expect){.run = RUN,
                                         .entry = 12,
                                         .fragment = 0,
                                         .generation = generation,
                                         .base = s->facts.base,
                                         .also_base = s->facts.base,
                                         .manifest = s->manifest.digest,
                                         .shape = s->manifest.fragments[0],
                                         .form = &s->form,
                                         .bound = 100,
                                         .tensors = &s->manifest};
    CHECK_INT(BODY, dl_contribution_body_max(&s->form, s->expect.shape, false));
    CHECK_OK(dl_slot_create(&s->slot, BODY, spool_dir));
    dl_key_contribution(s->key, 12, &generation);
    make_object(s);
}

static inline void scene_end(scene *s)
{
    CHECK_OK(dl_store_delete(s->store, s->key, DL_NEVER));
    dl_store_close(s->store);
    dl_slot_destroy(s->slot);
    drop_manifest(s);
}

/* Stores the object as it is now and fetches it. */
static inline diloco_status fetch(scene *s, dl_contribution *facts, dl_contribution_data *data)
{
    CHECK_OK(dl_store_delete(s->store, s->key, DL_NEVER));
    CHECK_OK(dl_store_create(s->store, s->key, &(dl_span){s->object, s->len}, 1, NULL, DL_NEVER));
    return dl_contribution_fetch(facts, data, &s->reason, s->slot, s->store, s->key, &s->expect,
                                 DL_NEVER);
}

/* Checks that it is refused with that reason and a text that has `part`, and that nothing is
 * returned. */
static inline void check_rejected(scene *s, diloco_status expected, const char *reason,
                                  const char *part)
{
    dl_contribution facts = {.entry = 77};
    dl_contribution_data data = {.len = 78};
    CHECK_STATUS(expected, fetch(s, &facts, &data));
    CHECK_STR(reason, s->reason);
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_CONTAINS(s->key, diloco_error_text());
    CHECK(facts.entry == 77 && data.len == 78);
}

static inline void check_equal(const dl_contribution *a, const dl_contribution *b)
{
    unsigned char x[DL_CONTRIBUTION_HEADER], y[DL_CONTRIBUTION_HEADER];
    dl_contribution_write_header(x, a);
    dl_contribution_write_header(y, b);
    CHECK_BYTES(x, y, sizeof x);
}

#endif
