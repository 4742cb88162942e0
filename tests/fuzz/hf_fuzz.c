/* hf_fuzz.c - a config.json that reads is within the options' ranges and, written, reads back to
 * the same model; an index names only files of the folder itself. */
#include "model/gpt.h"
#include "model/hf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_config(const uint8_t *data, size_t size)
{
    static dl_config config, back; /* large, and set again each time */
    dl_hf_facts facts;
    dl_buf text;
    dl_config_init(&config);
    if (dl_hf_config_read(&config, &facts, data, size)) return;
    if (config.layers < 1 || config.heads < 1 || config.channels < 1 || facts.positions < 1)
        abort();
    dl_gpt_shape shape;
    if (dl_gpt_shape_read(&shape, &config, 1)) return;
    if (!shape.qk_norm && shape.channels % shape.heads) return; /* nor does transformers take it */
    dl_config_init(&back);
    dl_buf_init(&text, 1 << 16);
    if (dl_hf_config_write(&text, &config, "F32", -1)) abort();
    if (dl_hf_config_read(&back, &facts, text.data, text.len)) abort();
    if (back.channels != config.channels || back.layers != config.layers ||
        back.heads != config.heads || back.qk_norm != config.qk_norm || back.tied != config.tied ||
        back.head_dim != (int64_t)shape.dim || back.rope_scaling != config.rope_scaling)
        abort();
    dl_buf_deinit(&text);
}

static diloco_status on_entry(void *user, const char *tensor, const char *file)
{
    size_t *n = user;
    *n += strlen(tensor) < 256;
    if (strchr(file, '/') || file[0] == '.' || file[0] == '\0') abort();
    return DILOCO_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = 0;
    check_config(data, size);
    if (!dl_hf_index_read(data, size, on_entry, &n) && n > size) abort();
    return 0;
}
