/* contribution_test.c - a contribution is returned whole and checked, or not at all.
 *
 * The objects are made by hand with the header's own writer, so that each test can break one thing.
 * `broken` in the header means: changed and sealed again, as a malicious member would. */
#include "log/contribution.h"

#include "check.h"
#include "scratch.h"

#include <signal.h>
#include <sys/resource.h>

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

static void reseal(unsigned char *header)
{
    dl_hash hash = dl_hash_bytes(header, SEAL_AT);
    memcpy(header + SEAL_AT, hash.bytes, sizeof hash.bytes);
}

/* Makes the object again from facts and g. */
static void make_object(scene *s)
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

static void make_manifest(scene *s, const diloco_tensor *of, size_t n)
{
    static dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_manifest_init(&s->manifest, of, n, false));
    CHECK_OK(dl_codec_form_init(&s->form, &config, &s->manifest, 0));
}

static void drop_manifest(scene *s)
{
    dl_codec_form_deinit(&s->form);
    dl_manifest_deinit(&s->manifest);
}

static void scene_begin(scene *s, const char *url, const char *spool_dir)
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

static void scene_end(scene *s)
{
    CHECK_OK(dl_store_delete(s->store, s->key, DL_NEVER));
    dl_store_close(s->store);
    dl_slot_destroy(s->slot);
    drop_manifest(s);
}

/* Stores the object as it is now and fetches it. */
static diloco_status fetch(scene *s, dl_contribution *facts, dl_contribution_data *data)
{
    CHECK_OK(dl_store_delete(s->store, s->key, DL_NEVER));
    CHECK_OK(dl_store_create(s->store, s->key, &(dl_span){s->object, s->len}, 1, NULL, DL_NEVER));
    return dl_contribution_fetch(facts, data, &s->reason, s->slot, s->store, s->key, &s->expect,
                                 DL_NEVER);
}

/* Checks that it is refused with that reason and a text that has `part`, and that nothing is
 * returned. */
static void check_rejected(scene *s, diloco_status expected, const char *reason, const char *part)
{
    dl_contribution facts = {.entry = 77};
    dl_contribution_data data = {.len = 78};
    CHECK_STATUS(expected, fetch(s, &facts, &data));
    CHECK_STR(reason, s->reason);
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_CONTAINS(s->key, diloco_error_text());
    CHECK(facts.entry == 77 && data.len == 78);
}

/* ---- the header alone */

static void check_equal(const dl_contribution *a, const dl_contribution *b)
{
    unsigned char x[DL_CONTRIBUTION_HEADER], y[DL_CONTRIBUTION_HEADER];
    dl_contribution_write_header(x, a);
    dl_contribution_write_header(y, b);
    CHECK_BYTES(x, y, sizeof x);
}

TEST(a_header_reads_back_equal)
{
    scene s;
    dl_contribution back;
    scene_begin(&s, "mem://header", NULL);
    CHECK_OK(dl_contribution_read_header(&back, s.object, DL_CONTRIBUTION_HEADER));
    check_equal(&s.facts, &back);
    CHECK(back.stats.tokens == UINT64_MAX && back.stats.loss == 3.25 &&
          back.stats.end_sample == 48000);
    CHECK_STR("r7", back.generation.replica);
    CHECK_STR("f32", back.codec);
    s.facts.stats.loss = NAN;
    make_object(&s);
    CHECK_OK(dl_contribution_read_header(&back, s.object, DL_CONTRIBUTION_HEADER));
    CHECK(isnan(back.stats.loss));
    scene_end(&s);
}

/* The offsets of docs/formats.md: a change here is a new format version. */
TEST(fields_are_where_the_format_says)
{
    scene s;
    scene_begin(&s, "mem://offsets", NULL);
    CHECK_BYTES("DLCONTR1\1\0\0\0\0\2\0\0" RUN "r7\0", s.object, 51);
    CHECK_BYTES("\3\0\0\0\0\0\0\0\14\0\0\0\0\0\0\0f32\0", s.object + 80, 20);
    CHECK_BYTES("\x70\x17\0\0", s.object + 128, 4);         /* position 6000 */
    CHECK_BYTES("\0\0\0\0\0\0\x0a\x40", s.object + 192, 8); /* loss 3.25 */
    CHECK_BYTES(s.facts.base.bytes, s.object + 208, 16);
    CHECK_BYTES("\x1a\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3", s.object + 240, 17);
    CHECK_BYTES(s.facts.body.bytes, s.object + 272, 16);
    for (size_t i = 288; i < SEAL_AT; i++)
        CHECK_INT(0, s.object[i]);
    scene_end(&s);
}

