/* faulty.c - a store that misbehaves on purpose, from a seed, around one that does not.
 *
 * Every call but wait draws its whole fate before it does anything, always with the same number of
 * draws. So the k-th call of a handle has the same fate whatever the earlier calls were, and a
 * failing seed replays. */
#include "store/kind.h"

#include "base/rng.h"
#include "store/store.h"

typedef struct faulty_store {
    dl_store *inner; /* owned */
    dl_faults faults;
    dl_rng rng;
    const atomic_bool *aborted;
} faulty_store;

typedef struct fate {
    bool before, after, truncate, flip;
    double cut; /* the remaining share of a truncated object, in [0, 1) of its length */
    double at;  /* which byte is flipped, likewise */
    int bit;
} fate;

/* ---- fate */

static diloco_status unreachable(const faulty_store *f, const char *key, const char *when)
{
    return dl_fail(DILOCO_EUNREACHABLE, "%s in %s: unreachable %s the effect, by fault injection",
                   key, dl_store_url(f->inner), when);
}

/* Draws all numbers in a fixed order before any of them is used. Returns the failure before the
 * effect, if one was drawn. */
static diloco_status draw(faulty_store *f, fate *out, const char *key, dl_time until)
{
    const dl_faults *p = &f->faults;
    bool delay = dl_rng_f64(&f->rng) < p->p_delay;
    out->before = dl_rng_f64(&f->rng) < p->p_unreachable_before;
    out->after = dl_rng_f64(&f->rng) < p->p_unreachable_after;
    out->truncate = dl_rng_f64(&f->rng) < p->p_truncate;
    out->flip = dl_rng_f64(&f->rng) < p->p_flip;
    out->cut = dl_rng_f64(&f->rng);
    out->at = dl_rng_f64(&f->rng);
    out->bit = (int)dl_rng_below(&f->rng, 8);

    if (delay) {
        dl_time later = dl_time_after(dl_clock_now(), dl_time_from_seconds(p->delay_s));
        diloco_status status = dl_store_sleep(f->aborted, later < until ? later : until);
        if (status != DILOCO_ETIMEDOUT || later >= until) return status;
    }
    return out->before ? unreachable(f, key, "before") : DILOCO_OK;
}

/* A fault after the effect is one whose outcome the caller cannot know. */
static diloco_status finish(const faulty_store *f, const fate *drawn, const char *key,
                            diloco_status status)
{
    return !status && drawn->after ? unreachable(f, key, "after") : status;
}

/* ---- writing */

/* A store without conditional writes: the spans replace what is there. */
static diloco_status overwrite(faulty_store *f, const char *key, const dl_span *spans,
                               size_t n_spans, dl_time until)
{
    dl_buf whole;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&whole, SIZE_MAX / 2);
    for (size_t i = 0; i < n_spans && !status; i++)
        status = dl_buf_add(&whole, spans[i].data, spans[i].len);
    if (!status) status = dl_store_put(f->inner, key, whole.data, whole.len, until);
    dl_buf_deinit(&whole);
    return status;
}

static diloco_status faulty_create(void *self, const char *key, const dl_span *spans,
                                   size_t n_spans, bool *taken, dl_time until)
{
    faulty_store *f = self;
    fate drawn;
    DL_TRY(draw(f, &drawn, key, until));
    diloco_status status;
    if (f->faults.win_every_create) {
        status = overwrite(f, key, spans, n_spans, until);
    } else {
        status = dl_store_claim(f->inner, key, spans, n_spans, taken, until);
    }
    return finish(f, &drawn, key, status);
}

static diloco_status faulty_put(void *self, const char *key, const void *data, size_t len,
                                dl_time until)
{
    faulty_store *f = self;
    fate drawn;
    DL_TRY(draw(f, &drawn, key, until));
    return finish(f, &drawn, key, dl_store_put(f->inner, key, data, len, until));
}

static diloco_status faulty_remove(void *self, const char *key, dl_time until)
{
    faulty_store *f = self;
    fate drawn;
    DL_TRY(draw(f, &drawn, key, until));
    return finish(f, &drawn, key, dl_store_delete(f->inner, key, until));
}

