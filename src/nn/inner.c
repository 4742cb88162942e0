/* inner.c - the inner optimizers, as rows, and their common code.
 *
 * A step is three operations of the backend, and the host reads nothing between them:
 *
 *   judge   norm and clip factor of the gradient (gradient.h), into backend memory
 *   hyper   what the rules need of the learning rate, the step count and the factor, likewise
 *   update  each tensor by the rule of its group; nothing if the norm is not finite
 *
 *   clip   g *= clip / (norm + 1e-6) where norm > clip, as torch.nn.utils.clip_grad_norm_
 *   decay  p *= 1 - lr * weight_decay, of matrices or of all, before the update
 *
 * The arithmetic of the rules is torch.optim's: model/gpt_test.c takes ten steps beside it.
 *
 * An optimizer may be of a range of the elements (dl_inner_model), and then has vectors for these
 * alone. Its segments are of all tensors, so that a bad element has a name.
 *
 * Invariant: tensor i is of one group. Its elements in the range, [first, last), are in that
 * group's vectors at segment.at. */
#include "nn/inner_rows.h"

#include "base/arena.h"
#include "nn/cuda/columns.h"
#include "nn/enter.h"
#include "nn/gradient.h"
#include "tensor/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---------------------------------------------------------------------------- */

enum { HIDDEN, REST, N_GROUPS };

typedef struct row {
    const char *name;
    const dl_rule *rules[N_GROUPS]; /* one for both: all tensors are of the group REST */
} row;

#define ROW(name, hidden, rest) {#name, {&dl_rule_##hidden, &dl_rule_##rest}},
static const row rows[] = {DL_INNERS(ROW)};
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

static diloco_status unknown(const char *name)
{
    char known[128] = "";
    for (size_t i = 0, len = 0; i < N_ROWS; i++, len = strlen(known))
        snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", rows[i].name);
    return dl_fail(DILOCO_EINVAL, "trainer.optimizer: \"%s\" is not one of: %s", name, known);
}

/* ---- the handle ---------------------------------------------------------------------- */

/* One tensor of the parameter array. A tensor of integers has begin == end. */
typedef struct segment {
    size_t begin, end;    /* elements of one tensor */
    size_t first, last;   /* those that are updated here */
    size_t at;            /* of element `first` in its group's vectors */
    size_t rows, columns; /* of a matrix; else 1 and the number of elements */
    int group;            /* HIDDEN or REST */
    bool trains, decays;
    char name[DILOCO_NAME_MAX + 1];
} segment;

/* Tensors of one rule, and the rule's state for all of them. */
typedef struct group {
    const dl_rule *rule;
    size_t n, n_vectors; /* n: elements of its tensors */
    float *vectors[DL_RULE_VECTORS];
} group;

struct dl_inner {
    const row *row;
    dl_config config; /* for its hyperparameters */
    double lr;

    segment *segments;    /* owned */
    size_t n_segments, n; /* n: parameters */
    size_t begin, end;    /* of the range that is updated */
    dl_inner_sizes sizes;

    dl_backend *backend;
    dl_pool *pool;
    void *memory; /* backend memory: all below */
    float *parameters;
    dl_gradient gradient;
    group groups[N_GROUPS];
    dl_hyper *hyper;
    void *scratch; /* of the rule for hidden matrices */
};

/* Returns true if hidden matrices have a rule of their own. */
static bool split(const row *r)
{
    return r->rules[HIDDEN] != r->rules[REST];
}

/* Without a rule of its own, every tensor is of REST, and HIDDEN has no vectors. */
static void set_groups(group groups[N_GROUPS], const row *r, const dl_config *config,
                       const dl_inner_sizes *sizes)
{
    size_t hidden = split(r) ? sizes->hidden : 0;
    for (int k = 0; k < N_GROUPS; k++)
        groups[k] = (group){.rule = r->rules[k],
                            .n = k == HIDDEN ? hidden : sizes->parameters - hidden,
                            .n_vectors = r->rules[k]->n_vectors(config)};
    if (!split(r)) groups[HIDDEN].n_vectors = 0;
}

