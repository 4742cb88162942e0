/* signature_test.c - keys and signatures against RFC 8032, section 7.1, and files that are no keys.
 */
#include "base/signature.h"

#include "check.h"
#include "scratch.h"

#if DL_CRYPTO

/* RFC 8032, 7.1, test 1, as "openssl pkey" would write its secret. */
static const char rfc_pem[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
                              "-----END PRIVATE KEY-----\n";
static const char rfc_public[] =
    "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
static const char rfc_signature[] =
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b4"
    "6bd25bf5f0595bbe24655141438e7a100b";

static const char *private_file(const char *name, const char *text, unsigned mode)
{
    const char *path = scratch_write(name, text, strlen(text));
    CHECK_INT(0, chmod(path, mode));
    return path;
}

TEST(rfc_8032_test_1_gives_its_public_key_and_its_signature)
{
    dl_signer *signer;
    dl_signature s;
    char text[DL_PUBLIC_TEXT], hex[DL_SIGNATURE_HEX + 1];
    CHECK_OK(dl_signer_open(&signer, private_file("rfc.pem", rfc_pem, 0600)));
    dl_public_text(text, dl_signer_public(signer));
    CHECK_STR(rfc_public, text);
    CHECK_OK(dl_sign(&s, signer, "", 0));
    dl_hex(hex, s.bytes, sizeof s.bytes);
    CHECK_STR(rfc_signature, hex);
    CHECK(dl_verify(&s, dl_signer_public(signer), "", 0));
    dl_signer_close(signer);
}

TEST(a_signature_is_of_one_text_by_one_key)
{
    dl_signer *a, *b;
    dl_signature s;
    CHECK_OK(dl_signer_make(scratch_path("deep/er/a.pem")));
    CHECK_OK(dl_signer_make(scratch_path("b.pem")));
    CHECK_OK(dl_signer_open(&a, scratch_path("deep/er/a.pem")));
    CHECK_OK(dl_signer_open(&b, scratch_path("b.pem")));
    CHECK_OK(dl_sign(&s, a, "entry 3", 7));
    CHECK(dl_verify(&s, dl_signer_public(a), "entry 3", 7));
    CHECK(!dl_verify(&s, dl_signer_public(a), "entry 4", 7));
    CHECK(!dl_verify(&s, dl_signer_public(a), "entry 3", 6));
    CHECK(!dl_verify(&s, dl_signer_public(b), "entry 3", 7));
    s.bytes[40] ^= 1;
    CHECK(!dl_verify(&s, dl_signer_public(a), "entry 3", 7));
    CHECK(!dl_public_equal(dl_signer_public(a), dl_signer_public(b)));
    dl_signer_close(a);
    dl_signer_close(b);
}

TEST(a_made_key_is_its_owners_alone_and_never_replaced)
{
    struct stat st;
    CHECK_OK(dl_signer_make(scratch_path("mine.pem")));
    CHECK_INT(0, stat(scratch_path("mine.pem"), &st));
    CHECK_INT(0600, st.st_mode & 07777);
    CHECK_STATUS(DILOCO_EEXIST, dl_signer_make(scratch_path("mine.pem")));
}

TEST(an_invalid_key_or_one_that_others_may_read_is_refused)
{
    dl_signer *signer;
    CHECK_STATUS(DILOCO_EREFUSED,
                 dl_signer_open(&signer, private_file("loose.pem", rfc_pem, 0640)));
    CHECK(!signer);
    CHECK_CONTAINS("chmod 600", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, dl_signer_open(&signer, private_file("text", "a secret", 0600)));
    CHECK(!strstr(diloco_error_text(), "a secret"));
    CHECK_STATUS(DILOCO_ENOENT, dl_signer_open(&signer, scratch_path("none.pem")));
    CHECK_STATUS(DILOCO_EREFUSED, dl_signer_open(&signer, scratch_root));
    static const char other[] = "-----BEGIN PRIVATE KEY-----\n" /* X25519: agrees, never signs */
                                "MC4CAQAwBQYDK2VuBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
                                "-----END PRIVATE KEY-----\n";
    CHECK_STATUS(DILOCO_EPROTO, dl_signer_open(&signer, private_file("x.pem", other, 0600)));
}

TEST(the_hash_is_the_first_half_of_blake2b_512_in_pieces_too)
{
    dl_strong a, b;
    dl_strong_stream *s;
    char hex[DL_STRONG_HEX + 1];
    CHECK_OK(dl_strong_bytes(&a, "abc", 3)); /* RFC 7693, appendix A */
    dl_hex(hex, a.bytes, sizeof a.bytes);
    CHECK_STR("ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1", hex);
    CHECK_OK(dl_strong_begin(&s));
    dl_strong_add(s, "a", 1);
    dl_strong_add(s, "bc", 2);
    b = dl_strong_end(s);
    CHECK_BYTES(a.bytes, b.bytes, sizeof a.bytes);
    CHECK_OK(dl_strong_begin(&s));
    dl_strong_drop(s);
}

#else

TEST(a_build_without_openssl_refuses_keys_by_name)
{
    dl_signer *signer;
    dl_signature s = {{0}};
    dl_public key = {{0}};
    dl_strong hash;
    CHECK_STATUS(DILOCO_EREFUSED, dl_signer_make(scratch_path("mine.pem")));
    CHECK_CONTAINS("without keys", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, dl_signer_open(&signer, scratch_path("mine.pem")));
    CHECK_STATUS(DILOCO_EREFUSED, dl_strong_bytes(&hash, "", 0));
    CHECK(!dl_verify(&s, &key, "", 0));
}

#endif

TEST(a_public_key_has_one_text)
{
    static const char text[] =
        "ed25519:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    char again[DL_PUBLIC_TEXT], upper[DL_PUBLIC_TEXT];
    dl_public key;
    CHECK(dl_public_parse(&key, text, strlen(text)));
    CHECK_INT(0x11, key.bytes[1]);
    dl_public_text(again, &key);
    CHECK_STR(text, again);
    memcpy(upper, text, sizeof upper);
    upper[DL_PUBLIC_TEXT - 2] = 'F';
    CHECK(!dl_public_parse(&key, upper, strlen(upper)));
    CHECK(!dl_public_parse(&key, text, strlen(text) - 1));
    CHECK(!dl_public_parse(&key, text + 1, strlen(text) - 1));
}

TEST(a_key_is_in_the_user_s_configuration_by_default)
{
    char path[256], tiny[8];
    CHECK_INT(0, setenv("XDG_CONFIG_HOME", "/x", 1));
    CHECK_OK(dl_signer_path(path, sizeof path));
    CHECK_STR("/x/diloco/key.pem", path);
    CHECK_INT(0, unsetenv("XDG_CONFIG_HOME"));
    CHECK_INT(0, setenv("HOME", "/home/me", 1));
    CHECK_OK(dl_signer_path(path, sizeof path));
    CHECK_STR("/home/me/.config/diloco/key.pem", path);
    CHECK_STATUS(DILOCO_EINVAL, dl_signer_path(tiny, sizeof tiny));
    CHECK_INT(0, unsetenv("HOME"));
    CHECK_STATUS(DILOCO_EINVAL, dl_signer_path(path, sizeof path));
    CHECK_CONTAINS("run.key", diloco_error_text());
}

#if DL_CRYPTO
/* The output of "openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64" for the
 * key of RFC 8032, test 1. */
TEST(a_key_has_the_pin_that_others_compute)
{
    char pin[DL_PIN_TEXT];
    dl_public key;
    const char *text = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    CHECK(dl_public_parse(&key, text, strlen(text)));
    CHECK_OK(dl_public_pin(pin, &key));
    CHECK_STR("sha256//BuP9j9opu2CrWVV95h7bCuzbIxE0vjDnW0Vfjht5L6k=", pin);
}

TEST(a_generated_key_signs_and_is_another_each_time)
{
    dl_signer *a, *b;
    dl_signature signature;
    CHECK_OK(dl_signer_generate(&a));
    CHECK_OK(dl_signer_generate(&b));
    CHECK(!dl_public_equal(dl_signer_public(a), dl_signer_public(b)));
    CHECK_OK(dl_sign(&signature, a, "text", 4));
    CHECK(dl_verify(&signature, dl_signer_public(a), "text", 4));
    CHECK(!dl_verify(&signature, dl_signer_public(b), "text", 4));
    dl_signer_close(a);
    dl_signer_close(b);
}
#endif

#if DL_CRYPTO
TEST_MAIN(rfc_8032_test_1_gives_its_public_key_and_its_signature,
          a_signature_is_of_one_text_by_one_key, a_made_key_is_its_owners_alone_and_never_replaced,
          an_invalid_key_or_one_that_others_may_read_is_refused,
          the_hash_is_the_first_half_of_blake2b_512_in_pieces_too, a_public_key_has_one_text,
          a_key_is_in_the_user_s_configuration_by_default, a_key_has_the_pin_that_others_compute,
          a_generated_key_signs_and_is_another_each_time)
#else
TEST_MAIN(a_build_without_openssl_refuses_keys_by_name, a_public_key_has_one_text,
          a_key_is_in_the_user_s_configuration_by_default)
#endif