TEST(every_flipped_bit_of_a_header_is_found)
{
    scene s;
    dl_contribution back;
    scene_begin(&s, "mem://bits", NULL);
    for (size_t bit = 0; bit < 8 * DL_CONTRIBUTION_HEADER; bit++) {
        s.object[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK_STATUS(DILOCO_EPROTO,
                     dl_contribution_read_header(&back, s.object, DL_CONTRIBUTION_HEADER));
        s.object[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t len = 0; len < DL_CONTRIBUTION_HEADER; len++)
        CHECK_STATUS(DILOCO_EPROTO, dl_contribution_read_header(&back, s.object, len));
    scene_end(&s);
}

/* Breaks one byte of the header. */
static void check_broken(scene *s, size_t at, unsigned char value, diloco_status expected,
                         const char *part)
{
    dl_contribution back = {.entry = 77};
    make_object(s);
    s->object[at] = value;
    reseal(s->object);
    CHECK_STATUS(expected, dl_contribution_read_header(&back, s->object, DL_CONTRIBUTION_HEADER));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_INT(77, back.entry);
}

TEST(a_header_that_cannot_be_is_refused)
{
    scene s;
    scene_begin(&s, "mem://impossible", NULL);
    check_broken(&s, 0, 'd', DILOCO_EPROTO, "DLCONTR1");
    check_broken(&s, 8, 2, DILOCO_EDIFFERS, "version 2");
    check_broken(&s, 13, 4, DILOCO_EPROTO, "1024 bytes long");
    check_broken(&s, 16, 'x', DILOCO_EPROTO, "run");
    check_broken(&s, 48, '/', DILOCO_EPROTO, "replica");
    check_broken(&s, 48, 0, DILOCO_EPROTO, "replica"); /* an empty name, and then bytes */
    check_broken(&s, 60, 'x', DILOCO_EPROTO, "replica");
    check_broken(&s, 83, 1, DILOCO_EPROTO, "generation"); /* as a name it could not be written */
    check_broken(&s, 87, 1, DILOCO_EPROTO, "fragment");
    check_broken(&s, 96, 0x1b, DILOCO_EPROTO, "codec");
    check_broken(&s, 127, 'x', DILOCO_EPROTO, "codec");
    check_broken(&s, 182, 1, DILOCO_EPROTO, "end_sample"); /* first_sample's high byte */
    check_broken(&s, 207, 0x80, DILOCO_EPROTO, "norm");    /* negative */
    check_broken(&s, 288, 2, DILOCO_EPROTO, "packing");
    check_broken(&s, 296, 1, DILOCO_EPROTO, "unpacked_len"); /* without packing */
    check_broken(&s, 304, 17, DILOCO_EPROTO, "dealt");
    check_broken(&s, 312, 1, DILOCO_EPROTO, "dealt"); /* chunks of a length, but zero of them */
    check_broken(&s, 320, 1, DILOCO_EPROTO, "dealt");
    check_broken(&s, 456, 1, DILOCO_EPROTO, "hash"); /* of a body that is not signed */
    check_broken(&s, 488, 65, DILOCO_EPROTO, "slices");
    check_broken(&s, 495, 1, DILOCO_EPROTO, "slices");
    s.facts.stats.loss = INFINITY;
    check_broken(&s, 288, 0, DILOCO_EPROTO, "loss");
    scene_end(&s);
}

/* ---- the whole object */

static void check_good(const char *url, const char *spool_dir)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    scene_begin(&s, url, spool_dir);
    CHECK_OK(fetch(&s, &facts, &data));
    CHECK_STR("", s.reason);
    check_equal(&s.facts, &facts);
    CHECK_INT(PAYLOAD, data.len);
    CHECK_INT(0, (uintptr_t)data.payload % 64);
    CHECK((data.mapped != NULL) == (spool_dir != NULL)); /* its memory was released */
    CHECK_BYTES(s.g, data.payload, PAYLOAD);
    CHECK_BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", data.integers,
                16);
    CHECK_BYTES("\1\0\1", data.booleans, N_BOOLEANS);
    double norm2 = 0;
    for (int i = 0; i < N; i++)
        norm2 += (double)s.g[i] * (double)s.g[i];
    CHECK_NEAR(norm2, data.norm2, 1e-9); /* exact sums of few quarters */
    scene_end(&s);
}