/* Only a rule for hidden matrices has scratch, and only if there are any. */
static size_t scratch_bytes(const row *r, const dl_inner_sizes *sizes, int n_threads)
{
    const dl_rule *rule = r->rules[HIDDEN];
    return rule->scratch && sizes->hidden ? rule->scratch(sizes, n_threads) : 0;
}

void dl_inner_sizes_add(dl_inner_sizes *sizes, size_t n_rows, size_t columns, bool hidden)
{
    sizes->parameters += n_rows * columns;
    if (!hidden) return;
    sizes->hidden += n_rows * columns;
    sizes->shorter = dl_size_max(sizes->shorter, dl_size_min(n_rows, columns));
    sizes->longer = dl_size_max(sizes->longer, dl_size_max(n_rows, columns));
}

dl_inner_bytes dl_inner_plan(const dl_config *config, const dl_inner_sizes *sizes, int n_threads)
{
    dl_inner_bytes bytes = {0};
    group groups[N_GROUPS];
    const row *r = find_row(config->optimizer);
    if (!r) return bytes;
    set_groups(groups, r, config, sizes);
    for (int k = 0; k < N_GROUPS; k++)
        bytes.vectors += groups[k].n * groups[k].n_vectors * sizeof(float);
    bytes.scratch = scratch_bytes(r, sizes, n_threads);
    return bytes;
}

/* Runs twice: on an arena without memory, to count bytes, and on the backend's memory. */
static void layout(dl_inner *o, dl_arena *arena)
{
    for (int k = 0; k < N_GROUPS; k++)
        for (size_t i = 0; i < o->groups[k].n_vectors; i++)
            o->groups[k].vectors[i] = DL_ARENA_ARRAY(arena, float, o->groups[k].n);
    o->gradient.squares = DL_ARENA_ARRAY(arena, double, dl_gradient_blocks(o->n));
    o->gradient.verdict = DL_ARENA_ARRAY(arena, dl_verdict, 1);
    o->hyper = DL_ARENA_ARRAY(arena, dl_hyper, 1);
    o->scratch = dl_arena_take(arena, scratch_bytes(o->row, &o->sizes, dl_pool_size(o->pool)));
}

/* Returns the elements of a tensor in the parameter array. Integers are not in it. */
static size_t count_of(const diloco_tensor *t)
{
    size_t count = t->dtype == DILOCO_F32;
    for (int d = 0; d < t->n_dims; d++)
        count *= t->shape[d];
    return count;
}

static bool is_hidden(const dl_inner_model *model, size_t i)
{
    return model->hidden && model->hidden[i] && model->tensors[i].n_dims == 2;
}

/* Assigns a tensor the elements of its group's vectors that this range has. A matrix that a rule
 * takes whole is updated whole or not at all. */
static void place_segment(const dl_inner *o, segment *s, size_t used[N_GROUPS])
{
    s->first = dl_size_min(dl_size_max(s->begin, o->begin), s->end);
    s->last = dl_size_max(dl_size_min(s->end, o->end), s->first);
    s->at = used[s->group];
    used[s->group] += s->last - s->first;
    DL_ASSERT(s->group == REST || s->last == s->first || s->last - s->first == s->end - s->begin);
}

/* Describes each tensor and assigns it elements of its group's vectors. Frozen tensors have some as
 * well, so that places do not depend on roles. */
static void fill_segments(dl_inner *o, const dl_inner_model *model, size_t used[N_GROUPS])
{
    for (size_t i = 0; i < o->n_segments; i++) {
        const diloco_tensor *t = &model->tensors[i];
        segment *s = &o->segments[i];
        const size_t count = count_of(t);
        const bool hidden = is_hidden(model, i);
        s->begin = o->n;
        s->end = o->n += count;
        s->group = hidden && split(o->row) ? HIDDEN : REST;
        place_segment(o, s, used);
        s->rows = t->n_dims == 2 ? t->shape[0] : 1;
        s->columns = count / dl_size_max(s->rows, 1);
        s->trains = t->role == DILOCO_PARAMETER;
        s->decays = t->n_dims >= 2 || o->config.decayed == DL_DECAYED_ALL;
        strncpy(s->name, t->name, sizeof s->name - 1);
        dl_inner_sizes_add(&o->sizes, s->rows, s->columns, hidden);
    }
}