/* ---- reading */

/* Between the inner store and the sink: shortens and flips. */
typedef struct spoiler {
    dl_sink sink;
    fate drawn;
    size_t len, seen; /* of the object as it is shown; bytes that came from the inner one */
    size_t flip_at;   /* SIZE_MAX: nowhere */
} spoiler;

/* A truncated object announces its shorter length, as a store that lost its end would. */
static diloco_status spoil_begin(void *context, size_t len)
{
    spoiler *s = context;
    s->len = s->drawn.truncate ? (size_t)(s->drawn.cut * (double)len) : len;
    s->flip_at = s->drawn.flip && s->len ? (size_t)(s->drawn.at * (double)s->len) : SIZE_MAX;
    return s->sink.begin(s->sink.context, s->len);
}

/* Cuts the piece at the shown length, and flips one bit of one byte. */
static diloco_status spoil_piece(void *context, const void *data, size_t len)
{
    spoiler *s = context;
    const unsigned char *at = data;
    size_t begin = s->seen;
    s->seen += len;
    if (begin >= s->len) return DILOCO_OK; /* cut off */
    len = dl_size_min(len, s->len - begin);
    if (s->flip_at < begin || s->flip_at >= begin + len)
        return s->sink.piece(s->sink.context, at, len);

    size_t head = s->flip_at - begin;
    unsigned char flipped = (unsigned char)(at[head] ^ (1u << s->drawn.bit));
    if (head) DL_TRY(s->sink.piece(s->sink.context, at, head));
    DL_TRY(s->sink.piece(s->sink.context, &flipped, 1));
    return head + 1 < len ? s->sink.piece(s->sink.context, at + head + 1, len - head - 1)
                          : DILOCO_OK;
}

static diloco_status faulty_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    faulty_store *f = self;
    spoiler s = {.sink = sink};
    dl_sink spoiling = {.context = &s, .begin = spoil_begin, .piece = spoil_piece};
    DL_TRY(draw(f, &s.drawn, key, until));
    return finish(f, &s.drawn, key, dl_store_read(f->inner, key, spoiling, until));
}

static diloco_status faulty_list(void *self, const char *prefix, const char *after,
                                 dl_found_fn found, void *context, dl_time until)
{
    faulty_store *f = self;
    fate drawn;
    DL_TRY(draw(f, &drawn, prefix, until));
    return finish(f, &drawn, prefix,
                  dl_store_list_unchecked(f->inner, prefix, after, found, context, until));
}

/* ---- the rest is passed through */

static diloco_status faulty_wait(void *self, const char *const *prefixes, size_t n, dl_time until)
{
    return dl_store_await(((faulty_store *)self)->inner, prefixes, n, until);
}

static void faulty_abort(void *self)
{
    dl_store_abort(((faulty_store *)self)->inner);
}
static void faulty_close(void *self)
{
    dl_store_close(((faulty_store *)self)->inner);
}

static bool faulty_vouches(const void *self)
{
    return ((const faulty_store *)self)->faults.vouch;
}

static const dl_store_kind faulty = {
    .scheme = "faulty", /* has no row in store.c: no url opens it */
    .size = sizeof(faulty_store),
    .close = faulty_close,
    .create = faulty_create,
    .put = faulty_put,
    .read = faulty_read,
    .list = faulty_list,
    .remove = faulty_remove,
    .vouches = faulty_vouches,
    .wait = faulty_wait,
    .abort = faulty_abort,
};

diloco_status dl_store_faulty(dl_store **out, dl_store *inner, dl_faults faults)
{
    void *self;
    const atomic_bool *aborted;
    diloco_status status = dl_store_wrap(out, &faulty, dl_store_url(inner), &self, &aborted);
    if (status) {
        dl_store_close(inner);
        return status;
    }
    faulty_store *f = self;
    dl_store_look_like(*out, inner);
    f->inner = inner;
    f->faults = faults;
    f->aborted = aborted;
    dl_rng_init(&f->rng, faults.seed, DL_STREAM(DL_STREAM_TEST, 0), 0);
    return DILOCO_OK;
}