TEST(a_whole_contribution_is_handed_out)
{
    check_good("mem://good", NULL);
    check_good(scratch_path("good"), NULL);
}

TEST(contribution_may_be_in_an_unlinked_spool_file)
{
    char *folder = scratch_folder("spool");
    check_good("mem://spool", folder);
    CHECK_INT(0, rmdir(folder)); /* the folder is empty */
}

/* In many pieces: the file store reads a large object in several. */
TEST(a_large_contribution_arrives_in_pieces)
{
    enum { LARGE = 1500001 };
    static float g[LARGE];
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    diloco_tensor large = {"large", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {LARGE}, 0};
    scene_begin(&s, scratch_path("large"), NULL);
    drop_manifest(&s);
    make_manifest(&s, &large, 1);
    dl_slot_destroy(s.slot);
    CHECK_OK(dl_slot_create(&s.slot, sizeof g, NULL));
    for (size_t i = 0; i < LARGE; i++)
        g[i] = (float)(i % 97) - 48;
    s.expect.shape = s.manifest.fragments[0];
    s.facts.n_floats = LARGE;
    s.facts.n_integers = s.facts.n_booleans = 0;
    s.facts.payload_len = sizeof g;
    s.facts.body = dl_digest_bytes(g, sizeof g);
    dl_contribution_write_header(s.object, &s.facts);
    dl_span spans[] = {{s.object, DL_CONTRIBUTION_HEADER}, {g, sizeof g}};
    CHECK_OK(dl_store_create(s.store, s.key, spans, 2, NULL, DL_NEVER));
    CHECK_OK(dl_contribution_fetch(&facts, &data, &s.reason, s.slot, s.store, s.key, &s.expect,
                                   DL_NEVER));
    CHECK(memcmp(g, data.payload, sizeof g) == 0);
    scene_end(&s);
}

/* ---- packed payloads */

/* Compresses the good contribution; the slot is as large as such a one needs. */
static void pack_scene(scene *s)
{
    unsigned char *body = s->object + DL_CONTRIBUTION_HEADER, payload[4 + PAYLOAD];
    CHECK_OK(dl_packer_create(&s->expect.packer));
    dl_slot_destroy(s->slot);
    CHECK_OK(
        dl_slot_create(&s->slot, dl_contribution_body_max(&s->form, s->expect.shape, true), NULL));
    memcpy(payload + 4, s->g, PAYLOAD);
    const size_t packed = dl_pack(s->expect.packer, payload, 4, PAYLOAD, s->form.codec->width);
    memmove(body + packed, body + PAYLOAD, BODY - PAYLOAD);
    memcpy(body, payload, packed);
    s->len = OBJECT - PAYLOAD + packed;
    s->facts.payload_len = packed;
    s->facts.packing = DL_PACKING_ZSTD;
    s->facts.unpacked_len = PAYLOAD;
    s->facts.body = dl_digest_bytes(body, s->len - DL_CONTRIBUTION_HEADER);
    dl_contribution_write_header(s->object, &s->facts);
}

static void end_packed(scene *s)
{
    dl_packer_destroy(s->expect.packer);
    scene_end(s);
}

TEST(compressed_contribution_arrives_with_the_original_values)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    scene_begin(&s, "mem://packed", NULL);
    pack_scene(&s);
    CHECK_OK(fetch(&s, &facts, &data));
    CHECK_INT(PAYLOAD, data.len);
    CHECK_BYTES(s.g, data.payload, PAYLOAD);
    CHECK_INT(1, data.booleans[2]);
    int64_t integers[N_INTEGERS];
    memcpy(integers, data.integers, sizeof integers);
    CHECK(integers[0] == -1 && integers[1] == INT64_MAX);
    CHECK_INT(DL_PACKING_ZSTD, facts.packing);
    end_packed(&s);
}

