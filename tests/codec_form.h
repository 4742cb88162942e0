/* codec_form.h - one tensor, one codec, and what a test does with them. */
#ifndef DL_TESTS_CODEC_FORM_H
#define DL_TESTS_CODEC_FORM_H

#include "base/rng.h"
#include "codec/codec.h"

#include "check.h"

typedef struct codec_form {
    dl_codec_form form;
    float *decoded;
    unsigned char *payload;
    size_t len, index; /* index: of check */
} codec_form;

/* options: name, value, …, NULL, or NULL. rows 1: a tensor of one dimension. */
static inline codec_form form_open(const char *codec, const char *const *options, size_t rows,
                                   size_t cols)
{
    static dl_config config;
    codec_form f = {.len = 0};
    dl_manifest manifest;
    diloco_tensor t = {.name = "w", .n_dims = rows == 1 ? 1 : 2, .shape = {rows, cols}};
    if (rows == 1) t.shape[0] = cols;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "codec", codec, "test"));
    for (; options && *options; options += 2)
        CHECK_OK(dl_config_set(&config, options[0], options[1], "test"));
    CHECK_OK(dl_manifest_init(&manifest, &t, 1, false));
    CHECK_OK(dl_codec_form_init(&f.form, &config, &manifest, 0));
    dl_manifest_deinit(&manifest);
    f.decoded = malloc(f.form.n * sizeof *f.decoded);
    f.payload = malloc(f.form.room);
    CHECK(f.decoded && f.payload);
    return f;
}

static inline void form_close(codec_form *f)
{
    free(f->decoded), free(f->payload);
    dl_codec_form_deinit(&f->form);
}

/* Of the payload as it is. */
static inline diloco_status form_check(codec_form *f)
{
    double norm2;
    return dl_codec_check(&f->form, f->payload, f->len, 1e18f, &f->index, &norm2);
}

/* decoded = decode(encode(x)) */
static inline const float *form_pass(codec_form *f, const float *x)
{
    f->form.codec->encode(&f->form, f->payload, &f->len, x);
    CHECK_OK(form_check(f));
    dl_codec_round_trip(&f->form, f->decoded, f->payload, f->len);
    return f->decoded;
}

/* Refused for its form, with a text that has `part`; `at` of the payload is put back. */
static inline void form_refuses(codec_form *f, size_t at, unsigned char byte, const char *part)
{
    unsigned char was = f->payload[at];
    f->payload[at] = byte;
    CHECK_STATUS(DILOCO_EPROTO, form_check(f));
    CHECK_CONTAINS(part, diloco_error_text());
    f->payload[at] = was;
    CHECK_OK(form_check(f));
}

/* Uniform in ±size, the same every time. */
static inline void fill_uniform(float *x, size_t n, float size)
{
    dl_rng rng;
    dl_rng_init(&rng, 3, DL_STREAM(DL_STREAM_TEST, 9), 0);
    for (size_t i = 0; i < n; i++)
        x[i] = (2 * dl_rng_f32(&rng) - 1) * size;
}

static inline void put_float(unsigned char *to, float x)
{
    memcpy(to, &x, sizeof x);
}

#endif
