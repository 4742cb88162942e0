/* loop_fuzz.c - the outer state of a loop: whatever bytes it is to be loaded from, it is loaded, or
 * refused with all as it was. The bytes as they are; and as the facts of a state that is right in
 * everything else, since a digest is not guessed. */
#include "base/hash.h"
#include "base/safetensors.h"
#include "loop/loop.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 3 };

static diloco_status all_reduce(void *user, const diloco_reduce *reduce, void **handle)
{
    (void)user, (void)reduce, (void)handle;
    return DILOCO_OK;
}

static diloco_status wait_for(void *user, void *handle)
{
    (void)user, (void)handle;
    return DILOCO_OK;
}

static void must(diloco_status status)
{
    if (status) abort();
}

static diloco_loop *make_loop(void)
{
    static float w[N] = {1, 2, 3};
    diloco_loop *loop;
    diloco_communicator c = {.size = sizeof c, .all_reduce = all_reduce, .wait = wait_for};
    diloco_loop_options options = {.size = sizeof options, .sync_every = 4, .n_threads = 1};
    diloco_tensor t = {.name = "w", .data = w, .n_dims = 1, .shape = {N}};
    must(diloco_loop_create(&loop, &options, &c));
    must(diloco_loop_tensor(loop, &t));
    must(diloco_loop_start(loop));
    return loop;
}

static void check(diloco_loop *loop, const void *bytes, size_t len)
{
    char before[33], after[33];
    must(diloco_loop_digest(loop, before));
    if (!dl_loop_load_image(loop, bytes, len)) {
        if (loop->step >= loop->interval) abort();
        return;
    }
    must(diloco_loop_digest(loop, after));
    if (memcmp(before, after, sizeof before) != 0) abort();
}

/* A state whose facts these are, right in everything else; `facts` is a C string of UTF-8 or is
 * refused by the writer. */
static void check_facts(diloco_loop *loop, const char *facts)
{
    static const float values[2 * N] = {4, 5, 6};
    char digest[DL_HASH_HEX + 1];
    dl_buf block;
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    dl_digest_add(&stream, facts, strlen(facts));
    dl_digest_add(&stream, values, sizeof values);
    dl_hash_to_hex(digest, dl_digest_end(&stream));
    dl_st_tensor tensors[] = {{.name = "theta.w", .dtype = "F32", .n_dims = 1, .shape = {N}},
                              {.name = "momentum.w", .dtype = "F32", .n_dims = 1, .shape = {N}}};
    const dl_st_meta meta[] = {{"format", "diloco-loop-1"}, {"facts", facts}, {"digest", digest}};
    dl_buf_init(&block, 1 << 20);
    if (!dl_st_header(&block, tensors, 2, meta, 3) && !dl_buf_add(&block, values, sizeof values))
        check(loop, block.data, block.len);
    dl_buf_deinit(&block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static diloco_loop *loop;
    static const char right[] =
        "{\"outer\":\"nesterov\",\"sync_every\":4,\"step\":1,\"commits\":[2]}";
    if (!loop) {
        loop = make_loop();
        check_facts(loop, right);
        if (loop->step != 1 || loop->commits != 2) abort(); /* this is a state */
    }
    check(loop, data, size);
    char *facts = malloc(size + 1);
    if (!facts) abort();
    memcpy(facts, data, size);
    facts[size] = 0;
    check_facts(loop, facts);
    free(facts);
    return 0;
}
