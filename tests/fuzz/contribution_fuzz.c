/* contribution_fuzz.c - a contribution's header: one that reads must write to the same bytes,
 * and a whole object is fetched or refused, never half. Half of the inputs are sealed first,
 * or no input would come past the seal. */
#include "log/contribution.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEAL_AT = DL_CONTRIBUTION_HEADER - 16, MOST = 4096 };

static void seal(unsigned char *header)
{
    static const unsigned char start[16] = "DLCONTR1\1\0\0\0\0\2\0";
    memcpy(header, start, sizeof start);
    dl_hash hash = dl_hash_bytes(header, SEAL_AT);
    memcpy(header + SEAL_AT, hash.bytes, sizeof hash.bytes);
}

/* Expect the header's own values, so that the reader continues to sizes and body. */
static void fetch(const unsigned char *object, size_t size, const dl_contribution *told,
                  const dl_public *key)
{
    static const diloco_tensor tensors[] = {{"w", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {9}, 0},
                                            {"n", NULL, DILOCO_I64, DILOCO_BUFFER, 1, {1}, 0},
                                            {"b", NULL, DILOCO_BOOL, DILOCO_BUFFER, 1, {2}, 0}};
    static dl_config config;
    static dl_packer *packer;
    dl_manifest manifest;
    dl_codec_form form;
    dl_store *store;
    dl_slot *slot;
    dl_contribution facts = {.entry = 0};
    dl_contribution_data got = {.len = 0};
    const char *reason;
    dl_config_init(&config);
    if (dl_manifest_init(&manifest, tensors, 3, false) ||
        dl_codec_form_init(&form, &config, &manifest, 0) ||
        dl_store_open(&store, "mem://fuzz", true))
        abort();
    if (!packer && dl_packer_create(&packer)) abort();
    dl_contribution_expect expect = {.run = told->run,
                                     .entry = told->entry,
                                     .generation = told->generation,
                                     .base = told->base,
                                     .also_base = told->base,
                                     .manifest = told->manifest,
                                     .shape = manifest.fragments[0],
                                     .form = &form,
                                     .key = key,
                                     .packer = told->packing ? packer : NULL,
                                     .bound = 100,
                                     .tensors = &manifest};
    if (dl_slot_create(&slot, dl_contribution_body_max(&form, expect.shape, expect.packer != NULL),
                       NULL))
        abort();
    if (dl_store_delete(store, "c/fuzz", DL_NEVER) ||
        dl_store_create(store, "c/fuzz", &(dl_span){object, size}, 1, NULL, DL_NEVER))
        abort();
    diloco_status status =
        dl_contribution_fetch(&facts, &got, &reason, slot, store, "c/fuzz", &expect, DL_NEVER);
    if (status && (*reason == 0 || got.len != 0)) abort();
    const size_t head = DL_CONTRIBUTION_HEADER + (key ? DL_CONTRIBUTION_PROOF : 0);
    if (!status && got.len != (told->packing ? told->unpacked_len : size - head - 10)) abort();
    dl_slot_destroy(slot);
    dl_store_close(store);
    dl_codec_form_deinit(&form);
    dl_manifest_deinit(&manifest);
}

/* The same body, signed, for the reader. */
static void fetch_signed(const unsigned char *object, size_t size, const dl_contribution *told)
{
    static dl_signer *signer;
    unsigned char with_proof[MOST + DL_CONTRIBUTION_PROOF];
    char path[] = "/tmp/diloco-fuzz-XXXXXX/key.pem";
    if (!DL_CRYPTO) return;
    if (!signer) {
        path[sizeof "/tmp/diloco-fuzz-XXXXXX" - 1] = '\0';
        if (!mkdtemp(path)) abort();
        path[sizeof "/tmp/diloco-fuzz-XXXXXX" - 1] = '/';
        if (dl_signer_make(path) || dl_signer_open(&signer, path) || unlink(path)) abort();
        path[sizeof "/tmp/diloco-fuzz-XXXXXX" - 1] = '\0';
        rmdir(path);
    }
    dl_contribution c = *told;
    unsigned char *body = with_proof + DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF;
    const dl_span span = {body, size - DL_CONTRIBUTION_HEADER};
    memcpy(body, object + DL_CONTRIBUTION_HEADER, span.len);
    if (dl_contribution_sign(with_proof, &c, signer, &span, 1)) abort();
    fetch(with_proof, size + DL_CONTRIBUTION_PROOF, &c, dl_signer_public(signer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char object[MOST], again[DL_CONTRIBUTION_HEADER];
    dl_contribution c;
    if (size == 0 || size > MOST) return 0;
    memcpy(object, data, size);
    if (size >= DL_CONTRIBUTION_HEADER && object[size - 1] & 1) seal(object);
    if (dl_contribution_read_header(&c, object, size)) return 0;
    dl_contribution_write_header(again, &c);
    if (memcmp(again, object, sizeof again) != 0) abort();
    fetch(object, size, &c, NULL);
    if (size > DL_CONTRIBUTION_HEADER) { /* and once with a body that fits */
        c.body = dl_digest_bytes(object + DL_CONTRIBUTION_HEADER, size - DL_CONTRIBUTION_HEADER);
        c.fragment = 0;
        c.n_floats = 9;
        c.n_integers = 1;
        c.n_booleans = 2;
        c.payload_len =
            size - DL_CONTRIBUTION_HEADER - (size > DL_CONTRIBUTION_HEADER + 10 ? 10 : 0);
        strcpy(c.codec, "f32");
        dl_contribution_write_header(object, &c);
        fetch(object, size, &c, NULL);
        fetch_signed(object, size, &c);
    }
    return 0;
}