TEST(wrong_packing_is_rejected)
{
    scene s;
    scene_begin(&s, "mem://lies", NULL);
    pack_scene(&s);
    const dl_contribution good = s.facts;
    static const uint64_t lengths[] = {0, PAYLOAD - 1, PAYLOAD + 1, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        s.facts.unpacked_len = lengths[i];
        dl_contribution_write_header(s.object, &s.facts);
        check_rejected(&s, DILOCO_EPROTO, "codec", "");
    }
    s.facts = good;
    s.facts.packing = DL_PACKING_NONE;
    s.facts.unpacked_len = 0;
    dl_contribution_write_header(s.object, &s.facts);
    check_rejected(&s, DILOCO_EPROTO, "codec", "not compressed, the run's are so");
    s.facts = good;
    unsigned char *body = s.object + DL_CONTRIBUTION_HEADER;
    body[2] ^= 1; /* the first piece's length */
    s.facts.body = dl_digest_bytes(body, s.len - DL_CONTRIBUTION_HEADER);
    dl_contribution_write_header(s.object, &s.facts);
    check_rejected(&s, DILOCO_EPROTO, "codec", "no possible length");
    dl_packer *packer = s.expect.packer;
    s.expect.packer = NULL;
    s.facts = good;
    dl_contribution_write_header(s.object, &s.facts);
    check_rejected(&s, DILOCO_EPROTO, "codec", "is compressed, the run's are not");
    s.expect.packer = packer;
    end_packed(&s);
}

TEST(every_flipped_bit_is_rejected)
{
    scene s;
    scene_begin(&s, "mem://flips", NULL);
    for (size_t bit = 0; bit < 8 * OBJECT; bit++) {
        s.object[bit / 8] ^= (unsigned char)(1 << bit % 8);
        bool in_header = bit < 8 * DL_CONTRIBUTION_HEADER;
        check_rejected(&s, DILOCO_EPROTO, in_header ? "header" : "checksum", "");
        s.object[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    scene_end(&s);
}

TEST(every_truncation_is_rejected)
{
    scene s;
    scene_begin(&s, "mem://cuts", NULL);
    for (s.len = 0; s.len < OBJECT; s.len++)
        check_rejected(&s, DILOCO_EPROTO, "truncated", "bytes");
    scene_end(&s);
}

TEST(an_object_of_another_place_is_rejected)
{
    scene s;
    scene_begin(&s, "mem://foreign", NULL);
    dl_contribution good = s.facts;
    strcpy(s.facts.run, OTHER);
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "foreign", OTHER);

    s.facts = good;
    s.facts.manifest = dl_hash_bytes("other", 5);
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "foreign", "another model");

    s.facts = good;
    strcpy(s.facts.generation.replica, "r8");
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "foreign", "r8.0003");
    s.facts = good;
    s.facts.generation.number = 4;
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "foreign", "r7.0004");
    s.facts = good;
    s.facts.entry = 11;
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "foreign", "entry 11");
    s.facts = good;
    s.facts.fragment = 1;
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "foreign", "fragment 1");

    s.facts = good;
    s.facts.assigned = (dl_assigned){.n = 1, .len = 10};
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "dealt", "this run deals none");

    s.facts = good;
    s.facts.base = dl_hash_bytes("older", 5);
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "base", "state");
    s.expect.base = s.expect.also_base = s.facts.base;
    s.expect.due = s.facts.stats.position - 1;
    check_rejected(&s, DILOCO_EPROTO, "claim", "position that no replica has reached");
    scene_end(&s);
}

