/* sample.h - one sample, as a data source gives it and a model takes it. */
#ifndef DL_BASE_SAMPLE_H
#define DL_BASE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

typedef enum dl_sample_kind {
    DL_TOKENS, /* inputs i32[length]: token numbers; targets i32[length]: the token after each */
    DL_IMAGES  /* inputs u8[channels][height][width]; targets i32[1]: the class */
} dl_sample_kind;

enum { DL_SAMPLE_MAX_CHANNELS = 4, DL_SAMPLE_MAX_SIDE = 4096 };

/* The shape of one sample. Data sources and models agree on it before training. */
typedef struct dl_sample {
    dl_sample_kind kind;
    size_t length;                  /* targets: T, or 1 for an image */
    size_t classes;                 /* a target is below it: the vocabulary, or the labels */
    size_t channels, height, width; /* of an image; else 0 */
    /* A model sees (byte / 255 - mean) / deviation of an image's channel. */
    float mean[DL_SAMPLE_MAX_CHANNELS], deviation[DL_SAMPLE_MAX_CHANNELS];
} dl_sample;

static inline dl_sample dl_sample_tokens(size_t vocab, size_t length)
{
    return (dl_sample){.kind = DL_TOKENS, .length = length, .classes = vocab};
}

/* Bytes of its inputs, as a data source writes them. */
static inline size_t dl_sample_bytes(const dl_sample *s)
{
    return s->kind == DL_TOKENS ? s->length * sizeof(int32_t) : s->channels * s->height * s->width;
}

static inline const char *dl_sample_kind_name(dl_sample_kind kind)
{
    return kind == DL_TOKENS ? "tokens" : "images";
}

#endif
