/* contribution_signed_test.c - a signed contribution counts where its replica signed it, and
 * nowhere else. The tests are skipped in builds without OpenSSL. */
#include "contribution_scene.h"
#include "scratch.h"

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

TEST(p9_a_signed_announcement_may_name_any_fragment)
{
    scene s;
    dl_contribution facts;
    dl_contribution_data data;
    dl_signer *mine = signer_of("mine.pem");
    scene_begin(&s, "mem://announced", NULL);
    s.expect.key = dl_signer_public(mine);
    s.facts.stats.samples = s.facts.stats.steps = s.facts.stats.tokens = 0;
    s.facts.stats.end_sample = s.facts.stats.first_sample;
    s.facts.norm = 0;
    s.facts.n_floats = s.facts.n_integers = s.facts.n_booleans = s.facts.payload_len = 0;
    s.facts.body = dl_digest_bytes("", 0);
    s.facts.fragment = s.expect.fragment + 1;
    CHECK_OK(dl_contribution_sign(s.object, &s.facts, mine, NULL, 0));
    s.len = DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF;
    CHECK_OK(fetch(&s, &facts, &data));
    CHECK(facts.is_signed && facts.fragment != s.expect.fragment);
    scene_end(&s);
    dl_signer_close(mine);
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
          p9_a_signed_announcement_may_name_any_fragment,
          a_signed_contribution_is_invalid_anywhere_else,
          a_body_that_was_not_signed_is_rejected_though_its_digest_fits,
          every_flipped_bit_of_a_proof_is_rejected)