TEST(sizes_other_than_the_fragment_s_are_rejected_before_use)
{
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 511, (uint64_t)1 << 61, N + 1, 0};
    scene s;
    scene_begin(&s, "mem://sizes", NULL);
    dl_contribution good = s.facts;
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        s.facts = good;
        s.facts.n_floats = huge[i];
        make_object(&s);
        check_rejected(&s, DILOCO_EPROTO, "shape", "another model");
        s.facts = good;
        s.facts.n_integers = huge[i];
        make_object(&s);
        check_rejected(&s, DILOCO_EPROTO, "shape", "another model");
        s.facts = good;
        s.facts.n_booleans = huge[i];
        make_object(&s);
        check_rejected(&s, DILOCO_EPROTO, "shape", "another model");
    }
    s.facts = good;
    s.facts.payload_len = UINT64_MAX;
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "codec", "at most");
    s.facts.payload_len = PAYLOAD - 4; /* the rest of the object is then too long */
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "shape", "its header says");
    s.len -= 4; /* a whole object, but not a payload of this many elements */
    s.facts.body = dl_digest_bytes(s.object + DL_CONTRIBUTION_HEADER, BODY - 4);
    dl_contribution_write_header(s.object, &s.facts);
    check_rejected(&s, DILOCO_EPROTO, "codec", "");

    s.facts = good;
    strcpy(s.facts.codec, "int8");
    make_object(&s);
    check_rejected(&s, DILOCO_EPROTO, "codec", "int8");

    s.facts = good;
    make_object(&s);
    s.len = OBJECT + 1; /* refused by its length, before anything is read */
    check_rejected(&s, DILOCO_EPROTO, "shape", "at most");
    scene_end(&s);
}

/* Makes the contribution of a replica that skips the entry. */
static void make_empty(scene *s)
{
    s->facts.stats.samples = s->facts.stats.steps = s->facts.stats.tokens = 0;
    s->facts.stats.end_sample = s->facts.stats.first_sample;
    s->facts.norm = 0;
    s->facts.n_floats = s->facts.n_integers = s->facts.n_booleans = 0;
    s->facts.payload_len = 0;
    s->facts.body = dl_digest_bytes("", 0);
    dl_contribution_write_header(s->object, &s->facts);
    s->len = DL_CONTRIBUTION_HEADER;
}

TEST(p9_one_of_no_samples_is_a_header_alone)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    scene_begin(&s, "mem://contribution-empty", NULL);
    make_empty(&s);
    CHECK_OK(fetch(&s, &facts, &data));
    CHECK(dl_contribution_is_empty(&facts));
    check_equal(&s.facts, &facts);
    scene_end(&s);
}

TEST(p9_announcement_may_be_made_before_the_state_of_its_entry_is_known)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    scene_begin(&s, "mem://contribution-early", NULL);
    make_empty(&s);
    s.facts.base.bytes[0] ^= 1;
    dl_contribution_write_header(s.object, &s.facts);
    CHECK_OK(fetch(&s, &facts, &data));
    scene_end(&s);
}

TEST(p9_one_of_no_samples_that_has_something_else_is_rejected)
{
    for (int i = 0; i < 6; i++) {
        scene s;
        scene_begin(&s, "mem://contribution-empty", NULL);
        make_empty(&s);
        dl_contribution *f = &s.facts;
        uint64_t *const counts[] = {&f->n_floats,    &f->n_integers, &f->n_booleans,
                                    &f->payload_len, &f->slices,     &f->bulk};
        *counts[i] = 1;
        dl_contribution_write_header(s.object, f);
        s.len += i == 5; /* a byte that the header does not know */
        check_rejected(&s, DILOCO_EPROTO, "shape", "reports no samples");
        scene_end(&s);
    }
}

TEST(invalid_values_are_rejected_and_named)
{
    scene s;
    scene_begin(&s, "mem://values", NULL);
    s.g[3] = NAN;
    make_object(&s);
    check_rejected(&s, DILOCO_ENUMERIC, "non-finite", "element 3 of embed");
    s.g[3] = -INFINITY;
    make_object(&s);
    check_rejected(&s, DILOCO_ENUMERIC, "non-finite", "element 3 of embed");
    s.g[3] = 0;
    s.g[22] = -100.5f;
    make_object(&s);
    check_rejected(&s, DILOCO_ENUMERIC, "bound", "element 1 of scale moved by -100.5");

    s.g[22] = -100;
    make_object(&s);
    s.object[OBJECT - 1] = 2;
    s.facts.body = dl_digest_bytes(s.object + DL_CONTRIBUTION_HEADER, BODY);
    dl_contribution_write_header(s.object, &s.facts);
    check_rejected(&s, DILOCO_EPROTO, "codec", "boolean 2 is 2");
    scene_end(&s);
}

