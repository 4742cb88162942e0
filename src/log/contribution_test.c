/* contribution_test.c - a contribution is returned whole and checked, or not at all. */
#include "contribution_scene.h"
#include "scratch.h"

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
    s.expect.claims.due = s.facts.stats.position - 1;
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
    s.facts.fragment = 1; /* with the schedule torchft it follows from the commits before */
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

TEST_MAIN(values_become_differences_in_the_slot, a_whole_contribution_is_handed_out,
          contribution_may_be_in_an_unlinked_spool_file, a_large_contribution_arrives_in_pieces,
          compressed_contribution_arrives_with_the_original_values, wrong_packing_is_rejected,
          every_flipped_bit_is_rejected, every_truncation_is_rejected,
          an_object_of_another_place_is_rejected,
          sizes_other_than_the_fragment_s_are_rejected_before_use,
          p9_one_of_no_samples_is_a_header_alone,
          p9_announcement_may_be_made_before_the_state_of_its_entry_is_known,
          p9_one_of_no_samples_that_has_something_else_is_rejected,
          invalid_values_are_rejected_and_named, another_format_version_is_not_counted,
          store_errors_come_through_without_a_reason)
