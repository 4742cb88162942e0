/* continuation.c - see continuation.h. A tensor continues or starts again as a whole. The vectors
 * of one optimizer belong together, and those of another shape belong to another tensor. */
#include "state/continuation.h"

#include "base/log.h"
#include "base/text.h"
#include <diloco/inspect.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool dl_continue_is_asked(const dl_config *config)
{
    return config->init_from[0] && config->init_as != DL_INIT_MODEL;
}

bool dl_continues(const dl_st_tensor *found, const char *dtype, const size_t *shape, int n_dims)
{
    return found && !strcmp(found->dtype, dtype) && found->n_dims == n_dims &&
           memcmp(found->shape, shape, (size_t)n_dims * sizeof *shape) == 0;
}

/* ---- the source --------------------------------------------------------------------------- */

bool dl_init_is_run(const char *from)
{
    struct stat st;
    return strstr(from, "://") || (stat(from, &st) == 0 && S_ISDIR(st.st_mode));
}

/* diloco_theta_read replays the run's log to its end and returns an image in memory, which is freed
 * here. */
static diloco_status with_run(const char *url, dl_st_fn fn, void *context)
{
    void *bytes;
    size_t len;
    uint64_t entry;
    dl_st st;
    DL_TRY(diloco_theta_read(&bytes, &len, &entry, url, UINT64_MAX));
    diloco_status status = dl_st_open(&st, bytes, len);
    if (!status) {
        status = fn(context, &st);
        dl_st_close(&st);
    }
    diloco_free(bytes);
    return status;
}

diloco_status dl_init_from(const char *from, dl_st_fn fn, void *context)
{
    const diloco_status status =
        dl_init_is_run(from) ? with_run(from, fn, context) : dl_st_with_file(from, fn, context);
    return status ? dl_fail_context(status, "trainer.init_from = \"%s\"", from) : DILOCO_OK;
}

/* ---- tensors ------------------------------------------------------------------------------- */

enum { NAMES_SHOWN = 8 };

/* Names beyond the first NAMES_SHOWN, or beyond the text's size, are only counted. */
void dl_tensor_list_add(dl_tensor_list *list, const char *name)
{
    const size_t used = strlen(list->names), room = sizeof list->names - used;
    const size_t wanted = strlen(name) + (used ? 2 : 0);
    if (list->n++ < NAMES_SHOWN && wanted < room)
        snprintf(list->names + used, room, "%s%s", used ? ", " : "", name);
}

void dl_tensor_list_warn(const dl_tensor_list *list, const char *what)
{
    if (list->n == 0) return;
    dl_log(DILOCO_LOG_WARN, "%zu tensor%s (%s%s): %s", list->n, list->n == 1 ? "" : "s",
           list->names, list->n > NAMES_SHOWN ? ", …" : "", what);
}

static const dl_st_tensor *find_vector(const dl_st *st, const dl_outer *outer, int k,
                                       const char *tensor)
{
    char name[2 * DILOCO_NAME_MAX];
    snprintf(name, sizeof name, "diloco.%s.%s", outer->state_names[k], tensor);
    return dl_st_find(st, name);
}

/* Returns whether the file has the tensor and all of its vectors with the model's type and
 * shape. */
static bool continues(const dl_st *st, const dl_outer *outer, const dl_manifest_tensor *t)
{
    const char *type = dl_dtype_name(dl_dtype_stored(t->dtype));
    bool fits = dl_continues(dl_st_find(st, t->name), type, t->shape, t->n_dims);
    for (int k = 0; k < outer->n_state && fits; k++)
        fits = dl_continues(find_vector(st, outer, k, t->name), type, t->shape, t->n_dims);
    return fits;
}

/* Compares the caller's values of a tensor with the file's, which may have lost bits in the
 * caller's type. */
static diloco_status must_be_equal(const dl_state *state, const dl_st *st,
                                   const dl_manifest_tensor *t)
{
    const float *ours = state->now[t->fragment].theta + t->offset;
    const float bits = t->dtype == DILOCO_BF16 ? 0x1p-7f : t->dtype == DILOCO_F16 ? 0x1p-10f : 0;
    const float least = t->dtype == DILOCO_F16 ? 0x1p-24f : 0;
    const unsigned char *theirs = st->data + dl_st_find(st, t->name)->begin;
    for (size_t i = 0; i < t->count; i++) {
        float x;
        memcpy(&x, theirs + i * sizeof x, sizeof x);
        if (!(fabsf(ours[i] - x) <= bits * fabsf(x) + least))
            return dl_fail(DILOCO_EDIFFERS,
                           "%s of the model is not that of the run that it continues, which has "
                           "%g at [%zu] and not %g: load its shared model first",
                           t->name, (double)x, i, (double)ours[i]);
    }
    return DILOCO_OK;
}

/* Copies all vectors of one tensor. A tensor that does not match is added to the list. The vectors
 * belong to the file's values, so other ones are refused. */
static diloco_status take(dl_state *state, const dl_st *st, const dl_manifest_tensor *t,
                          dl_tensor_list *lacking)
{
    const dl_outer *outer = state->outer;
    if (!continues(st, outer, t)) {
        dl_tensor_list_add(lacking, t->name);
        return DILOCO_OK;
    }
    DL_TRY(must_be_equal(state, st, t));
    for (int k = 0; k < outer->n_state; k++) {
        const dl_st_tensor *v = find_vector(st, outer, k, t->name);
        memcpy(state->now[t->fragment].outer[k] + t->offset, st->data + v->begin,
               v->end - v->begin);
    }
    return DILOCO_OK;
}

static bool has_tensor(const dl_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (!strcmp(m->tensors[i].name, name)) return true;
    return false;
}