/* FED-15: of a run whose clients send their final values. */
TEST(values_become_differences_in_the_slot)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    float before[N], got[N];
    double norm2 = 0;
    scene_begin(&s, "mem://values-sent", NULL);
    for (int i = 0; i < N; i++) {
        before[i] = 0.1f * (float)i;
        norm2 += (double)(before[i] - s.g[i]) * (double)(before[i] - s.g[i]);
    }
    s.expect.before = before;
    s.expect.codec = DL_CODEC_WEIGHTS;
    check_rejected(&s, DILOCO_EPROTO, "codec", "it is encoded as f32, the run uses weights");
    snprintf(s.facts.codec, sizeof s.facts.codec, "%s", DL_CODEC_WEIGHTS);
    make_object(&s);
    CHECK_OK(fetch(&s, &facts, &data));
    memcpy(got, data.payload, sizeof got);
    for (int i = 0; i < N; i++)
        CHECK(got[i] == before[i] - s.g[i]);
    CHECK_NEAR(norm2, data.norm2, 1e-3 * norm2);

    s.g[3] = -INFINITY;
    make_object(&s);
    check_rejected(&s, DILOCO_ENUMERIC, "non-finite", "element 3 of embed");
    before[22] = 60, s.g[3] = 0, s.g[22] = -41; /* the movement is what counts */
    make_object(&s);
    check_rejected(&s, DILOCO_ENUMERIC, "bound", "element 1 of scale moved by 101");

    s.facts.payload_len = PAYLOAD - 4; /* sealed as it is: without a value for the last element */
    make_object(&s);
    unsigned char *body = s.object + DL_CONTRIBUTION_HEADER;
    memmove(body + PAYLOAD - 4, body + PAYLOAD, BODY - PAYLOAD);
    s.facts.body = dl_digest_bytes(body, BODY - 4);
    dl_contribution_write_header(s.object, &s.facts);
    s.len = OBJECT - 4;
    check_rejected(&s, DILOCO_EPROTO, "codec", "are not the values of 26 elements");
    s.expect.codec = NULL;
    scene_end(&s);
}

TEST(another_format_version_is_not_counted)
{
    scene s;
    scene_begin(&s, "mem://version", NULL);
    s.object[8] = 9;
    reseal(s.object);
    check_rejected(&s, DILOCO_EPROTO, "header", "version 9");
    scene_end(&s);
}

TEST(store_errors_come_through_without_a_reason)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    scene_begin(&s, "mem://absent", NULL);
    CHECK_STATUS(DILOCO_ENOENT, dl_contribution_fetch(&facts, &data, &s.reason, s.slot, s.store,
                                                      s.key, &s.expect, DL_NEVER));
    CHECK_STR("", s.reason);
    dl_store *aborted;
    CHECK_OK(dl_store_open(&aborted, "mem://absent", true));
    dl_store_abort(aborted);
    CHECK_STATUS(DILOCO_ECLOSED, dl_contribution_fetch(&facts, &data, &s.reason, s.slot, aborted,
                                                       s.key, &s.expect, DL_NEVER));
    CHECK_STR("", s.reason);
    dl_store_close(aborted);
    scene_end(&s);
}

/* ---- slots */

TEST(a_spool_folder_that_is_not_there_is_an_error)
{
    dl_slot *slot;
    CHECK_STATUS(DILOCO_ENOENT, dl_slot_create(&slot, 4096, scratch_path("nowhere")));
    CHECK(slot == NULL);
}

TEST(a_spool_file_that_cannot_have_its_space_is_an_error_and_leaves_nothing)
{
    dl_slot *slot;
    char *folder = scratch_folder("limited");
    struct rlimit kept, small;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &kept));
    small = kept;
    small.rlim_cur = 4096;
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &small));
    diloco_status status = dl_slot_create(&slot, 1 << 20, folder);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &kept));
    CHECK_INT(DILOCO_EIO, status);
    CHECK_CONTAINS("spool", diloco_error_text());
    CHECK(slot == NULL);
    CHECK_INT(0, rmdir(folder));
}

/* The small ones share pages, the large ones are mapped. */
TEST(slots_of_any_size_are_aligned_zero_and_as_large_as_asked_for)
{
    static const size_t sizes[] = {1, 63, 64, 2047, 2048, 2049, 4096, 100000};
    enum { MANY = sizeof sizes / sizeof *sizes };
    dl_slot *slots[MANY];
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(dl_slot_create(&slots[i], sizes[i], NULL));
        CHECK_INT(sizes[i], dl_slot_size(slots[i]));
        CHECK_INT(0, (uintptr_t)dl_slot_bytes(slots[i]) % 64);
        for (size_t b = 0; b < sizes[i]; b++)
            CHECK(dl_slot_bytes(slots[i])[b] == 0);
        memset(dl_slot_bytes(slots[i]), 0xFF, sizes[i]); /* which a sanitizer watches */
    }
    for (size_t i = 0; i < MANY; i++)
        dl_slot_destroy(slots[i]);
}

