/* identity_fuzz.c - texts that identify untrusted peers: invitations, keys, the membership
 * in run.json, signed objects. A text that reads writes to the same text; nothing without a
 * signature is believed. */
#include "log/fields.h"
#include "log/identity.h"
#include "log/invitation.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_key(const char *text, size_t len)
{
    dl_public key;
    char again[DL_PUBLIC_TEXT];
    if (!dl_public_parse(&key, text, len)) return;
    dl_public_text(again, &key);
    if (len != strlen(again) || memcmp(again, text, len) != 0) abort();
}

static void check_identity(const void *text, size_t len)
{
    dl_json_value root;
    dl_identity identity, same;
    dl_buf first, second;
    dl_json j;
    if (dl_json_parse(&root, text, len) || dl_identity_read(&identity, root)) return;
    dl_buf_init(&first, 1 << 22);
    dl_buf_init(&second, 1 << 22);
    for (int k = 0; k < 2; k++) {
        dl_buf *out = k ? &second : &first;
        dl_json_init(&j, out);
        dl_json_object(&j, NULL);
        dl_identity_write(&j, k ? &same : &identity);
        dl_json_end(&j);
        if (dl_json_done(&j)) abort();
        if (!k && (dl_json_parse(&root, out->data, out->len) || dl_identity_read(&same, root)))
            abort();
    }
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0) abort();
    dl_identity_deinit(&identity);
    dl_identity_deinit(&same);
    dl_buf_deinit(&first);
    dl_buf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char run[] = "0123456789abcdef0123456789abcdef";
    const dl_statement what = {.kind = "entry", .run = run};
    dl_invitation invitation;
    dl_public key;
    const char *text = (const char *)data;
    /* A signature of chance would be a discovery. */
    if (!dl_invitation_read(&invitation, text, size)) abort();
    if (!dl_sealed_signer(&key, data, size, &what)) abort();
    check_key(text, size);
    check_identity(data, size);
    return 0;
}
