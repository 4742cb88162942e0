/* mask.c - see mask.h. */
#include "launch/mask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of all held bytes and of one piece. */
enum { HELD_MAX = 4 << 20 };

/* Keep the values sorted, longest first: one value may begin like a longer one. */
static void insert(dl_mask *mask, const char *value)
{
    size_t i = mask->n++;
    for (; i > 0 && strlen(mask->values[i - 1]) < strlen(value); i--)
        mask->values[i] = mask->values[i - 1];
    mask->values[i] = value;
    mask->begins[(unsigned char)*value] = true;
}

diloco_status dl_mask_init(dl_mask *mask, const char *names)
{
    char name[DL_MASK_NAME_MAX + 1];
    memset(mask, 0, sizeof *mask);
    dl_buf_init(&mask->held, HELD_MAX);
    while (*names) {
        const size_t len = strcspn(names, ",");
        if (len > DL_MASK_NAME_MAX)
            return dl_fail(DILOCO_EINVAL, "--hide: a name has at most %d bytes, and not %.60s…",
                           DL_MASK_NAME_MAX, names);
        snprintf(name, sizeof name, "%.*s", (int)len, names);
        const char *value = getenv(name);
        if (mask->n == DL_MASK_VALUES)
            return dl_fail(DILOCO_EINVAL, "--hide takes at most %d names", DL_MASK_VALUES);
        if (value && *value) insert(mask, value);
        names += len + (names[len] == ',');
    }
    return DILOCO_OK;
}

void dl_mask_deinit(dl_mask *mask)
{
    dl_buf_deinit(&mask->held);
}

/* The part of the text that is at hand. */
typedef enum match { NONE, BEGINS, WHOLE } match;

/* Does the text begin with a value, whose length is set, or may it do so with more bytes? */
static match match_at(size_t *len, const dl_mask *mask, const char *text, size_t n, bool last)
{
    if (!mask->begins[(unsigned char)*text]) return NONE;
    for (size_t i = 0; i < mask->n; i++) {
        *len = strlen(mask->values[i]);
        if (memcmp(text, mask->values[i], n < *len ? n : *len) != 0) continue;
        if (n >= *len) return WHOLE;
        if (!last) return BEGINS;
    }
    return NONE;
}

/* Bytes between values are copied together. */
diloco_status dl_mask_add(dl_mask *mask, dl_buf *out, const void *bytes, size_t n, bool last)
{
    size_t at = 0, copied = 0, len = 0;
    match found = NONE;
    DL_TRY(dl_buf_add(&mask->held, bytes, n));
    const char *text = (const char *)mask->held.data;
    const size_t all = mask->held.len;
    while (at < all) {
        found = match_at(&len, mask, text + at, all - at, last);
        if (found == BEGINS) break;
        if (found == WHOLE) {
            DL_TRY(dl_buf_add(out, text + copied, at - copied));
            DL_TRY(dl_buf_add(out, "***", 3));
            copied = at + len;
        }
        at += found == WHOLE ? len : 1;
    }
    DL_TRY(dl_buf_add(out, text + copied, at - copied));
    if (all > at) memmove(mask->held.data, text + at, all - at);
    mask->held.len = all - at;
    return DILOCO_OK;
}