TEST(small_slots_do_not_take_a_page_each)
{
    enum { MANY = 64 };
    dl_slot *slots[MANY];
    size_t at_page = 0;
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(dl_slot_create(&slots[i], 1024, NULL));
        at_page += (uintptr_t)dl_slot_bytes(slots[i]) % 4096 == 0;
    }
    CHECK(at_page < MANY);
    for (size_t i = 0; i < MANY; i++)
        dl_slot_destroy(slots[i]);
}

TEST(a_slot_of_nothing_and_no_slot_are_fine)
{
    dl_slot *slot;
    CHECK_OK(dl_slot_create(&slot, 0, NULL));
    dl_slot_destroy(slot);
    dl_slot_destroy(NULL);
    CHECK_STATUS(DILOCO_ENOMEM, dl_slot_create(&slot, (size_t)1 << 62, NULL));
    CHECK(slot == NULL);
}

/* ---- signed: skipped in builds without OpenSSL */

static dl_signer *signer_of(const char *name)
{
    dl_signer *signer;
    if (!DL_CRYPTO) skip();
    const diloco_status made = dl_signer_make(scratch_path(name));
    CHECK(!made || made == DILOCO_EEXIST);
    CHECK_OK(dl_signer_open(&signer, scratch_path(name)));
    return signer;
}

/* Signs the object again; proof and body then follow `header`. */
static void make_signed(scene *s, dl_signer *signer)
{
    unsigned char body[BODY];
    make_object(s);
    memcpy(body, s->object + DL_CONTRIBUTION_HEADER, BODY);
    const dl_span span = {body, BODY};
    CHECK_OK(dl_contribution_sign(s->object, &s->facts, signer, &span, 1));
    memcpy(s->object + DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF, body, BODY);
    s->len = OBJECT + DL_CONTRIBUTION_PROOF;
}

/* Changes its header, with its hash, as a process without the key can. */
static void change_header(scene *s, const dl_contribution *to)
{
    dl_contribution_write_header(s->object, to);
}

TEST(a_signed_contribution_is_its_own_replicas_alone)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    dl_signer *mine = signer_of("mine.pem"), *others = signer_of("others.pem");
    scene_begin(&s, "mem://signed", NULL);
    s.expect.key = dl_signer_public(mine);
    check_rejected(&s, DILOCO_EPROTO, "signature", "not signed");
    make_signed(&s, mine);
    CHECK_OK(fetch(&s, &facts, &data));
    CHECK(facts.is_signed && data.len == PAYLOAD);
    make_signed(&s, others);
    check_rejected(&s, DILOCO_EPROTO, "signature", "another key than r7's");
    s.expect.key = NULL;
    check_rejected(&s, DILOCO_EPROTO, "shape", "after the header");
    scene_end(&s);
    dl_signer_close(mine);
    dl_signer_close(others);
}

/* A contribution that a replica signed, under another run, entry, fragment or generation. First as
 * it is, then with its header changed to match, which only the signature shows. */
TEST(a_signed_contribution_is_invalid_anywhere_else)
{
    scene s;
    dl_signer *mine = signer_of("mine.pem");
    scene_begin(&s, "mem://replay", NULL);
    make_signed(&s, mine);
    s.expect.key = dl_signer_public(mine);
    const dl_contribution was = s.facts;
    const dl_contribution_expect here = s.expect;
    for (int k = 0; k < 5; k++) {
        dl_contribution forged = was;
        s.expect = here;
        if (k == 0) memcpy(forged.run, OTHER, sizeof forged.run), s.expect.run = OTHER;
        if (k == 1) forged.entry = s.expect.entry = 13;
        if (k == 2) forged.generation.number = s.expect.generation.number = 4;
        if (k == 3) forged.norm = 1e6; /* a fact in the header */
        if (k == 4)
            memcpy(forged.generation.replica, "r8", 3),
                memcpy(s.expect.generation.replica, "r8", 3);
        change_header(&s, &was);
        if (k != 3) check_rejected(&s, DILOCO_EPROTO, "foreign", "");
        change_header(&s, &forged);
        check_rejected(&s, DILOCO_EPROTO, "signature", "its signature does not match");
    }
    scene_end(&s);
    dl_signer_close(mine);
}

