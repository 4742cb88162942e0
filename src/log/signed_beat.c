/* signed_beat.c - see signed_beat.h. */
#include "log/signed_beat.h"

#include "log/fields.h"

#include <string.h>

const dl_heartbeat_kind dl_heartbeat_alive = {"diloco-heartbeat", "heartbeat"};
const dl_heartbeat_kind dl_heartbeat_ended = {"diloco-end", "end"};

static dl_statement statement_of(const dl_heartbeat_kind *kind, const char *run,
                                 const dl_generation *generation)
{
    return (dl_statement){.kind = kind->kind, .run = run, .generation = generation};
}

void dl_heartbeat_begin(dl_heartbeat_writer *w, dl_buf *text, const dl_heartbeat_kind *kind,
                        const dl_signer *signer, const char *run, const dl_generation *generation)
{
    *w = (dl_heartbeat_writer){
        .text = text, .kind = kind, .signer = signer, .run = run, .generation = generation};
    dl_buf_clear(text);
    if (signer) {
        dl_sealed_begin(&w->json, &w->start, text, kind->format);
    } else {
        dl_json_init(&w->json, text);
        dl_json_object(&w->json, NULL);
    }
    dl_json_str(&w->json, "replica", generation->replica);
    dl_json_u64(&w->json, "generation", generation->number);
}

diloco_status dl_heartbeat_end(dl_heartbeat_writer *w)
{
    const dl_statement what = statement_of(w->kind, w->run, w->generation);
    if (w->signer) {
        DL_TRY(dl_sealed_end(&w->json, w->start));
        return dl_sealed_sign(w->text, w->start, w->signer, &what);
    }
    dl_json_end(&w->json);
    return dl_json_done(&w->json);
}

bool dl_heartbeat_read(dl_json_value *out, const dl_buf *text, const dl_heartbeat_kind *kind,
                       const dl_public *key, const char *run, const dl_generation *generation)
{
    dl_public signer;
    const dl_statement what = statement_of(kind, run, generation);
    return !dl_sealed_open(out, text->data, text->len, kind->format) &&
           !dl_sealed_signer(&signer, text->data, text->len, &what) &&
           dl_public_equal(&signer, key);
}
