/* user_codec.c - see user_codec.h. This file does the work that the caller's functions need
 * not know: the control word, and no negative zero after decoding (PROTOCOL B2). A payload has no
 * ranges, so it is never cut. */
#include "codec/user_codec.h"

#include "base/own.h"
#include "base/sized.h"

#include <math.h>

#define BOUND_MAX (SIZE_MAX / 8) /* so that what is added for headers does not overflow */

static const diloco_user_codec *of(const dl_codec_form *form)
{
    return form->codec->context;
}

/* The caller's bound is asked once for each form. A bound of 0 bytes for some elements is refused
 * as a mistake. */
static diloco_status lay_out(dl_codec_form *form)
{
    const diloco_user_codec *u = of(form);
    form->bound = form->room = u->bound(u->user, form->n);
    if (form->bound <= BOUND_MAX && (form->n == 0 || form->bound)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "codec %s: bound is %zu bytes for %zu elements",
                   form->codec->name, form->bound, form->n);
}

/* The control word is set as for the codecs here, so the caller's arithmetic has the same bits
 * everywhere (PROTOCOL B1). */
static void encode(const dl_codec_form *form, unsigned char *out, size_t *len, const float *g)
{
    const diloco_user_codec *u = of(form);
    dl_fp_state saved = dl_fp_enter();
    *len = u->encode(u->user, out, g, form->n);
    dl_fp_leave(saved);
}

/* The length is compared first; the other bytes are judged by the caller's function, on which the
 * safety of its decode rests. */
static diloco_status check(const dl_codec_form *form, const unsigned char *payload, size_t len)
{
    const diloco_user_codec *u = of(form);
    if (len <= form->bound && u->check(u->user, payload, len, form->n)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "%zu bytes are no payload of codec %s for %zu elements", len,
                   form->codec->name, form->n);
}

/* The added zero makes a positive zero of a negative one. */
static void decode(const dl_codec_form *form, float *out, const unsigned char *payload, size_t len,
                   size_t first, size_t n)
{
    const diloco_user_codec *u = of(form);
    u->decode(u->user, out, payload, len, form->n, first, n);
    for (size_t i = 0; i < n; i++)
        out[i] += 0.0f;
}

/* All four functions are needed; without a check, a peer's bytes would reach decode unseen. */
diloco_status dl_codec_user_init(dl_codec_user *out, const diloco_user_codec *given)
{
    diloco_user_codec *u = &out->given;
    DL_TRY(dl_sized_in(u, sizeof *u, given, given->size, "diloco_user_codec"));
    DL_TRY(dl_own_name(out->name, "codec", u->name));
    u->name = out->name;
    if (!u->bound || !u->encode || !u->check || !u->decode)
        return dl_fail(DILOCO_EINVAL, "codec %s needs bound, encode, check and decode", out->name);
    out->row = (dl_codec){.name = out->name,
                          .summary = "the caller's own",
                          .lossy = u->lossy,
                          .sparse = u->sparse,
                          .width = 1,
                          .lay_out = lay_out,
                          .encode = encode,
                          .check = check,
                          .decode = decode,
                          .context = u};
    return DILOCO_OK;
}
