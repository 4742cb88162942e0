/* extension.c - see extension.h. The offset is one option of run.json, so every replica has it,
 * whether it can read the other run or not. The schedule adds it (nn/lr_schedule.c), and so does
 * the first sample of a replica (join.c). The log's own positions begin at 0. */
#include "run/extension.h"

#include "base/run_kind.h"
#include "run/open.h"
#include "state/continuation.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_extension(const dl_config *c)
{
    return dl_continue_is_asked(c) && c->init_as == DL_INIT_EXTENSION;
}

/* Checks that the numbers of the first sample and of the last step fit an int64_t. */
static diloco_status check_first_step(const dl_config *c)
{
    int64_t steps;
    const int64_t samples = c->batch_size * c->accumulation; /* 1e18 at most, of one step */
    if (c->first_step > INT64_MAX / samples)
        return dl_fail(DILOCO_EINVAL,
                       "trainer.first_step x trainer.batch_size x "
                       "trainer.gradient_accumulation_steps is more samples than can be counted: "
                       "lower one of them");
    if (!__builtin_mul_overflow(c->rounds, c->local_steps, &steps) &&
        c->first_step <= INT64_MAX - steps)
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "trainer.first_step + trainer.rounds x "
                                  "trainer.local_steps_per_round is more steps than can be "
                                  "counted: lower one of them");
}

diloco_status dl_run_check_extension(const dl_config *c)
{
    DL_TRY(check_first_step(c));
    const char *why = dl_run_no_extension(c);
    if (!why || (!is_extension(c) && !c->first_step)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "trainer.init_as = \"extension\" and trainer.first_step do not go with %s. Take "
                   "init_as \"continuation\" and first_step 0",
                   why);
}

/* ---- the other run ------------------------------------------------------------------------ */

static diloco_status differs(const dl_config *c, const char *what, const char *theirs,
                             const char *ours)
{
    return dl_fail(
        DILOCO_EDIFFERS,
        "trainer.init_as = \"extension\" continues in the data where \"%s\" stopped, and "
        "%s is %s there and %s here, so a step has other samples. Give the same, or take "
        "init_as \"continuation\"",
        c->init_from, what, theirs, ours);
}

static diloco_status option_differs(const dl_config *c, const dl_config *theirs,
                                    const dl_option *row)
{
    unsigned char bytes[2][DL_PATH_MAX + 8];
    dl_buf text[2];
    for (int k = 0; k < 2; k++) {
        text[k] = (dl_buf){.data = bytes[k], .cap = sizeof bytes[k], .max = sizeof bytes[k]};
        DL_TRY(dl_option_text(&text[k], row, k ? c : theirs));
    }
    return differs(c, row->name, dl_buf_str(&text[0]), dl_buf_str(&text[1]));
}

static diloco_status compare(const dl_config *c, const dl_config *theirs)
{
    const char *why = dl_run_no_common_step(theirs);
    if (why)
        return dl_fail(
            DILOCO_EREFUSED,
            "trainer.init_as = \"extension\" needs a step at which all replicas of \"%s\" "
            "stopped, and that run has %s. Take init_as \"continuation\"",
            c->init_from, why);
    const dl_option *row = dl_run_samples_differ(c, theirs);
    return row ? option_differs(c, theirs, row) : DILOCO_OK;
}

/* Reads the other run's options and the digest of its data. */
static diloco_status read_other(dl_runfile *out, const char *url)
{
    dl_store *store;
    dl_hash digest;
    DL_TRY(dl_store_open(&store, url, false));
    const diloco_status status = dl_run_read(out, &digest, store);
    dl_store_close(store);
    return status;
}

static const char *const OURS = "extension"; /* the origin of a step that was read here before */

/* A step that was given is wrong. One that was read before has changed, so the other run trains. */
static diloco_status must_be_at(const dl_config *c, uint64_t first)
{
    if (c->first_step == 0 || (uint64_t)c->first_step == first) return DILOCO_OK;
    if (!strcmp(dl_config_origin(c, "trainer.first_step"), OURS))
        return dl_fail(DILOCO_EREFUSED,
                       "trainer.init_from = \"%s\": that run still trains, as it was at step "
                       "%" PRId64 " and is at %" PRIu64 ". Stop it first",
                       c->init_from, c->first_step, first);
    return dl_fail(DILOCO_EINVAL,
                   "trainer.first_step = %" PRId64 ", and the run \"%s\", which is to be extended, "
                   "stopped at %" PRIu64 ": leave it 0, and stop that run first",
                   c->first_step, c->init_from, first);
}

/* The other run may itself be an extension. */
static diloco_status set_first_step(dl_config *c, const dl_config *theirs)
{
    char text[24];
    uint64_t position;
    DL_TRY(diloco_run_position(&position, c->init_from));
    const uint64_t first = (uint64_t)theirs->first_step + position;
    if (position == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "trainer.init_from = \"%s\": that run has no entry yet, so there is nothing "
                       "to extend",
                       c->init_from);
    DL_TRY(must_be_at(c, first));
    snprintf(text, sizeof text, "%" PRIu64, first);
    DL_TRY(dl_config_set(c, "trainer.first_step", text, OURS));
    return check_first_step(c);
}

static diloco_status extend(dl_config *c, dl_runfile *other, const char *data_digest)
{
    diloco_status status = read_other(other, c->init_from);
    if (status) return dl_fail_context(status, "trainer.init_from = \"%s\"", c->init_from);
    status = compare(c, &other->config);
    if (!status && *data_digest && other->data_digest[0] &&
        strcmp(data_digest, other->data_digest) != 0)
        status = differs(c, "the digest of the training data", other->data_digest, data_digest);
    if (!status) status = set_first_step(c, &other->config);
    dl_runfile_deinit(other);
    return status;
}

diloco_status dl_run_extend(dl_config *c, const char *data_digest)
{
    if (!is_extension(c)) return DILOCO_OK;
    if (!dl_init_is_run(c->init_from))
        return dl_fail(
            DILOCO_EREFUSED,
            "trainer.init_as = \"extension\" needs the run itself, and "
            "trainer.init_from = \"%s\" is no folder or URL of one. Name the run, or take "
            "init_as \"continuation\"",
            c->init_from);
    dl_runfile *other = malloc(sizeof *other); /* too large for some stacks */
    if (!other) return dl_fail(DILOCO_ENOMEM, "out of memory for the run to extend");
    const diloco_status status = extend(c, other, data_digest);
    free(other);
    return status;
}

void dl_run_take_first_step(dl_config *c, const dl_config *run)
{
    if (is_extension(c) && c->first_step == 0) c->first_step = run->first_step;
}
