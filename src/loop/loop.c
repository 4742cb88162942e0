/* loop.c - options, registering, memory (include/diloco/loop.h).
 *
 * create() copies the options and checks them. tensor() only lists. start() sorts the tensors by
 * fragment, gives each its range, and takes all memory from one arena. So later calls do not
 * allocate, except save and load.
 *
 * A struct of the caller's may be older or newer than this library: base/sized.h. */
#include "loop/loop.h"
#include "base/hash.h"
#include "base/sized.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements of the staging buffer (4 MiB) if the caller supplies none. It is at most one
 * fragment. */
enum { STAGING = 1 << 20 };

/* ---- options */

/* One fragment is in flight at a time, as in torchft's DiLoCo class. Each has H/P steps, so H has
 * to be a multiple of P and the delay shorter than that. */
static diloco_status check_schedule(const diloco_loop_options *o)
{
    if (o->sync_every < o->fragments)
        return dl_fail(DILOCO_EINVAL,
                       "sync_every = %llu is less than the %u fragments: only one fragment can be "
                       "synchronised at a time",
                       (unsigned long long)o->sync_every, o->fragments);
    if (o->sync_every % o->fragments != 0)
        return dl_fail(DILOCO_EINVAL, "sync_every = %llu is not a multiple of the %u fragments",
                       (unsigned long long)o->sync_every, o->fragments);
    if (o->fragment_sync_delay >= o->sync_every / o->fragments)
        return dl_fail(DILOCO_EINVAL,
                       "fragment_sync_delay = %llu has to be less than sync_every / fragments = "
                       "%llu: one fragment is in flight at a time",
                       (unsigned long long)o->fragment_sync_delay,
                       (unsigned long long)(o->sync_every / o->fragments));
    return DILOCO_OK;
}

static diloco_status check_options(const diloco_loop_options *o)
{
    DL_TRY(check_schedule(o));
    if (!(o->fragment_update_alpha >= 0 && o->fragment_update_alpha <= 1))
        return dl_fail(DILOCO_EINVAL, "fragment_update_alpha = %g is not in 0 … 1",
                       o->fragment_update_alpha);
    if (o->bucket_bytes > 0 && o->bucket_bytes < sizeof(float))
        return dl_fail(DILOCO_EINVAL, "bucket_bytes = %zu holds no element", o->bucket_bytes);
    if (o->n_threads < 0 || o->n_threads > 256)
        return dl_fail(DILOCO_EINVAL, "n_threads = %d is not in 0 … 256", o->n_threads);
    return DILOCO_OK;
}

/* A loop steps one block at a time, which may be in the caller's copy functions. So a row that
 * steps whole fragments is refused. A loop has no last round. A learning rate schedule that ends
 * therefore needs an explicit trainer.rounds; its default is the length of a run, not of this loop.
 */
static diloco_status check_outer(const dl_config *config)
{
    DL_TRY(dl_outer_check(config));
    if (dl_outer_find(config->outer_optimizer)->whole)
        return dl_fail(DILOCO_EINVAL,
                       "server.diloco.outer_optimizer = \"%s\" steps whole matrices by gradients, "
                       "and a loop's outer step takes movements, element by element: use nesterov, "
                       "momentum or sgd, or an optimizer of your own (options.outer)",
                       config->outer_optimizer);
    if (config->outer_lr_schedule == DL_OUTER_LR_CONSTANT ||
        strcmp(dl_config_origin(config, "trainer.rounds"), "default") != 0)
        return DILOCO_OK;
    return dl_fail(
        DILOCO_EINVAL,
        "server.diloco.outer_lr_schedule = \"%s\" ends with the run, and a loop does not "
        "know when that is: set trainer.rounds, in which every fragment is synchronised "
        "once",
        dl_outer_lr_choice_names[config->outer_lr_schedule]);
}

/* Copy and check the options. Afterwards the loop holds no pointer to the caller's structs, except
 * functions, `user` pointers and the staging buffer. */
static diloco_status take_options(diloco_loop *loop, const diloco_loop_options *options,
                                  const diloco_communicator *communicator)
{
    DL_TRY(dl_sized_in(&loop->options, sizeof loop->options, options, options->size,
                       "diloco_loop_options"));
    DL_TRY(dl_sized_in(&loop->communicator, sizeof loop->communicator, communicator,
                       communicator->size, "diloco_communicator"));
    if (loop->options.fragments == 0) loop->options.fragments = 1;
    DL_TRY(check_options(&loop->options));
    if (!loop->communicator.all_reduce || !loop->communicator.wait)
        return dl_fail(DILOCO_EINVAL, "the communicator has no %s function",
                       loop->communicator.all_reduce ? "wait" : "all_reduce");
    if (loop->options.copy) {
        const diloco_loop_copy *copy = loop->options.copy;
        DL_TRY(dl_sized_in(&loop->copy, sizeof loop->copy, copy, copy->size, "diloco_loop_copy"));
        loop->options.copy = &loop->copy;
        if (!loop->copy.read || !loop->copy.write)
            return dl_fail(DILOCO_EINVAL, "options.copy has no %s function",
                           loop->copy.read ? "write" : "read");
        if (loop->copy.staging && loop->copy.n_staging == 0)
            return dl_fail(DILOCO_EINVAL, "options.copy has a staging buffer of no elements");
    }
    dl_config_init(&loop->config);
    if (loop->options.config) loop->config = *loop->options.config;
    loop->options.config = NULL;
    if (!loop->options.outer) {
        DL_TRY(check_outer(&loop->config));
        loop->outer = dl_outer_find(loop->config.outer_optimizer);
    }
    return dl_isa_check();
}

