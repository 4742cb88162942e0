/* signed_test.c - signed and sealed JSON is valid only as the object that was signed; and
 * invitations. */
#include "log/fields.h"
#include "log/invitation.h"

#include "check.h"
#include "scratch.h"

#define RUN   "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdee"

#if DL_CRYPTO

static dl_signer *signer_of(const char *name)
{
    dl_signer *signer;
    const diloco_status made = dl_signer_make(scratch_path(name));
    CHECK(!made || made == DILOCO_EEXIST);
    CHECK_OK(dl_signer_open(&signer, scratch_path(name)));
    return signer;
}

static void write_note(dl_buf *out, const char *text)
{
    dl_json j;
    size_t start;
    dl_sealed_begin(&j, &start, out, "diloco-note");
    dl_json_str(&j, "text", text);
    CHECK_OK(dl_sealed_end(&j, start));
}

TEST(signed_text_is_sealed_and_names_its_signer)
{
    dl_signer *a = signer_of("a.pem");
    dl_public by;
    dl_buf text;
    dl_json_value root;
    const dl_generation generation = {"r1", 2};
    const dl_statement what = {
        .kind = "note", .run = RUN, .entry = 4, .fragment = 1, .generation = &generation};
    dl_buf_init(&text, 4096);
    CHECK_OK(dl_buf_add(&text, "before", 6));
    write_note(&text, "hello");
    CHECK_OK(dl_sealed_sign(&text, 6, a, &what));
    CHECK_OK(dl_sealed_open(&root, text.data + 6, text.len - 6, "diloco-note"));
    CHECK(dl_json_is(dl_json_get(root, "text"), "hello"));
    CHECK_OK(dl_sealed_signer(&by, text.data + 6, text.len - 6, &what));
    CHECK(dl_public_equal(&by, dl_signer_public(a)));

    const dl_generation later = {"r1", 3};
    const dl_statement others[] = {
        {"entry", RUN, 4, 1, &generation}, {"note", OTHER, 4, 1, &generation},
        {"note", RUN, 5, 1, &generation},  {"note", RUN, 4, 2, &generation},
        {"note", RUN, 4, 1, &later},       {"note", RUN, 4, 1, NULL}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK_STATUS(DILOCO_EPROTO, dl_sealed_signer(&by, text.data + 6, text.len - 6, &others[i]));
        CHECK_CONTAINS("does not match this object", diloco_error_text());
    }
    dl_buf_deinit(&text);
    dl_signer_close(a);
}

TEST(no_byte_of_a_signed_text_can_be_another)
{
    dl_signer *a = signer_of("a.pem");
    dl_public by;
    dl_buf text;
    const dl_statement what = {.kind = "note", .run = RUN};
    dl_buf_init(&text, 4096);
    write_note(&text, "hello");
    CHECK_STATUS(DILOCO_EPROTO, dl_sealed_signer(&by, text.data, text.len, &what));
    CHECK_OK(dl_sealed_sign(&text, 0, a, &what));
    for (size_t i = 0; i < text.len - DL_SEAL; i++) { /* fields_test.c covers the seal */
        text.data[i] ^= 1;
        CHECK(dl_sealed_signer(&by, text.data, text.len, &what) == DILOCO_EPROTO);
        text.data[i] ^= 1;
    }
    for (size_t len = 0; len < text.len; len++)
        CHECK(dl_sealed_signer(&by, text.data, len, &what) == DILOCO_EPROTO);
    dl_buf full;
    dl_buf_init(&full, 100);
    write_note(&full, "x");
    const size_t len = full.len;
    CHECK_STATUS(DILOCO_EPROTO, dl_sealed_sign(&full, 0, a, &what)); /* no space: unchanged */
    CHECK_INT(len, full.len);
    dl_buf_deinit(&full);
    dl_buf_deinit(&text);
    dl_signer_close(a);
}

TEST(an_invitation_reads_back_and_no_other_text_does)
{
    char text[DL_INVITATION_TEXT];
    dl_invitation i;
    dl_signer *a = signer_of("a.pem");
    CHECK_OK(dl_invitation_make(text, RUN, 1893456000, a));
    CHECK_OK(dl_invitation_read(&i, text, strlen(text)));
    CHECK_STR(RUN, i.run);
    CHECK_INT(1893456000, i.expires);
    CHECK(dl_public_equal(&i.owner, dl_signer_public(a)));
    const size_t len = strlen(text);
    for (size_t k = 0; k < len; k++) {
        const char was = text[k];
        text[k] = was == '1' ? '2' : '1';
        CHECK(dl_invitation_read(&i, text, len) == DILOCO_EPROTO);
        CHECK(!strstr(diloco_error_text(), i.id));
        text[k] = was;
    }
    for (size_t k = 0; k < len; k++)
        CHECK(dl_invitation_read(&i, text, k) == DILOCO_EPROTO);
    CHECK_STATUS(DILOCO_EPROTO, dl_invitation_read(&i, text, len + 1));
    dl_signer_close(a);
}

TEST_MAIN(signed_text_is_sealed_and_names_its_signer, no_byte_of_a_signed_text_can_be_another,
          an_invitation_reads_back_and_no_other_text_does)

#else

TEST(a_build_without_openssl_believes_no_signature)
{
    dl_public by;
    const dl_statement what = {.kind = "note", .run = RUN};
    CHECK_STATUS(DILOCO_EPROTO, dl_sealed_signer(&by, OTHER, strlen(OTHER), &what));
}

TEST_MAIN(a_build_without_openssl_believes_no_signature)

#endif
