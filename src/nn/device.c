/* device.c - opens the CPU's backend, or a card after a self-test of all kernels on it (device.h).
 * A wrong result of one kernel would train a wrong model without any other sign, so the test comes
 * before the first step. It takes a moment, hence a card that passed is remembered. */
#include "nn/device.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/sized.h"
#include "nn/cuda/device_code.h"
#include "nn/cuda/device_speed.h"
#include "nn/cuda/self_test/self_tests.h"
#include "tensor/cuda/backend_cuda.h"
#include <diloco/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 512 }; /* bytes of a key, and of a folder's path */

/* ---- the results of cards that passed: a file each, which holds its key */

/* Writes the text that has to be equal for an earlier result to count. It includes the digest of
 * the device code and the version of the library of products: a new one is tested again. Returns
 * false if it does not fit. */
static bool key_of(char key[KEY], const dl_cuda_card *card, const dl_span *images, size_t n)
{
    char hex[DL_HASH_HEX + 1], uuid[DL_HASH_HEX + 1];
    dl_hash codes[DL_CUDA_MAX_IMAGES], id;
    for (size_t i = 0; i < n; i++)
        codes[i] = dl_hash_bytes(images[i].data, images[i].len);
    dl_hash_to_hex(hex, dl_hash_bytes(codes, n * sizeof codes[0]));
    memcpy(id.bytes, card->uuid, sizeof id.bytes);
    dl_hash_to_hex(uuid, id);
    const int len = snprintf(
        key, KEY, "passed: driver %d, card %s %s, products %llu, code %s, diloco %s\n",
        card->driver, card->name, uuid, (unsigned long long)card->products, hex, DILOCO_VERSION);
    return len > 0 && len < KEY;
}

/* The folder of results, in `out`. Returns false if the user has none. */
static bool folder_of(char out[KEY])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(out, KEY, "%s/diloco/devices", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, KEY, "%s/.cache/diloco/devices", home);
    return n > 0 && n < KEY;
}

/* The file's name is the digest of its key. */
static bool path_of(char out[2 * KEY], const char *folder, const char *key)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, dl_hash_bytes(key, strlen(key)));
    return snprintf(out, 2 * KEY, "%s/%s", folder, hex) > 0;
}

/* Compares the whole key, so that a damaged file does not count as a pass. */
static bool has_passed(const char *key)
{
    char folder[KEY], path[2 * KEY];
    dl_buf text;
    dl_buf_init(&text, KEY);
    const bool found = folder_of(folder) && path_of(path, folder, key) &&
                       dl_file_read(&text, path) == DILOCO_OK && text.len == strlen(key) &&
                       memcmp(text.data, key, text.len) == 0;
    dl_buf_deinit(&text);
    return found;
}

/* A folder that cannot be written costs a self-test at the next start, and nothing else. */
static void keep_passed(const char *key)
{
    char folder[KEY], path[2 * KEY];
    const dl_span text = {key, strlen(key)};
    if (!folder_of(folder) || !path_of(path, folder, key) || dl_dir_make(folder)) return;
    const diloco_status ignored = dl_file_write(path, &text, 1);
    (void)ignored;
}

/* ---- a card */

/* Runs the self-test unless this card has passed it. With `seconds` it runs in any case, and
 * *seconds is its duration. */
static diloco_status test(dl_backend *backend, const dl_cuda_card *card, const dl_span *images,
                          size_t n, double *seconds)
{
    char key[KEY];
    const bool has_key = key_of(key, card, images, n);
    if (!seconds && has_key && has_passed(key)) return DILOCO_OK;
    const dl_time began = dl_clock_now();
    DL_TRY(dl_cuda_self_test(backend));
    if (seconds) *seconds = dl_seconds(dl_clock_now() - began);
    if (has_key) keep_passed(key);
    return DILOCO_OK;
}

/* Fills *card as soon as it is known, also if the self-test fails. `seconds` is that of test().
 * images is on the stack: it is borrowed by dl_backend_cuda only until the modules are loaded. */
static diloco_status open_card(dl_backend **out, dl_cuda_card *card, int index, double *seconds)
{
    dl_span images[DL_CUDA_MAX_IMAGES];
    dl_backend *backend;
    static const char *const products[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    dl_cuda_source source = {.name = "cuda",
                             .library = "libcuda.so.1",
                             .images = images,
                             .products = products,
                             .collectives = "libnccl.so.2",
                             .oldest = DL_DEVICE_CODE_OLDEST};
    source.n_images = dl_device_code(images, DL_CUDA_MAX_IMAGES);
    *out = NULL;
    DL_TRY(dl_backend_cuda(&backend, &source, index));
    diloco_status status = dl_backend_cuda_card(card, backend);
    if (!status) status = test(backend, card, images, source.n_images, seconds);
    if (status)
        dl_backend_destroy(backend);
    else
        *out = backend;
    return status;
}

/* ---- the public functions */

diloco_status dl_device_open(dl_backend **out, const char *device, size_t rank)
{
    dl_device_list list;
    dl_cuda_card card;
    *out = NULL;
    DL_TRY(dl_device_of_name(&list, device));
    DL_ASSERT(rank < list.n);
    if (list.kind == DL_DEVICE_CPU) return dl_backend_create(out, "cpu");
    return open_card(out, &card, list.cards[rank], NULL);
}

/* Tests a card in any case, and reports which card it is even if it fails. The speed is that of
 * kernels whose results are right. */
static diloco_status check_card(diloco_device_report *out, int index)
{
    dl_backend *backend;
    dl_cuda_card card = {.driver = 0};
    *out = (diloco_device_report){.driver = 0};
    const diloco_status status = open_card(&backend, &card, index, &out->self_test_seconds);
    memcpy(out->card, card.name, sizeof out->card);
    out->memory = card.memory;
    out->driver = card.driver;
    out->capability = card.capability;
    if (status) return status;
    while (dl_cuda_self_test_kernel((size_t)out->kernels))
        out->kernels++;
    dl_device_speed speed;
    const diloco_status measured = dl_cuda_measure(&speed, backend);
    out->product_flops = speed.product_flops;
    out->bf16_product_flops = speed.bf16_product_flops;
    out->copy_bytes = speed.copy_bytes;
    dl_backend_destroy(backend);
    return measured;
}

/* Checks the cards of a name, the first one last: the report is of it, or of one that fails. */
static diloco_status check_cards(diloco_device_report *out, const char *device)
{
    dl_device_list list;
    DL_TRY(dl_device_of_name(&list, device));
    if (list.kind == DL_DEVICE_CPU) return dl_fail(DILOCO_EINVAL, "the CPU has no card to check");
    for (size_t i = list.n; i-- > 0;)
        DL_TRY(check_card(out, list.cards[i]));
    return DILOCO_OK;
}

diloco_status diloco_device_check_sized(diloco_device_report *out, size_t size, const char *device)
{
    diloco_device_report report = {.driver = 0};
    const diloco_status status = check_cards(&report, device);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}