static diloco_status set_up(dl_inner *o, const dl_inner_model *model)
{
    o->segments = calloc(dl_size_max(o->n_segments, 1), sizeof *o->segments);
    if (!o->segments) return dl_fail(DILOCO_ENOMEM, "out of memory for an optimizer");
    size_t used[N_GROUPS] = {0};
    fill_segments(o, model, used);
    o->gradient.n = o->n;
    set_groups(o->groups, o->row, &o->config, &o->sizes);
    for (int k = 0; k < N_GROUPS; k++)
        o->groups[k].n = used[k];

    dl_arena measure = {0};
    layout(o, &measure);
    DL_TRY(dl_backend_alloc(o->backend, &o->memory, measure.used));
    layout(o, &(dl_arena){.base = o->memory, .size = measure.used});
    return DILOCO_OK;
}

static diloco_status check_device(const row *r, const dl_backend *backend);

diloco_status dl_inner_create(dl_inner **out, const dl_config *config, const dl_inner_model *model)
{
    *out = NULL;
    const row *r = find_row(config->optimizer);
    if (!r) return unknown(config->optimizer);
    DL_TRY(check_device(r, model->backend));
    dl_inner *o = calloc(1, sizeof *o);
    if (!o) return dl_fail(DILOCO_ENOMEM, "out of memory for an optimizer");
    o->row = r;
    o->config = *config;
    o->n_segments = model->n_tensors;
    o->begin = model->range ? model->range[0] : 0;
    o->end = model->range ? model->range[1] : SIZE_MAX;
    o->backend = model->backend;
    o->pool = model->pool;
    o->parameters = model->parameters;
    o->gradient = (dl_gradient){.backend = o->backend,
                                .pool = o->pool,
                                .values = model->gradients,
                                .clip = config->gradient_clip,
                                .margin = 1e-6};
    diloco_status status = set_up(o, model);
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

/* ---- saved state --------------------------------------------------------------------- */

size_t dl_inner_n_vectors(const dl_inner *o)
{
    return o->groups[HIDDEN].n_vectors + o->groups[REST].n_vectors;
}

/* The group of vector *i, which becomes its number there. */
static const group *group_of(const dl_inner *o, size_t *i)
{
    if (*i < o->groups[HIDDEN].n_vectors) return &o->groups[HIDDEN];
    *i -= o->groups[HIDDEN].n_vectors;
    return &o->groups[REST];
}

const char *dl_inner_vector_name(const dl_inner *o, size_t i)
{
    const group *g = group_of(o, &i);
    return g->rule->vectors[i];
}

/* Vectors are numbered: those of HIDDEN, then those of REST. */
float *dl_inner_vector(dl_inner *o, size_t i, size_t *n)
{
    const group *g = group_of(o, &i);
    *n = g->n;
    return g->vectors[i];
}

uint64_t dl_inner_steps(const dl_inner *o)
{
    dl_verdict v;
    dl_backend_copy_out(o->backend, &v, o->gradient.verdict, sizeof v);
    return v.steps;
}

/* Also clears the last step's norm and flags. */
void dl_inner_set_steps(dl_inner *o, uint64_t steps)
{
    dl_verdict v = {.steps = steps};
    dl_backend_copy_in(o->backend, o->gradient.verdict, &v, sizeof v);
}

/* ---- a step, on the CPU -------------------------------------------------------------- */

/* Muon's own learning rate follows the same schedule: it is scaled by lr / (configured lr). */
static dl_hyper_options options_of(const dl_inner *o)
{
    const dl_config *c = &o->config;
    return (dl_hyper_options){.lr = o->lr,
                              .weight_decay = c->weight_decay,
                              .beta1 = c->beta1,
                              .beta2 = c->beta2,
                              .eps = c->eps,
                              .alpha = c->rms_alpha,
                              .momentum = c->momentum,
                              .momentum_weight = c->momentum_weight,
                              .muon_lr = c->muon_lr > 0 ? o->lr * c->muon_lr / c->lr : o->lr,
                              .muon_momentum = c->muon_momentum,
                              .muon_nesterov = c->muon_nesterov,
                              .muon_steps = (int)c->muon_steps};
}

/* After a skipped step hyper keeps the numbers of the last one, which nothing reads. */
static void hyper_on_cpu(dl_inner *o)
{
    const dl_hyper_options options = options_of(o);
    if (!o->gradient.verdict->skipped) dl_hyper_fill(o->hyper, &options, o->gradient.verdict);
}

/* Sets the addresses of a group's vectors from element `at` on; NULL for those it does not have. */
static void vectors_at(float *out[DL_RULE_VECTORS], const group *g, size_t at)
{
    for (size_t v = 0; v < DL_RULE_VECTORS; v++)
        out[v] = v < g->n_vectors ? g->vectors[v] + at : NULL;
}

/* Updates this part's elements. Parts are cut at blocks of the whole array, so a tensor may belong
 * to several parts, and small tensors cost no synchronization. */
static void update_part(void *context, int part, int n_parts)
{
    const dl_inner *o = context;
    size_t begin, end;
    dl_part_range(&begin, &end, o->n, DL_BLOCK, part, n_parts);
    for (size_t i = 0; i < o->n_segments; i++) {
        const segment *s = &o->segments[i];
        const group *g = &o->groups[s->group];
        size_t first = dl_size_max(begin, s->first), last = dl_size_min(end, s->last);
        if (first >= last || !s->trains || !g->rule->update[DL_DEVICE_CPU]) continue;
        dl_inner_part a = {.p = o->parameters + first,
                           .g = o->gradient.values + first,
                           .n = last - first,
                           .hyper = o->hyper,
                           .verdict = o->gradient.verdict,
                           .decays = s->decays,
                           .backend = o->backend};
        vectors_at(a.vectors, g, s->at + first - s->first);
        g->rule->update[DL_DEVICE_CPU](&a);
    }
}

/* The tensors whose rule takes them whole, one after the other. */
static void update_matrices(const dl_inner *o)
{
    const dl_device device = o->backend->ops->device;
    for (size_t i = 0; i < o->n_segments; i++) {
        const segment *s = &o->segments[i];
        const group *g = &o->groups[s->group];
        if (!s->trains || s->first == s->last || !g->rule->matrix[device]) continue;
        dl_inner_matrix m = {.p = o->parameters + s->begin,
                             .g = o->gradient.values + s->begin,
                             .rows = s->rows,
                             .columns = s->columns,
                             .hyper = o->hyper,
                             .verdict = o->gradient.verdict,
                             .muon_steps = (int)o->config.muon_steps,
                             .sizes = &o->sizes,
                             .scratch = o->scratch,
                             .pool = o->pool,
                             .backend = o->backend};
        vectors_at(m.vectors, g, s->at);
        g->rule->matrix[device](&m);
    }
}

static void update_on_cpu(dl_inner *o)
{
    if (o->gradient.verdict->skipped) return;
    dl_pool_run(o->pool, update_part, o);
    update_matrices(o);
}

/* ---- a step, on a GPU ------------------------------------------------------------------- */

static void hyper_on_cuda(dl_inner *o)
{
    const dl_hyper_options options = options_of(o);
    dl_cuda_hyper(o->backend, o->hyper, o->gradient.verdict, &options);
}

/* Starts a kernel for each tensor. The host does not know the verdict, so each kernel reads it. */
static void update_on_cuda(dl_inner *o)
{
    for (size_t i = 0; i < o->n_segments; i++) {
        const segment *s = &o->segments[i];
        const group *g = &o->groups[s->group];
        if (!s->trains || s->first == s->last || !g->rule->update[DL_DEVICE_CUDA]) continue;
        dl_inner_part a = {.p = o->parameters + s->first,
                           .g = o->gradient.values + s->first,
                           .n = s->last - s->first,
                           .hyper = o->hyper,
                           .verdict = o->gradient.verdict,
                           .decays = s->decays,
                           .backend = o->backend};
        vectors_at(a.vectors, g, s->at);
        g->rule->update[DL_DEVICE_CUDA](&a);
    }
    update_matrices(o);
}

/* ---- a step, on any device ----------------------------------------------------------- */

/* A device's functions beside those of the rules. Each queues its work. */
static const struct {
    void (*hyper)(dl_inner *o);
    void (*update)(dl_inner *o);
} passes[DL_N_DEVICES] = {
    [DL_DEVICE_CPU] = {.hyper = hyper_on_cpu, .update = update_on_cpu},
    [DL_DEVICE_CUDA] = {.hyper = hyper_on_cuda, .update = update_on_cuda},
};

diloco_status dl_rule_check(const dl_rule *rule, const char *optimizer, const dl_backend *backend)
{
    const dl_device device = backend->ops->device;
    if (passes[device].hyper && passes[device].update &&
        (rule->update[device] || !rule->update[DL_DEVICE_CPU]) &&
        (rule->matrix[device] || !rule->matrix[DL_DEVICE_CPU]))
        return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "the %s backend has no optimizer %s (trainer.optimizer): train on the CPU",
                   backend->ops->name, optimizer);
}

