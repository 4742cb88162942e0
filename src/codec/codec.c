/* codec.c - the table of codecs. */
#include "codec/rows.h"

#include <string.h>

static const dl_codec *const rows[] = {&dl_codec_f32};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const dl_codec *dl_codec_at(size_t i)
{
    return i < N_ROWS ? rows[i] : NULL;
}

const dl_codec *dl_codec_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}