diloco_status diloco_loop_create(diloco_loop **out, const diloco_loop_options *options,
                                 const diloco_communicator *communicator)
{
    *out = NULL;
    diloco_loop *loop = calloc(1, sizeof *loop);
    if (!loop) return dl_fail(DILOCO_ENOMEM, "out of memory for a loop");
    loop->flight.fragment = -1;
    diloco_status status = take_options(loop, options, communicator);
    if (!status) {
        loop->interval = loop->options.sync_every / loop->options.fragments;
        loop->fragments = calloc(loop->options.fragments, sizeof *loop->fragments);
        if (!loop->fragments)
            status =
                dl_fail(DILOCO_ENOMEM, "out of memory for %u fragments", loop->options.fragments);
    }
    if (status) {
        diloco_loop_destroy(loop);
        return status;
    }
    *out = loop;
    return DILOCO_OK;
}

/* ---- tensors */

/* The search for an equal name is linear in the tensors, so registering T of them costs T²/2
 * comparisons. Models have hundreds of tensors. */
static diloco_status check_tensor(const diloco_loop *loop, const diloco_tensor *t)
{
    size_t len = t->name ? strnlen(t->name, DILOCO_NAME_MAX + 1) : 0;
    if (len < 1 || len > DILOCO_NAME_MAX)
        return dl_fail(DILOCO_EINVAL, "a tensor's name has 1 to %d characters", DILOCO_NAME_MAX);
    for (size_t i = 0; i < len; i++)
        if (t->name[i] < ' ' || t->name[i] > '~')
            return dl_fail(DILOCO_EINVAL, "tensor %zu: byte %zu of its name is not printable ASCII",
                           loop->n_tensors, i);
    if (t->dtype != DILOCO_F32 || t->role != DILOCO_PARAMETER)
        return dl_fail(DILOCO_EINVAL,
                       "tensor %s: the loop moves float32 parameters only; another type goes "
                       "through options.copy",
                       t->name);
    if (t->fragment < 0 || (uint32_t)t->fragment >= loop->options.fragments)
        return dl_fail(DILOCO_EINVAL, "tensor %s: fragment %d is not in 0 … %u", t->name,
                       t->fragment, loop->options.fragments - 1);
    if (!t->data && !loop->options.copy)
        return dl_fail(DILOCO_EINVAL, "tensor %s has no data and there is no options.copy",
                       t->name);
    if (t->n_dims < 0 || t->n_dims > DILOCO_MAX_DIMS)
        return dl_fail(DILOCO_EINVAL, "tensor %s: %d dimensions; 0 to %d can be", t->name,
                       t->n_dims, DILOCO_MAX_DIMS);
    for (size_t i = 0; i < loop->n_tensors; i++)
        if (strcmp(loop->tensors[i].about.name, t->name) == 0)
            return dl_fail(DILOCO_EINVAL, "tensor %s is registered already", t->name);
    return DILOCO_OK;
}

/* The product of the dimensions, 1 for a scalar. The size in bytes has to fit size_t as well. */
static diloco_status count_elements(size_t *count, const diloco_tensor *t)
{
    *count = 1;
    for (int k = 0; k < t->n_dims; k++)
        if (!dl_size_mul(count, *count, t->shape[k])) goto overflow;
    size_t bytes;
    if (dl_size_mul(&bytes, *count, sizeof(float))) return DILOCO_OK;
overflow:
    return dl_fail(DILOCO_EINVAL, "tensor %s: its shape overflows", t->name);
}

