/* json_fuzz.c - a text that parses is walked whole, written again, and what was written
 * must parse to the same. */
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *string_of(dl_json_value value)
{
    size_t cap = (size_t)(value.end - value.at); /* decoded it is never longer */
    char *text = malloc(cap);
    if (text && dl_json_as_str(text, cap, value)) strcpy(text, ""); /* it has a zero byte */
    return text;
}

static void write_again(dl_json *j, const char *key, dl_json_value value)
{
    double x;
    uint64_t u;
    char *text;
    switch (value.type) {
    case DL_JSON_MISSING:
        abort();
    case DL_JSON_NULL:
        dl_json_null(j, key);
        return;
    case DL_JSON_BOOL:
        dl_json_bool(j, key, *value.at == 't');
        return;
    case DL_JSON_NUMBER:
        if (!dl_json_as_u64(&u, value, UINT64_MAX))
            dl_json_u64(j, key, u);
        else if (!dl_json_as_f64(&x, value))
            dl_json_f64(j, key, x);
        else
            dl_json_null(j, key);
        return;
    case DL_JSON_STRING:
        dl_json_str(j, key, text = string_of(value));
        free(text);
        return;
    case DL_JSON_ARRAY:
        dl_json_array(j, key);
        break;
    case DL_JSON_OBJECT:
        dl_json_object(j, key);
        break;
    }
    size_t n = 0;
    for (dl_json_iter it = dl_json_each(value); dl_json_next(&it); n++) {
        char name[32]; /* keys may hold zero bytes: numbered instead, so that none is there twice */
        snprintf(name, sizeof name, "%zu", n);
        if (it.index != n || (it.key.type == DL_JSON_STRING) != it.object) abort();
        write_again(j, it.object ? name : NULL, it.value);
    }
    if (n != dl_json_count(value)) abort();
    dl_json_end(j);
}

static int same(dl_json_value a, dl_json_value b)
{
    if (a.type != b.type) return a.type == DL_JSON_NUMBER && b.type == DL_JSON_NULL;
    dl_json_iter x = dl_json_each(a), y = dl_json_each(b);
    for (;;) {
        int more = dl_json_next(&x);
        if (more != dl_json_next(&y)) return 0;
        if (!more) return 1;
        if (!same(x.value, y.value)) return 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_json_value value, again;
    dl_json j;
    dl_buf buf;
    if (dl_json_parse(&value, data, size)) {
        if (!*diloco_error_text()) abort();
        return 0;
    }
    if (value.at < (const char *)data || value.end > (const char *)data + size) abort();
    for (dl_json_iter it = dl_json_each(value); dl_json_next(&it);) {
        char *key = it.object ? string_of(it.key) : NULL;
        if (key && *key && dl_json_get(value, key).at != it.value.at) abort();
        free(key);
    }
    dl_buf_init(&buf, 64 * size + 64);
    dl_json_init(&j, &buf);
    write_again(&j, NULL, value);
    if (dl_json_done(&j) || dl_json_parse(&again, buf.data, buf.len) || !same(value, again))
        abort();
    dl_buf_deinit(&buf);
    return 0;
}
