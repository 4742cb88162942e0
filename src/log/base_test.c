/* base_test.c - the tensors that a model has and a run does not exchange: run.json keeps
 * them, and a replica with others is refused. */
#include "log/base.h"

#include "check.h"

#include <string.h>

static dl_hash hash_of(const char *text)
{
    return dl_digest_bytes(text, strlen(text));
}

static dl_base a_base(void)
{
    dl_base base = {0};
    CHECK_OK(dl_base_add(&base, "wte", "BF16 [50304, 768]", hash_of("wte")));
    CHECK_OK(dl_base_add(&base, "h.0.attn", "BF16 [768, 768]", hash_of("attn")));
    CHECK_OK(dl_base_add(&base, "h.0.mlp", "U8 [1179648, 1]", hash_of("mlp")));
    return base;
}

static dl_buf text_of(const dl_base *base)
{
    dl_buf text;
    dl_json j;
    dl_buf_init(&text, 1 << 20);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_base_write(&j, base);
    dl_json_end(&j);
    CHECK_OK(j.status);
    return text;
}

static diloco_status read_text(dl_base *out, const char *text)
{
    dl_json_value root;
    CHECK_OK(dl_json_parse(&root, text, strlen(text)));
    return dl_base_read(out, dl_json_get(root, "base"));
}

TEST(base_reads_back_as_it_was_written)
{
    dl_base base = a_base(), back;
    dl_buf text = text_of(&base);
    CHECK_OK(read_text(&back, dl_buf_str(&text)));
    CHECK_INT(base.n, back.n);
    const dl_sides sides = dl_sides_of("r0", "r1");
    CHECK_OK(dl_base_matches(&base, &back, &sides));
    dl_buf_deinit(&text);
    dl_base_deinit(&back);
    dl_base_deinit(&base);
}

TEST(empty_base_writes_nothing_and_matches_only_an_empty_one)
{
    dl_base empty = {0}, full = a_base(), back;
    dl_buf text = text_of(&empty);
    CHECK_STR("{}", dl_buf_str(&text));
    CHECK_OK(read_text(&back, dl_buf_str(&text)));
    const dl_sides sides = dl_sides_of("r0", "r1"), none = dl_sides_of("", NULL);
    CHECK_OK(dl_base_matches(&empty, &back, &sides));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_base_matches(&full, &empty, &sides));
    CHECK_CONTAINS("there are 3 base tensors, which are frozen and not exchanged, in the run that "
                   "replica r0 created, and 0 on replica r1",
                   diloco_error_text());
    CHECK_STATUS(DILOCO_EDIFFERS, dl_base_matches(&empty, &full, &none));
    CHECK_CONTAINS("not exchanged, in the run, and 3 here", diloco_error_text());
    dl_buf_deinit(&text);
    dl_base_deinit(&full);
}

/* The second of three tensors differs here. */
static void check_differs(const char *name, const char *kind, const char *values, const char *part)
{
    dl_base run = a_base(), here = {0};
    CHECK_OK(dl_base_add(&here, "wte", "BF16 [50304, 768]", hash_of("wte")));
    CHECK_OK(dl_base_add(&here, name, kind, hash_of(values)));
    CHECK_OK(dl_base_add(&here, "h.0.mlp", "U8 [1179648, 1]", hash_of("another")));
    const dl_sides sides = dl_sides_of("r0", "r1");
    CHECK_STATUS(DILOCO_EDIFFERS, dl_base_matches(&run, &here, &sides));
    CHECK_CONTAINS(part, diloco_error_text());
    dl_base_deinit(&here);
    dl_base_deinit(&run);
}

TEST(first_tensor_that_differs_is_named)
{
    check_differs("h.0.attn", "BF16 [768, 768]", "other values",
                  "base tensor h.0.attn (BF16 [768, 768]) has other values on replica r1 than in "
                  "the run that replica r0 created (digests ");
    check_differs("h.0.attn", "F32 [768, 768]", "attn",
                  "base tensor 1 is h.0.attn BF16 [768, 768] in the run that replica r0 created, "
                  "h.0.attn F32 [768, 768] on replica r1");
    check_differs("h.0.q", "BF16 [768, 768]", "attn", "h.0.q BF16 [768, 768] on replica r1");
    check_differs("h.0.attn", "BF16 [768, 768]", "attn", "base tensor h.0.mlp (U8 [1179648, 1])");
}

TEST(invalid_tensors_are_refused_and_change_nothing)
{
    dl_base base = a_base();
    char long_name[DILOCO_NAME_MAX + 2];
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    CHECK_STATUS(DILOCO_EINVAL, dl_base_add(&base, "", "", hash_of("")));
    CHECK_STATUS(DILOCO_EINVAL, dl_base_add(&base, "a\n", "", hash_of("")));
    CHECK_STATUS(DILOCO_EINVAL, dl_base_add(&base, long_name, "", hash_of("")));
    CHECK_STATUS(DILOCO_EINVAL, dl_base_add(&base, "a", "F32 \x01", hash_of("")));
    CHECK_STATUS(DILOCO_EINVAL, dl_base_add(&base, "wte", "F32 [1]", hash_of("")));
    CHECK_CONTAINS("wte is registered twice", diloco_error_text());
    CHECK_INT(3, base.n);
    dl_base_deinit(&base);
}

TEST(untrusted_text_that_is_no_base_is_refused)
{
    static const char hex[] = "0123456789abcdef0123456789abcdef";
    const char *const texts[] = {"{\"base\":1}",
                                 "{\"base\":[]}",
                                 "{\"base\":[1]}",
                                 "{\"base\":[{\"name\":\"w\",\"kind\":\"F32\"}]}",
                                 "{\"base\":[{\"name\":\"w\",\"digest\":\"%s\"}]}",
                                 "{\"base\":[{\"name\":\"\",\"kind\":\"F32\",\"digest\":\"%s\"}]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[256];
        const char *at = strstr(texts[i], "%s");
        snprintf(text, sizeof text, "%.*s%s%s", at ? (int)(at - texts[i]) : (int)strlen(texts[i]),
                 texts[i], at ? hex : "", at ? at + 2 : "");
        dl_base base;
        CHECK_STATUS(DILOCO_EPROTO, read_text(&base, text));
        CHECK(base.tensors == NULL && base.n == 0);
    }
}

TEST_MAIN(base_reads_back_as_it_was_written,
          empty_base_writes_nothing_and_matches_only_an_empty_one,
          first_tensor_that_differs_is_named, invalid_tensors_are_refused_and_change_nothing,
          untrusted_text_that_is_no_base_is_refused)