/* An adversary can find a collision of XXH3; assume that it has. */
TEST(a_body_that_was_not_signed_is_rejected_though_its_digest_fits)
{
    scene s;
    dl_signer *mine = signer_of("mine.pem");
    scene_begin(&s, "mem://body", NULL);
    make_signed(&s, mine);
    s.expect.key = dl_signer_public(mine);
    unsigned char *body = s.object + DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF;
    body[5] ^= 1;
    check_rejected(&s, DILOCO_EPROTO, "checksum", "damaged");
    /* Signed over a digest of other bytes than its hash, as after a collision. */
    dl_contribution forged = s.facts;
    dl_strong hash;
    dl_signature signature;
    forged.body = dl_digest_bytes(body, BODY);
    dl_contribution_write_header(s.object, &forged);
    const dl_statement what = {
        .kind = "contribution", .run = RUN, .entry = 12, .generation = &forged.generation};
    CHECK_OK(dl_strong_bytes(&hash, s.object, DL_CONTRIBUTION_HEADER));
    CHECK_OK(dl_statement_sign(&signature, mine, &what, &hash));
    memcpy(s.object + DL_CONTRIBUTION_HEADER + 32, signature.bytes, sizeof signature.bytes);
    check_rejected(&s, DILOCO_EPROTO, "signature", "not the one that was signed");
    scene_end(&s);
    dl_signer_close(mine);
}

TEST(every_flipped_bit_of_a_proof_is_rejected)
{
    scene s;
    dl_signer *mine = signer_of("mine.pem");
    scene_begin(&s, "mem://proof", NULL);
    make_signed(&s, mine);
    s.expect.key = dl_signer_public(mine);
    for (size_t i = 0; i < DL_CONTRIBUTION_PROOF; i++) {
        s.object[DL_CONTRIBUTION_HEADER + i] ^= (unsigned char)(1u << i % 8);
        check_rejected(&s, DILOCO_EPROTO, "signature", "");
        s.object[DL_CONTRIBUTION_HEADER + i] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t len = OBJECT; len < s.len; len += 7) {
        const size_t whole = s.len;
        s.len = len;
        check_rejected(&s, DILOCO_EPROTO, "truncated", "");
        s.len = whole;
    }
    scene_end(&s);
    dl_signer_close(mine);
}

TEST_MAIN(a_signed_contribution_is_its_own_replicas_alone,
          a_signed_contribution_is_invalid_anywhere_else,
          a_body_that_was_not_signed_is_rejected_though_its_digest_fits,
          every_flipped_bit_of_a_proof_is_rejected, values_become_differences_in_the_slot,
          a_header_reads_back_equal, fields_are_where_the_format_says,
          every_flipped_bit_of_a_header_is_found, a_header_that_cannot_be_is_refused,
          a_whole_contribution_is_handed_out, contribution_may_be_in_an_unlinked_spool_file,
          a_large_contribution_arrives_in_pieces,
          compressed_contribution_arrives_with_the_original_values, wrong_packing_is_rejected,
          every_flipped_bit_is_rejected, every_truncation_is_rejected,
          an_object_of_another_place_is_rejected,
          sizes_other_than_the_fragment_s_are_rejected_before_use,
          p9_one_of_no_samples_is_a_header_alone,
          p9_announcement_may_be_made_before_the_state_of_its_entry_is_known,
          p9_one_of_no_samples_that_has_something_else_is_rejected,
          invalid_values_are_rejected_and_named, another_format_version_is_not_counted,
          store_errors_come_through_without_a_reason, a_spool_folder_that_is_not_there_is_an_error,
          a_spool_file_that_cannot_have_its_space_is_an_error_and_leaves_nothing,
          slots_of_any_size_are_aligned_zero_and_as_large_as_asked_for,
          small_slots_do_not_take_a_page_each, a_slot_of_nothing_and_no_slot_are_fine)