diloco_status diloco_loop_tensor_sized(diloco_loop *loop, const diloco_tensor *given, size_t size)
{
    diloco_tensor seen, *const tensor = &seen;
    DL_TRY(dl_sized_in(&seen, sizeof seen, given, size, "diloco_tensor"));
    if (loop->started)
        return dl_fail(DILOCO_EINVAL, "tensors are registered before diloco_loop_start");
    DL_TRY(check_tensor(loop, tensor));
    dl_loop_tensor t = {.about = *tensor, .number = loop->n_tensors, .decay = tensor->n_dims >= 2};
    DL_TRY(count_elements(&t.count, tensor));
    t.about.name = t.name = strdup(tensor->name);
    dl_loop_tensor *all = realloc(loop->tensors, (loop->n_tensors + 1) * sizeof *all);
    if (all) loop->tensors = all;
    if (!all || !t.name) {
        free(t.name);
        return dl_fail(DILOCO_ENOMEM, "out of memory for tensor %s", tensor->name);
    }
    loop->tensors[loop->n_tensors++] = t;
    return DILOCO_OK;
}

/* ---- start */

/* Order by fragment, then by registering order: qsort is not stable, and the order is part of the
 * layout that replicas agree on. */
static int by_fragment(const void *a, const void *b)
{
    const dl_loop_tensor *x = a, *y = b;
    if (x->about.fragment != y->about.fragment)
        return x->about.fragment < y->about.fragment ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Sort the tensors, and set the range of each tensor and each fragment. Every fragment needs a
 * tensor: an empty one would make an entry without an all-reduce. */
static diloco_status place_tensors(diloco_loop *loop)
{
    if (loop->n_tensors > 0)
        qsort(loop->tensors, loop->n_tensors, sizeof *loop->tensors, by_fragment);
    size_t at = 0, elements = 0;
    for (uint32_t f = 0; f < loop->options.fragments; f++) {
        dl_loop_fragment *fragment = &loop->fragments[f];
        *fragment = (dl_loop_fragment){.first = at, .begin = elements, .in_memory = true};
        for (; at < loop->n_tensors && loop->tensors[at].about.fragment == (int)f; at++) {
            dl_loop_tensor *t = &loop->tensors[at];
            t->begin = fragment->n;
            if (!dl_size_add(&fragment->n, fragment->n, t->count))
                return dl_fail(DILOCO_EINVAL, "fragment %u has too many elements", f);
            fragment->in_memory = fragment->in_memory && t->about.data;
        }
        fragment->n_tensors = at - fragment->first;
        if (fragment->n == 0) return dl_fail(DILOCO_EINVAL, "fragment %u has no tensor", f);
        if (!dl_size_add(&elements, elements, fragment->n))
            return dl_fail(DILOCO_EINVAL, "the fragments have too many elements");
    }
    loop->n = elements;
    return DILOCO_OK;
}

/* Cut a fragment into the ranges of g that are one all-reduce each. A bucket may cross tensors;
 * only the last one may be shorter than bucket_bytes. reduce->part has 32 bits. */
static diloco_status cut_parts(const diloco_loop *loop, dl_loop_fragment *fragment)
{
    size_t cap = loop->options.bucket_bytes / sizeof(float);
    fragment->n_parts = cap ? (fragment->n + cap - 1) / cap : fragment->n_tensors;
    if (fragment->n_parts > UINT32_MAX)
        return dl_fail(DILOCO_EINVAL, "bucket_bytes = %zu makes %zu buckets",
                       loop->options.bucket_bytes, fragment->n_parts);
    fragment->parts = calloc(fragment->n_parts, sizeof *fragment->parts);
    if (!fragment->parts)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu all-reduces", fragment->n_parts);
    for (size_t i = 0; i < fragment->n_parts; i++) {
        const dl_loop_tensor *t = &loop->tensors[fragment->first + i];
        fragment->parts[i] =
            cap ? (dl_loop_part){.begin = i * cap, .n = dl_size_min(cap, fragment->n - i * cap)}
                : (dl_loop_part){t->begin, t->count, t->about.name, NULL};
    }
    return DILOCO_OK;
}

/* Take all arrays from `arena`. take_memory calls it twice, first with an arena that only
 * measures. */
static void lay_out(diloco_loop *loop, dl_arena *arena)
{
    size_t largest = 0;
    for (uint32_t f = 0; f < loop->options.fragments; f++)
        largest = dl_size_max(largest, loop->fragments[f].n);
    loop->theta = DL_ARENA_ARRAY(arena, float, loop->n);
    loop->g = DL_ARENA_ARRAY(arena, float, largest);
    for (int k = 0; loop->outer && k < loop->outer->n_state; k++)
        loop->vectors[k] = DL_ARENA_ARRAY(arena, float, loop->n);
    if (loop->options.copy && !loop->copy.staging) {
        loop->copy.n_staging = dl_size_min(STAGING, largest);
        loop->staging = DL_ARENA_ARRAY(arena, float, loop->copy.n_staging);
    }
}

/* On an error the caller gives back what was taken. A caller's staging buffer replaces the loop's
 * own. */
static diloco_status take_memory(diloco_loop *loop)
{
    for (uint32_t f = 0; f < loop->options.fragments; f++)
        DL_TRY(cut_parts(loop, &loop->fragments[f]));
    dl_arena measure = {0};
    lay_out(loop, &measure);
    DL_TRY(dl_arena_init(&loop->arena, measure.used));
    lay_out(loop, &loop->arena);
    if (loop->copy.staging) loop->staging = loop->copy.staging;
    int n_threads = loop->options.n_threads ? loop->options.n_threads : dl_cores();
    return dl_pool_create(&loop->pool, n_threads);
}

/* Undo take_memory, also a part of it, so that start() may be tried again. */
static void give_back_memory(diloco_loop *loop)
{
    dl_pool_destroy(loop->pool);
    loop->pool = NULL;
    dl_arena_deinit(&loop->arena);
    loop->arena = (dl_arena){0};
    for (uint32_t f = 0; loop->fragments && f < loop->options.fragments; f++) {
        free(loop->fragments[f].parts);
        loop->fragments[f].parts = NULL;
    }
}

static diloco_status take_all(diloco_loop *loop)
{
    for (uint32_t f = 0; f < loop->options.fragments; f++)
        DL_TRY(dl_loop_capture(loop, (int)f));
    return DILOCO_OK;
}

/* After an error the loop is as before start, and start may be called again: with another tensor
 * registered, for example. */
diloco_status diloco_loop_start(diloco_loop *loop)
{
    if (loop->started) return dl_fail(DILOCO_EINVAL, "the loop was started before");
    DL_TRY(place_tensors(loop));
    diloco_status status = take_memory(loop);
    if (!status) status = take_all(loop);
    if (status) give_back_memory(loop);
    loop->started = !status;
    return status;
}

/* The communicator may still write to g, so each all-reduce is waited for before g is freed. The
 * results of the waits no longer matter. */
void diloco_loop_destroy(diloco_loop *loop)
{
    if (!loop) return;
    if (loop->flight.fragment >= 0) {
        const dl_loop_fragment *f = &loop->fragments[loop->flight.fragment];
        for (size_t i = 0; i < loop->flight.n_begun; i++)
            (void)loop->communicator.wait(loop->communicator.user, f->parts[i].handle);
    }
    give_back_memory(loop);
    for (size_t i = 0; i < loop->n_tensors; i++)
        free(loop->tensors[i].name);
    free(loop->tensors);
    free(loop->fragments);
    free(loop);
}

/* ---- description */

diloco_status dl_loop_idle(const diloco_loop *loop, const char *what)
{
    if (!loop->started) return dl_fail(DILOCO_EINVAL, "%s: the loop was not started", what);
    if (loop->flight.fragment >= 0)
        return dl_fail(DILOCO_EINVAL, "%s: fragment %d is in flight; perform comes first", what,
                       loop->flight.fragment);
    return DILOCO_OK;
}

diloco_status diloco_loop_backup(diloco_loop *loop)
{
    DL_TRY(dl_loop_idle(loop, "backup"));
    return take_all(loop);
}

diloco_status diloco_loop_restore(diloco_loop *loop)
{
    DL_TRY(dl_loop_idle(loop, "restore"));
    for (uint32_t f = 0; f < loop->options.fragments; f++)
        DL_TRY(dl_loop_adopt(loop, (int)f, 0));
    return DILOCO_OK;
}

void diloco_loop_now(const diloco_loop *loop, diloco_loop_info *info)
{
    const diloco_loop_info all = {.size = info->size,
                                  .step = loop->step,
                                  .entry = loop->entry,
                                  .fragment = loop->flight.fragment,
                                  .commits = loop->commits,
                                  .refused = loop->refused};
    dl_sized_out(info, info->size, &all, sizeof all);
}

diloco_status diloco_loop_view(diloco_loop *loop, uint32_t fragment, diloco_loop_fragment *view)
{
    if (!loop->started || fragment >= loop->options.fragments)
        return dl_fail(DILOCO_EINVAL, "view: the loop was not started, or has no fragment %u",
                       fragment);
    dl_loop_fragment *f = &loop->fragments[fragment];
    diloco_loop_fragment all = {
        .size = view->size, .n = f->n, .theta = loop->theta + f->begin, .commits = &f->commits};
    all.n_vectors = loop->outer ? loop->outer->n_state : 0;
    for (int k = 0; k < all.n_vectors; k++) {
        all.vectors[k] = loop->vectors[k] + f->begin;
        all.names[k] = loop->outer->state_names[k];
    }
    dl_sized_out(view, view->size, &all, sizeof all);
    return DILOCO_OK;
}

diloco_status diloco_loop_digest(const diloco_loop *loop, char hex[33])
{
    if (!loop->started) return dl_fail(DILOCO_EINVAL, "digest: the loop was not started");
    dl_hash_to_hex(hex, dl_digest_bytes(loop->theta, loop->n * sizeof *loop->theta));
    return DILOCO_OK;
}
