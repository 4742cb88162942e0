/* inner.c - the inner optimizers, as rows; what they share is here once.
 *
 * A step has two passes over the parameters. The first adds up the gradient's squares in
 * float64, a block of DL_BLOCK elements at a time, so that the sum is the same at any number
 * of threads, and writes norm and clip factor to backend memory. The second reads the factor there
 * and updates. A norm that is not finite makes the second pass do nothing.
 *
 *   clip   g *= clip / (norm + 1e-6) where norm > clip, as torch.nn.utils.clip_grad_norm_
 *   decay  p *= 1 - lr * weight_decay, matrices only, before the update
 *   adamw  m += (1 - b1)(g - m);  v = b2 v + (1 - b2) g^2;
 *          p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)      (arXiv:1711.05101)
 *   sgd    b = momentum b + g;  p -= lr b       as torch.optim.SGD but for the decoupled decay
 *
 * The arithmetic is torch.optim's: model/gpt_test.c takes ten steps beside it. */
#include "nn/inner.h"

#include "base/arena.h"
#include "tensor/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---------------------------------------------------------------------------- */

/* What an update needs beside the vectors; by value, so that it lies on the device. */
typedef struct hyper {
    float lr, keep; /* keep: 1 - lr * weight_decay */
    float clip_factor;
    float one_minus_beta1, beta2, one_minus_beta2, root_bc2, eps, step_size;
    float momentum;
} hyper;

static inline DL_BODY void adamw_body(float *restrict p, float *restrict m, float *restrict v,
                                      const float *restrict g, size_t n, const hyper *restrict h,
                                      float keep)
{
    float step = -h->step_size, b1 = h->one_minus_beta1, b2 = h->beta2, c2 = h->one_minus_beta2;
    float root = h->root_bc2, eps = h->eps, clip = h->clip_factor;
    for (size_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        m[i] += b1 * (x - m[i]);
        v[i] = b2 * v[i] + c2 * x * x;
        p[i] = p[i] * keep + step * (m[i] / (sqrtf(v[i]) / root + eps));
    }
}
DL_KERNEL(adamw_update,
          (float *p, float *m, float *v, const float *g, size_t n, const hyper *h, float keep),
          adamw_body(p, m, v, g, n, h, keep))

static inline DL_BODY void sgd_body(float *restrict p, const float *restrict g, size_t n,
                                    const hyper *restrict h, float keep)
{
    float lr = h->lr, clip = h->clip_factor;
    for (size_t i = 0; i < n; i++)
        p[i] = p[i] * keep - lr * (g[i] * clip);
}
DL_KERNEL(sgd_update, (float *p, const float *g, size_t n, const hyper *h, float keep),
          sgd_body(p, g, n, h, keep))

static inline DL_BODY void momentum_body(float *restrict p, float *restrict b,
                                         const float *restrict g, size_t n, const hyper *restrict h,
                                         float keep)
{
    float lr = h->lr, clip = h->clip_factor, mu = h->momentum;
    for (size_t i = 0; i < n; i++) {
        b[i] = mu * b[i] + g[i] * clip;
        p[i] = p[i] * keep - lr * b[i];
    }
}
DL_KERNEL(momentum_update,
          (float *p, float *b, const float *g, size_t n, const hyper *h, float keep),
          momentum_body(p, b, g, n, h, keep))

enum { MAX_VECTORS = 2 };

/* Update n elements of p from their gradient; vectors[] begin at the same element. */
typedef void (*update_fn)(float *p, float *const vectors[], const float *g, size_t n,
                          const hyper *h, float keep);

static void adamw(float *p, float *const vectors[], const float *g, size_t n, const hyper *h,
                  float keep)
{
    adamw_update[dl_isa_chosen()](p, vectors[0], vectors[1], g, n, h, keep);
}
static void sgd(float *p, float *const vectors[], const float *g, size_t n, const hyper *h,
                float keep)
{
    if (vectors[0])
        momentum_update[dl_isa_chosen()](p, vectors[0], g, n, h, keep);
    else
        sgd_update[dl_isa_chosen()](p, g, n, h, keep);
}

static size_t adamw_vectors(const dl_config *config)
{
    (void)config;
    return 2;
}
static size_t sgd_vectors(const dl_config *config)
{
    return config->momentum > 0 ? 1 : 0;
}

typedef struct row {
    const char *name;
    size_t (*n_vectors)(const dl_config *config);
    const char *vectors[MAX_VECTORS]; /* named as in torch.optim */
    update_fn update;
} row;