/* Checked at create: a missing function would leave its tensors untrained without an error. */
static diloco_status check_device(const row *r, const dl_backend *backend)
{
    for (int k = 0; k < N_GROUPS; k++)
        DL_TRY(dl_rule_check(r->rules[k], r->name, backend));
    return DILOCO_OK;
}

/* Runs one pass as an operation of the backend, whose memory it reads and writes. */
static void run(dl_inner *o, void (*pass)(dl_inner *o))
{
    dl_backend_enter(o->backend);
    pass(o);
    dl_backend_leave(o->backend);
}

void dl_inner_judge(dl_inner *o)
{
    dl_gradient_judge(&o->gradient);
}

void dl_inner_update(dl_inner *o, double lr)
{
    const dl_device device = o->backend->ops->device;
    o->lr = lr;
    run(o, passes[device].hyper);
    run(o, passes[device].update);
}

diloco_status dl_inner_step(dl_inner *o, double lr)
{
    dl_inner_judge(o);
    dl_inner_update(o, lr);
    return DILOCO_OK;
}

_Static_assert(sizeof(dl_verdict) % sizeof(float) == 0, "collectives move it as f32");

void *dl_inner_verdict(dl_inner *o, size_t *bytes)
{
    *bytes = sizeof *o->gradient.verdict;
    return o->gradient.verdict;
}

