/* codec_fuzz.c - every codec's check over an untrusted payload: refused, or it decodes to numbers
 * within the bound, and the first that is not is where check said.
 *
 * The first byte picks codec and options. The rest is the payload; or, when it is shorter, what is
 * laid over the payload of some vector, or no input would come past lengths and orders. */
#include "codec/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FORMS_MAX = 64, MOST = 8192 };

/* Beside every codec of the list as it is by default. */
static const struct {
    const char *codec, *values, *keep;
} more[] = {
    {"topk", "f32", "0.03"}, {"topk", "int8", "0.1"}, {"topk", "2bit", "0.02"},
    {"topk", "2bit", "1"},   {"topk", "f32", "1"},    {"topk", "f32", "0.0005"},
};

static dl_codec_form forms[FORMS_MAX];
static size_t n_forms;
static float g[MOST];

static void add_form(const dl_manifest *manifest, const char *codec, const char *values,
                     const char *keep)
{
    static dl_config config;
    dl_config_init(&config);
    if (n_forms == FORMS_MAX || dl_config_set(&config, "codec", codec, "fuzz") ||
        (values && dl_config_set(&config, "server.diloco.codec_values", values, "fuzz")) ||
        (keep && dl_config_set(&config, "server.diloco.codec_keep", keep, "fuzz")) ||
        dl_codec_form_init(&forms[n_forms++], &config, manifest, 0))
        abort();
}

static void set_up(void)
{
    static const diloco_tensor tensors[] = {
        {"a", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {300}, 0},
        {"b", NULL, DILOCO_F32, DILOCO_PARAMETER, 2, {67, 70}, 0},
        {"c", NULL, DILOCO_F32, DILOCO_BUFFER, 0, {0}, 0},
    };
    dl_manifest manifest;
    if (dl_manifest_init(&manifest, tensors, 3, false)) abort();
    for (size_t i = 0; dl_codec_at(i); i++)
        add_form(&manifest, dl_codec_at(i)->name, NULL, NULL);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        add_form(&manifest, more[i].codec, more[i].values, more[i].keep);
    for (size_t i = 0; i < MOST; i++)
        g[i] = ((float)(i * i % 199) - 99) * 0.01f;
    dl_manifest_deinit(&manifest);
}

static void check(const dl_codec_form *form, const unsigned char *payload, size_t len)
{
    static float out[MOST];
    size_t index;
    double norm2;
    diloco_status status = dl_codec_check(form, payload, len, 1000, &index, &norm2);
    if (status == DILOCO_EPROTO) return;
    dl_codec_round_trip(form, out, payload, len);
    size_t bad = dl_first_bad(out, form->n, 1000);
    if (status == DILOCO_OK && (bad != form->n || norm2 != dl_norm2(out, form->n))) abort();
    if (status == DILOCO_ENUMERIC && bad != index) abort();
    if (status != DILOCO_OK && status != DILOCO_ENUMERIC) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (n_forms == 0) set_up();
    if (size < 3) return 0;
    const dl_codec_form *form = &forms[data[0] % n_forms];
    size_t at = (data[1] | (size_t)data[2] << 8) % form->bound, len = size - 3;
    unsigned char *payload = malloc(form->room); /* as small as may be, for the sanitizer */
    if (!payload) abort();
    if (len < form->bound) {
        form->codec->encode(form, payload, &len, g);
        memcpy(payload + at, data + 3, dl_size_min(size - 3, len - at));
        unsigned char *exact = malloc(len);
        if (!exact) abort();
        memcpy(exact, payload, len);
        check(form, exact, len);
        free(exact);
    } else {
        check(form, data + 3, len);
    }
    free(payload);
    return 0;
}
