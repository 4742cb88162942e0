/* file_alloc_test.c - once every buffer has its size, the folder store allocates nothing:
 * a sync must not (docs/architecture.md). A program of its own, for it replaces malloc. */
#include "store/kind.h"

#include "check.h"
#include "count_alloc.h"
#include "store_suite.h"

static diloco_status count_keys(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    ++*(size_t *)context;
    return DILOCO_OK;
}

/* The work of replicas in one round, with all names and sizes as long as in any other. */
static diloco_status one_round(dl_store *store, unsigned round, dl_buf *buf, const dl_span *spans)
{
    char folder[64], key[96];
    const char *prefixes[] = {folder, "log/"};
    size_t n = 0;
    snprintf(folder, sizeof folder, "c/%010u/", round);
    for (unsigned r = 0; r < 20; r++) {
        snprintf(key, sizeof key, "%sreplica-%02u.0", folder, r);
        DL_TRY(dl_store_create(store, key, spans, 2, NULL, DL_NEVER));
        DL_TRY(dl_store_create(store, key, spans, 2, NULL, DL_NEVER)); /* compares */
        dl_buf_clear(buf);
        DL_TRY(dl_store_get(store, buf, key, DL_NEVER));
    }
    snprintf(key, sizeof key, "log/%010u.json", round);
    DL_TRY(dl_store_create(store, key, spans, 1, NULL, DL_NEVER));
    DL_TRY(dl_store_put(store, "hb/replica-00.0", spans[0].data, spans[0].len, DL_NEVER));
    DL_TRY(dl_store_list(store, "c/", NULL, count_keys, &n, DL_NEVER));
    if (n != 20) return dl_fail(DILOCO_EPROTO, "%zu keys listed of 20", n);
    DL_TRY(dl_store_wait(store, prefixes, 2, true, DL_NEVER));
    DL_TRY(dl_store_wait(store, prefixes, 2, true, DL_NEVER));
    for (unsigned r = 0; r < 20; r++) {
        snprintf(key, sizeof key, "%sreplica-%02u.0", folder, r);
        DL_TRY(dl_store_delete(store, key, DL_NEVER));
    }
    return DILOCO_OK;
}

TEST(after_the_first_round_nothing_is_allocated)
{
    static unsigned char bytes[100000];
    dl_span spans[] = {{bytes, 200}, {bytes, sizeof bytes}};
    char path[512];
    dl_store *store;
    dl_buf buf;
    if (!count_alloc_works()) {
        print_message("left out: allocations cannot be counted under a sanitizer\n");
        skip();
    }
    store_make_folder(path);
    dl_buf_init(&buf, 200 + sizeof bytes);
    CHECK_OK(dl_store_open(&store, path, true));
    CHECK_OK(one_round(store, 1, &buf, spans));

    size_t before = count_alloc();
    diloco_status status = DILOCO_OK;
    for (unsigned round = 2; round < 5 && !status; round++)
        status = one_round(store, round, &buf, spans);
    size_t calls = count_alloc() - before;
    CHECK_STATUS(DILOCO_OK, status);
    CHECK_INT(0, calls);

    dl_buf_deinit(&buf);
    dl_store_close(store);
    store_remove_folder(path);
}

TEST_MAIN(after_the_first_round_nothing_is_allocated)
