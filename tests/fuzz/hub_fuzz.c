/* hub_fuzz.c - the own parsers of the hub and its client: targets, ranges, aws-chunked
 * framing, claims of signatures, server-sent events. The first byte of the input picks one. */
#include "hub/chunks.h"
#include "hub/s3_claim.h"
#include "store/http/sse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_target(const char *text)
{
    static dl_target t;
    dl_hub_s3_claim claim;
    uint64_t begin, n;
    if (dl_target_parse(&t, text)) return;
    if (t.path[0] != '/' || t.n_params > DL_TARGET_PARAMS) abort();
    for (size_t i = 0; i < t.n_params; i++)
        if (!dl_target_has(&t, t.params[i].name)) abort();
    if (dl_hub_s3_claim_query(&claim, &t) && !dl_hub_s3_claim_signs(&claim, "host")) abort();
    if (dl_range_parse(&begin, &n, dl_target_param(&t, "range"), 1000) == DL_RANGE_PART &&
        (n == 0 || begin + n > 1000))
        abort();
}

static void check_range(const char *text, uint64_t len)
{
    uint64_t begin, n;
    if (dl_range_parse(&begin, &n, text, len) != DL_RANGE_BEYOND &&
        (begin > len || n > len - begin))
        abort();
}

static void check_claim(const char *text)
{
    dl_hub_s3_claim c;
    (void)dl_hub_s3_seconds(text);
    if (!dl_hub_s3_claim_header(&c, text)) return;
    if (strcmp(c.service, "s3") != 0 || c.n_headers == 0 || c.n_headers > DL_SIGV4_PAIRS) abort();
}

static diloco_status add_up(void *context, const void *bytes, size_t len)
{
    (void)bytes;
    *(size_t *)context += len;
    return DILOCO_OK;
}

/* However it is cut, the same comes out. */
static void check_chunks(const char *text, size_t len, size_t piece)
{
    dl_chunks whole = {0}, cut = {0};
    size_t of_whole = 0, of_cut = 0;
    diloco_status a = dl_chunks_add(&whole, text, len, add_up, &of_whole), b = DILOCO_OK;
    for (size_t at = 0; at < len && !b; at += piece)
        b = dl_chunks_add(&cut, text + at, len - at < piece ? len - at : piece, add_up, &of_cut);
    if (a != b || of_whole != of_cut || of_whole > len) abort();
    if (!a && dl_chunks_end(&whole) != dl_chunks_end(&cut)) abort();
}

static void count_event(void *context, const char *event, const char *text)
{
    if (strlen(event) >= DL_SSE_NAME || strlen(text) >= DL_SSE_LINE) abort();
    ++*(size_t *)context;
}

static void check_events(const char *text, size_t len, size_t piece)
{
    static dl_sse whole, cut;
    size_t of_whole = 0, of_cut = 0;
    memset(&whole, 0, sizeof whole), memset(&cut, 0, sizeof cut);
    dl_sse_add(&whole, text, len, count_event, &of_whole);
    for (size_t at = 0; at < len; at += piece)
        dl_sse_add(&cut, text + at, len - at < piece ? len - at : piece, count_event, &of_cut);
    if (of_whole != of_cut) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    size_t len = size - 2, piece = 1u + data[1] % 16u;
    char *text = malloc(len + 1);
    if (!text) return 0;
    memcpy(text, data + 2, len);
    text[len] = '\0';
    if (data[0] % 5 == 0) check_target(text);
    if (data[0] % 5 == 1) check_range(text, piece);
    if (data[0] % 5 == 2) check_claim(text);
    if (data[0] % 5 == 3) check_chunks(text, len, piece);
    if (data[0] % 5 == 4) check_events(text, len, piece);
    free(text);
    return 0;
}