/* Lists the file's tensors that this model does not have. Outer vectors are left out, because their
 * tensor is listed. */
static void warn_of_dropped(const dl_state *state, const dl_st *st)
{
    dl_tensor_list dropped = {0};
    for (size_t i = 0; i < st->n; i++) {
        const char *name = st->tensors[i].name;
        if (strncmp(name, "diloco.", 7) != 0 && !has_tensor(state->manifest, name))
            dl_tensor_list_add(&dropped, name);
    }
    dl_tensor_list_warn(&dropped, "not in this model, and left out");
}

/* Only trained tensors have vectors. An optimizer without vectors (sgd) has nothing to fill. */
static diloco_status take_all(void *context, const dl_st *st)
{
    dl_state *state = context;
    dl_tensor_list lacking = {0};
    for (size_t i = 0; i < state->manifest->n_tensors && state->outer->n_state > 0; i++)
        if (state->manifest->tensors[i].region == DL_TRAINED)
            DL_TRY(take(state, st, &state->manifest->tensors[i], &lacking));
    dl_tensor_list_warn(&lacking, "no state of this outer optimizer with the same type and shape, "
                                  "so it begins at zero");
    warn_of_dropped(state, st);
    return DILOCO_OK;
}

diloco_status dl_continue_outer(dl_state *state, const char *from)
{
    return dl_init_from(from, take_all, state);
}

/* An extension with its moments changes nothing that a warm-up could soften. */
void dl_continue_start(dl_continue_text out, const dl_config *config, bool inherited)
{
    char begin[64] = "its first step", soften[64] = "";
    const bool extends = config->init_as == DL_INIT_EXTENSION;
    if (extends) snprintf(begin, sizeof begin, "step %lld", (long long)config->first_step);
    if (!extends || !inherited)
        snprintf(soften, sizeof soften, "; parameters.learning_rate.%s_steps softens that",
                 extends ? "rewarm" : "warmup");
    snprintf(out, sizeof(dl_continue_text),
             "this new run begins with the model and the outer state of \"%.160s\". The inner "
             "optimizer begins %s, and the schedule \"%s\" and the data at %s%s",
             config->init_from,
             inherited ? "with the moments that this replica has left there"
                       : "without moments, since this replica has left none beside it here",
             config->lr_scheduler, begin, soften);
}

/* ---- H of both runs ----------------------------------------------------------------------- */

typedef struct pace {
    double local_steps, lr, mu; /* NaN: not recorded */
} pace;

/* Returns a number of the metadata, which has it as text, or NaN if it is missing or no number. */
static double number_of(dl_json_value metadata, const char *name)
{
    char text[DL_NUMBER_MAX + 1] = "";
    double value = (double)NAN;
    if (dl_json_read_str(text, sizeof text, metadata, name)) return (double)NAN;
    return dl_text_to_f64(&value, text, strlen(text)) ? value : (double)NAN;
}

static diloco_status read_pace(void *context, const dl_st *st)
{
    pace *p = context;
    p->local_steps = number_of(st->metadata, "local_steps_per_round");
    p->lr = number_of(st->metadata, "outer_learning_rate");
    p->mu = number_of(st->metadata, "outer_momentum");
    return DILOCO_OK;
}

/* Compares with tolerance, since the advice is printed with three digits. */
static bool is_near(double x, double y)
{
    return fabs(x - y) <= 0.01 * y;
}

/* Advises on momentum and nesterov. Returns false if the options have the advised values. gain is
 * the total movement that a momentum turns one pseudo-gradient into: lr / (1 - mu). It is kept
 * while mu changes with H. */
static bool advise(dl_continue_text out, const pace *before, const dl_config *config)
{
    const double ratio = (double)config->local_steps / before->local_steps;
    const double most = fmax(before->lr, dl_outer_of(config)->most_lr);
    const double gain = before->lr / (1 - before->mu);
    const double lr = fmin(most, gain * (1 - pow(before->mu, ratio))), mu = 1 - lr / gain;
    if (before->mu == 0 || before->lr == 0) return false;
    if (is_near(config->outer_lr, lr) && is_near(1 - config->outer_mu, 1 - mu)) return false;
    snprintf(out, sizeof(dl_continue_text),
             "trainer.local_steps_per_round is %g and was %g in the run that continues here. "
             "One movement is about %.3g times as long, and a momentum of %g lasts %.3g times "
             "as many steps. To keep that run's pace set server.diloco.outer_learning_rate = "
             "%.4g and server.diloco.outer_momentum = %.4g",
             (double)config->local_steps, before->local_steps, ratio, before->mu, ratio, lr, mu);
    return true;
}

/* The recorded numbers come from a file, so their ranges are checked before they are used. */
bool dl_continue_pace(dl_continue_text out, const dl_config *config)
{
    pace before = {(double)NAN, (double)NAN, (double)NAN};
    const double now = (double)config->local_steps;
    const dl_outer *outer = dl_outer_of(config);
    if (!dl_continue_is_asked(config) || dl_init_from(config->init_from, read_pace, &before))
        return false;
    const bool known = before.local_steps > 0 && before.lr >= 0 && before.mu >= 0 && before.mu < 1;
    if (!known || now == 0 || now == before.local_steps || outer->n_state == 0) return false;
    if (outer->linear) return advise(out, &before, config);
    snprintf(out, sizeof(dl_continue_text),
             "trainer.local_steps_per_round is %g and was %g in the run that continues here. "
             "The moments of %s are of movements about %.3g times as long, and fit again only "
             "after some 1 / (1 - server.diloco.outer_beta2) entries. To begin without them set "
             "trainer.init_as = \"model\"",
             now, before.local_steps, outer->name, before.local_steps / now);
    return true;
}
