/* fragments.c - see fragments.h.
 *
 * The assignment is a function of names and sizes alone. Every replica computes it, and the
 * manifest's digest shows that they agree. */
#include "presets/fragments.h"

#include "model/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that is in no block: embedding, last norm, head. */
enum { NO_BLOCK = -1 };

/* ---- blocks ----------------------------------------------------------------------------- */

/* Compare the names up to their numbers. */
static bool same_block(const char *a, const char *b)
{
    const size_t n = dl_manifest_block_len(a);
    return n == dl_manifest_block_len(b) && memcmp(a, b, n) == 0;
}

/* Return the length of a name before its last dot. */
static size_t module_len(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

static bool same_module(const char *a, const char *b)
{
    const size_t n = module_len(a);
    return n == module_len(b) && memcmp(a, b, n) == 0;
}

/* Return the block of tensor i if an earlier tensor is in it, else NO_BLOCK. Tensors of a block
 * need not follow each other. */
static int known_block(const int *block, const diloco_tensor *tensors, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (block[k] != NO_BLOCK && same_block(tensors[k].name, tensors[i].name)) return block[k];
    return NO_BLOCK;
}

/* Write the block of each tensor, numbered in the order in which blocks first appear, and return
 * their number. A model without numbers has a block for each module. */
static int find_blocks(int *block, const diloco_tensor *tensors, size_t n)
{
    int n_blocks = 0;
    for (size_t i = 0; i < n; i++) {
        block[i] = NO_BLOCK;
        if (dl_manifest_block_len(tensors[i].name) == 0) continue;
        block[i] = known_block(block, tensors, i);
        if (block[i] == NO_BLOCK) block[i] = n_blocks++;
    }
    if (n_blocks) return n_blocks;
    for (size_t i = 0; i < n; i++) /* modules follow each other */
        block[i] =
            i && same_module(tensors[i - 1].name, tensors[i].name) ? n_blocks - 1 : n_blocks++;
    return n_blocks;
}

/* Such tensors are one more fragment, the last (`ends`). */
static bool some_in_no_block(const int *block, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (block[i] == NO_BLOCK) return true;
    return false;
}

/* Assign whole blocks to `groups` fragments. `ends` is 1 if there are tensors in no block; the
 * given number of fragments includes theirs. */
static diloco_status assign_blocks(int *fragment, int *n_fragments, const diloco_tensor *tensors,
                                   size_t n, const dl_config *c)
{
    const bool strided = c->fragment_pattern == DL_PATTERN_STRIDED;
    const int n_blocks = find_blocks(fragment, tensors, n), ends = some_in_no_block(fragment, n);
    const int64_t each = c->fragment_layers ? c->fragment_layers : 1;
    const int64_t groups = c->fragments ? c->fragments - ends : (n_blocks + each - 1) / each;
    if (groups < 1 || groups > n_blocks)
        return dl_fail(
            DILOCO_EINVAL,
            "server.diloco.fragments = %" PRId64 ": the model has %d blocks%s, so there "
            "are %d to %d fragments of whole blocks: set server.diloco.fragments to one of those",
            c->fragments, n_blocks, ends ? " and what is around them" : "", 1 + ends,
            n_blocks + ends);
    for (size_t i = 0; i < n; i++) {
        const int b = fragment[i];
        /* Strided spreads neighbours over the fragments, which is the paper's default.
         * Sequential keeps them together, in groups whose sizes differ by one at most. */
        fragment[i] = (int)(b == NO_BLOCK ? groups : strided ? b % groups : b * groups / n_blocks);
    }
    *n_fragments = (int)groups + ends;
    return DILOCO_OK;
}

/* ---- by size ---------------------------------------------------------------------------- */

/* A tensor with its place in the model, for sorting by size. */
typedef struct sized {
    const char *name;    /* borrowed */
    size_t index, count; /* of the tensor; elements */
} sized;

/* Equal sizes are ordered by name: qsort keeps no order of its own, and every replica has to get
 * the same one. */
static int larger_first(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return strcmp(x->name, y->name);
}

static size_t count_of(const diloco_tensor *t)
{
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

/* A table of the vocabulary, which is much larger than any other tensor. It would fill a
 * fragment by itself. */
static bool is_table(const diloco_tensor *t)
{
    return strstr(t->name, "embed") || strstr(t->name, "lm_head");
}

static size_t smallest_bin(const size_t *bins, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (bins[i] < bins[at]) at = i;
    return at;
}

/* The largest first, each into the smallest bin: the usual greedy rule for bins of equal size. */
static void fill_bins(int *fragment, size_t *bins, size_t n_bins, sized *all, size_t n)
{
    qsort(all, n, sizeof *all, larger_first);
    for (size_t i = 0; i < n; i++) {
        const size_t bin = smallest_bin(bins, n_bins);
        bins[bin] += all[i].count;
        fragment[all[i].index] = (int)bin;
    }
}

/* Assign by size; bin n_bins, after the others, is that of the tables. The number of tensors
 * bounds the fragments, so none is empty. */
static diloco_status assign_balanced(int *fragment, int *n_fragments, const diloco_tensor *tensors,
                                     size_t n, const dl_config *c)
{
    size_t n_sized = 0, n_tables = 0;
    for (size_t i = 0; i < n; i++)
        n_tables += is_table(&tensors[i]);
    const int64_t tables = n_tables > 0, n_bins = c->fragments - tables;
    if (n_bins < 1 || (size_t)n_bins > n - n_tables)
        return dl_fail(
            DILOCO_EINVAL,
            "server.diloco.fragments = %" PRId64 " with fragment_pattern \"balanced\": "
            "from %" PRId64
            " to %zu fit this model's tensors: set server.diloco.fragments to one of those",
            c->fragments, 1 + tables, n - n_tables + (size_t)tables);
    sized *all = calloc(n, sizeof *all);
    size_t *bins = calloc((size_t)n_bins, sizeof *bins);
    if (all && bins) {
        for (size_t i = 0; i < n; i++) {
            fragment[i] = (int)n_bins;
            if (!is_table(&tensors[i]))
                all[n_sized++] = (sized){tensors[i].name, i, count_of(&tensors[i])};
        }
        fill_bins(fragment, bins, (size_t)n_bins, all, n_sized);
    }
    const bool ok = all && bins;
    free(all);
    free(bins);
    *n_fragments = (int)(n_bins + tables);
    return ok ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", n);
}

/* One fragment is all of the model, whatever the pattern. */
diloco_status dl_fragments_assign(int *fragment, int *n_fragments, const diloco_tensor *tensors,
                                  size_t n, const dl_config *config)
{
    memset(fragment, 0, n * sizeof *fragment);
    *n_fragments = 1;
    if (config->fragments == 1) return DILOCO_OK;
    if (config->fragment_pattern == DL_PATTERN_BALANCED)
        return assign_balanced(fragment, n_fragments, tensors, n, config);
    return assign_blocks(fragment, n_fragments, tensors, n, config);
}

/* The model is only sketched, without its arrays, so a check of a large model costs no memory. */
diloco_status dl_fragments_manifest(dl_manifest *out, const dl_config *config,
                                    const dl_sample *sample)
{
    dl_model *model;
    size_t n;
    int n_fragments;
    DL_TRY(dl_model_sketch(&model, config, sample));
    const diloco_tensor *tensors = dl_model_tensors(model, &n);
    int *fragment = calloc(n, sizeof *fragment);
    diloco_tensor *copy = calloc(n, sizeof *copy);
    diloco_status status = fragment && copy
                               ? dl_fragments_assign(fragment, &n_fragments, tensors, n, config)
                               : dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", n);
    for (size_t i = 0; i < n && !status; i++) {
        copy[i] = tensors[i];
        copy[i].fragment = fragment[i];
    }
    if (!status) status = dl_manifest_init(out, copy, n, config->apply_to == DL_APPLY_ALL_FLOATING);
    free(fragment);
    free(copy);
    dl_model_destroy(model);
    return status;
}