static const row rows[] = {
    {"adamw", adamw_vectors, {"exp_avg", "exp_avg_sq"}, adamw},
    {"sgd", sgd_vectors, {"momentum_buffer"}, sgd},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const char *dl_inner_name_at(size_t i)
{
    return i < N_ROWS ? rows[i].name : NULL;
}

static const row *find_row(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* ---- the handle ---------------------------------------------------------------------- */

/* Results of a step, in backend memory. */
typedef struct state {
    double norm;
    uint64_t steps;   /* completed */
    uint64_t bad;     /* norm not finite: the first element that is not */
    uint64_t skipped; /* 1: the last step changed nothing */
    float clip_factor;
} state;

typedef struct segment {
    size_t begin, end; /* elements of one tensor */
    bool trains, decays;
    char name[DILOCO_NAME_MAX + 1];
} segment;

struct dl_inner {
    const row *row;
    double clip, weight_decay, beta1, beta2, eps, momentum, lr;

    segment *segments;    /* owned */
    size_t n_segments, n; /* n: parameters */

    dl_backend *backend;
    dl_pool *pool;
    void *memory; /* backend memory: all below */
    float *parameters;
    const float *gradients;
    float *vectors[MAX_VECTORS];
    size_t n_vectors, n_blocks;
    double *squares; /* [n_blocks] */
    state *state;
};

size_t dl_inner_state_bytes(const dl_config *config)
{
    const row *r = find_row(config->optimizer);
    return r ? r->n_vectors(config) * sizeof(float) : 0;
}

static void layout(dl_inner *o, dl_arena *arena)
{
    for (size_t i = 0; i < o->n_vectors; i++)
        o->vectors[i] = DL_ARENA_ARRAY(arena, float, o->n);
    o->squares = DL_ARENA_ARRAY(arena, double, o->n_blocks);
    o->state = DL_ARENA_ARRAY(arena, state, 1);
}

static void fill_segments(dl_inner *o, const diloco_tensor *tensors)
{
    for (size_t i = 0; i < o->n_segments; i++) {
        segment *s = &o->segments[i];
        size_t count = 1;
        for (int d = 0; d < tensors[i].n_dims; d++)
            count *= tensors[i].shape[d];
        s->begin = o->n;
        s->end = o->n += count;
        s->trains = tensors[i].role == DILOCO_PARAMETER;
        s->decays = tensors[i].n_dims >= 2;
        strncpy(s->name, tensors[i].name, sizeof s->name - 1);
    }
}

static diloco_status set_up(dl_inner *o, const dl_config *config, const diloco_tensor *tensors,
                            size_t n_tensors)
{
    o->segments = calloc(dl_size_max(n_tensors, 1), sizeof *o->segments);
    o->n_segments = n_tensors;
    if (!o->segments) return dl_fail(DILOCO_ENOMEM, "no memory for an optimizer");
    fill_segments(o, tensors);
    o->n_vectors = o->row->n_vectors(config);
    o->n_blocks = (o->n + DL_BLOCK - 1) / DL_BLOCK;

    dl_arena measure = {0};
    layout(o, &measure);
    DL_TRY(dl_backend_alloc(o->backend, &o->memory, measure.used));
    layout(o, &(dl_arena){.base = o->memory, .size = measure.used});
    return DILOCO_OK;
}

diloco_status dl_inner_create(dl_inner **out, const dl_config *config, const diloco_tensor *tensors,
                              size_t n_tensors, float *parameters, const float *gradients,
                              dl_backend *backend, dl_pool *pool)
{
    *out = NULL;
    const row *r = find_row(config->optimizer);
    if (!r)
        return dl_fail(DILOCO_EINVAL, "trainer.optimizer: there is no \"%s\"; use adamw or sgd",
                       config->optimizer);
    dl_inner *o = calloc(1, sizeof *o);
    if (!o) return dl_fail(DILOCO_ENOMEM, "no memory for an optimizer");
    *o = (dl_inner){.row = r,
                    .clip = config->gradient_clip,
                    .weight_decay = config->weight_decay,
                    .beta1 = config->beta1,
                    .beta2 = config->beta2,
                    .eps = config->eps,
                    .momentum = config->momentum,
                    .backend = backend,
                    .pool = pool,
                    .parameters = parameters,
                    .gradients = gradients};
    diloco_status status = set_up(o, config, tensors, n_tensors);
    if (status) {
        dl_inner_destroy(o);
        return status;
    }
    *out = o;
    return DILOCO_OK;
}

void dl_inner_destroy(dl_inner *o)
{
    if (!o) return;
    dl_backend_release(o->backend, o->memory);
    free(o->segments);
    free(o);
}

size_t dl_inner_n_vectors(const dl_inner *o)
{
    return o->n_vectors;
}
const char *dl_inner_vector_name(const dl_inner *o, size_t i)
{
    return o->row->vectors[i];
}
float *dl_inner_vector(dl_inner *o, size_t i)
{
    return o->vectors[i];
}

uint64_t dl_inner_steps(const dl_inner *o)
{
    state s;
    dl_backend_copy_out(o->backend, &s, o->state, sizeof s);
    return s.steps;
}

void dl_inner_set_steps(dl_inner *o, uint64_t steps)
{
    state s = {.steps = steps};
    dl_backend_copy_in(o->backend, o->state, &s, sizeof s);
}

/* ---- a step -------------------------------------------------------------------------- */

static void square_part(void *context, int part, int n_parts)
{
    dl_inner *o = context;
    dl_fp_state saved = dl_fp_enter();
    size_t begin, end;
    dl_part_range(&begin, &end, o->n_blocks, 1, part, n_parts);
    for (size_t i = begin; i < end; i++)
        o->squares[i] =
            dl_block_norm2(o->gradients + i * DL_BLOCK, dl_size_min(o->n - i * DL_BLOCK, DL_BLOCK));
    dl_fp_leave(saved);
}

static void judge(dl_inner *o)
{
    double sum = 0;
    for (size_t i = 0; i < o->n_blocks; i++)
        sum += o->squares[i];
    state *s = o->state;
    s->norm = sqrt(sum);
    s->skipped = !isfinite(s->norm);
    s->clip_factor = o->clip > 0 && s->norm > o->clip ? (float)(o->clip / (s->norm + 1e-6)) : 1.0f;
    if (s->skipped)
        s->bad = dl_first_bad(o->gradients, o->n, INFINITY);
    else
        s->steps++;
}

static hyper hyper_of(const dl_inner *o)
{
    double t = (double)o->state->steps;
    return (hyper){.lr = (float)o->lr,
                   .keep = (float)(1 - o->lr * o->weight_decay),
                   .clip_factor = o->state->clip_factor,
                   .one_minus_beta1 = (float)(1 - o->beta1),
                   .beta2 = (float)o->beta2,
                   .one_minus_beta2 = (float)(1 - o->beta2),
                   .root_bc2 = (float)sqrt(1 - pow(o->beta2, t)),
                   .eps = (float)o->eps,
                   .step_size = (float)(o->lr / (1 - pow(o->beta1, t))),
                   .momentum = (float)o->momentum};
}

static void update_part(void *context, int part, int n_parts)
{
    dl_inner *o = context;
    hyper h = hyper_of(o);
    size_t begin, end;
    dl_part_range(&begin, &end, o->n, DL_BLOCK, part, n_parts);
    for (size_t i = 0; i < o->n_segments; i++) {
        const segment *s = &o->segments[i];
        size_t first = dl_size_max(begin, s->begin), last = dl_size_min(end, s->end);
        if (first >= last || !s->trains) continue;
        float *vectors[MAX_VECTORS] = {0};
        for (size_t v = 0; v < o->n_vectors; v++)
            vectors[v] = o->vectors[v] + first;
        o->row->update(o->parameters + first, vectors, o->gradients + first, last - first, &h,
                       s->decays ? h.keep : 1.0f);
    }
}

diloco_status dl_inner_step(dl_inner *o, double lr)
{
    o->lr = lr;
    dl_backend_enter(o->backend);
    dl_pool_run(o->pool, square_part, o);
    judge(o);
    if (!o->state->skipped) dl_pool_run(o->pool, update_part, o);
    dl_backend_leave(o->backend);
    return DILOCO_OK;
}

diloco_status dl_inner_norm(dl_inner *o, double *grad_norm)
{
    state s;
    DL_TRY(dl_backend_sync(o->backend));
    dl_backend_copy_out(o->backend, &s, o->state, sizeof s);
    *grad_norm = s.norm;
    if (!s.skipped) return DILOCO_OK;
    size_t i = 0;
    while (i + 1 < o->n_segments && s.bad >= o->segments[i].end)
        i++;
    return dl_fail(DILOCO_ENUMERIC,
                   "the gradient is not finite, first at %s[%zu]; nothing was changed. A smaller"
                   " learning rate or gradient_clip may help",
                   o->segments[i].name, (size_t)s.bad - o->segments[i].begin);
}
