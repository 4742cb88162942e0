/* snapshot_fuzz.c - an untrusted manifest of a snapshot: it is believed only where all of it fits,
 * and then the state is the one it was written from. The input is put as it is and with a seal. */
#include "state/state.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char manifest_key[] = "snap/0000000003/r0.0000/manifest.json";
static const diloco_tensor tensors[] = {{"w", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {9}, 0}};
static dl_runfile run;
static dl_state state;
static dl_store *store;

static void set_up(void)
{
    const dl_generation generation = {"r0", 0};
    strcpy(run.id, "0123456789abcdef0123456789abcdef");
    dl_config_init(&run.config);
    if (dl_manifest_init(&run.manifest, tensors, 1, false) ||
        dl_state_init(&state, &run.manifest, dl_outer_find("nesterov"), 4, 1, 1) ||
        dl_store_open(&store, "mem://snapshots", true))
        abort();
    dl_state_rehash(&state, NULL);
    state.control.entry = 3;
    if (dl_snapshot_write(NULL, store, &state, &run, &generation, NULL, DL_NEVER)) abort();
}

static void check(const void *text, size_t len)
{
    const dl_generation generation = {"r0", 0};
    if (dl_store_delete(store, manifest_key, DL_NEVER) ||
        dl_store_create(store, manifest_key, &(dl_span){text, len}, 1, NULL, DL_NEVER))
        abort();
    (void)!dl_snapshot_verify(store, 3, &generation, &run, DL_NEVER);
    /* There is no log here, so nothing that is written of an entry can fit it. */
    if (!dl_snapshot_read_newest(&state, store, &run, (dl_hash){{0}}, UINT64_MAX, NULL, DL_NEVER))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_buf sealed;
    char hex[DL_HASH_HEX + 1];
    if (!store) set_up();
    check(data, size);
    dl_buf_init(&sealed, DL_RUNFILE_MAX);
    dl_hash_to_hex(hex, dl_hash_bytes(data, size));
    if (dl_buf_add(&sealed, data, size) || dl_buf_addf(&sealed, ",\"check\":\"%s\"}\n", hex))
        abort();
    check(sealed.data, sealed.len);
    dl_buf_deinit(&sealed);
    return 0;
}
