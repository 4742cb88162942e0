/* safetensors_fuzz.c - of a block that opens, every tensor is inside it, the tensors
 * cover the data, and each is found by its name. */
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size)
{
    dl_st st;
    if (dl_st_open(&st, data, size)) {
        if (strncmp(diloco_error_text(), "safetensors: ", 13) != 0) abort();
        return;
    }
    size_t at = 0, sum = 0;
    for (size_t i = 0; i < st.n; i++) {
        const dl_st_tensor *t = &st.tensors[i];
        size_t bytes = dl_st_dtype_size(t->dtype);
        for (int d = 0; d < t->n_dims; d++)
            bytes *= t->shape[d];
        if (t->begin != at || t->end - t->begin != bytes || dl_st_find(&st, t->name) != t) abort();
        for (at = t->begin; at < t->end; at++)
            sum += st.data[at];
    }
    if (at != st.data_len || st.data + at != data + size || sum > 255 * size) abort();
    dl_st_close(&st);
}

/* The block as it is; then with a length that makes all but the last data[0] bytes the
 * header, because a length is seldom guessed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);
    if (size < 8 || data[0] > size - 8) return 0;
    size_t header = size - 8 - data[0];
    uint8_t *block = malloc(size);
    if (!block) abort();
    memcpy(block, data, size);
    for (int i = 0; i < 8; i++)
        block[i] = (uint8_t)(header >> 8 * i);
    check(block, size);
    free(block);
    return 0;
}