/* ---- ranges -------------------------------------------------------------------------- */

/* Returns `bound`, or the nearer end of the tensor that it would divide if that is taken whole. */
static size_t move_bound(size_t bound, const row *r, const dl_inner_model *model)
{
    size_t begin = 0;
    for (size_t i = 0; i < model->n_tensors; i++) {
        const size_t end = begin + count_of(&model->tensors[i]);
        if (bound > begin && bound < end && split(r) && is_hidden(model, i))
            return bound - begin < end - bound ? begin : end;
        begin = end;
    }
    return bound;
}

void dl_inner_bounds(size_t *bounds, size_t n, const dl_config *config, const dl_inner_model *model)
{
    const row *r = find_row(config->optimizer);
    size_t all = 0;
    for (size_t i = 0; i < model->n_tensors; i++)
        all += count_of(&model->tensors[i]);
    bounds[0] = 0;
    for (size_t i = 1; i < n; i++)
        bounds[i] = dl_size_max(bounds[i - 1], r ? move_bound(all / n * i, r, model) : all);
    bounds[n] = all;
}

/* Segments are in order, so the first one that ends after the bad element has it. */
diloco_status dl_inner_norm(dl_inner *o, double *grad_norm)
{
    dl_verdict v;
    DL_TRY(dl_backend_sync(o->backend));
    dl_backend_copy_out(o->backend, &v, o->gradient.verdict, sizeof v);
    *grad_norm = v.norm;
    if (!v.skipped) return DILOCO_OK;
    size_t i = 0;
    while (i + 1 < o->n_segments && v.bad >= o->segments[i].end)
        i++;
    return dl_fail(DILOCO_ENUMERIC,
                   "the gradient is not finite, first at %s[%zu]; nothing was changed. A smaller"
                   " learning rate or gradient_clip may help",
                   o->segments[i].name, (size_t)v.bad - o->segments[i].begin);
}
