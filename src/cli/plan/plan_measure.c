/* plan_measure.c - how long a step takes here: train for a few seconds, alone, and look at the
 * record.
 *
 * The run is in a folder of its own that is removed after it; its only entry is never reached.
 * The result is the median of the steps after the first ones, which touch their memory for the
 * first time. */
#include "cli/crew/crew.h"
#include "cli/plan/plan_pages.h"
#include <diloco/train.h>

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Steps that are left out, that are needed, and that are kept at most. */
enum { FIRST_STEPS = 3, MIN_STEPS = 8, MAX_STEPS = 200 };
static const double ENOUGH_S = 5;

/* The steps that were measured. The record's callback fills it; `stop` ends the training. */
typedef struct meter {
    double seconds[MAX_STEPS]; /* of each step that counts */
    size_t n, seen;            /* kept; with those that were left out */
    double total;              /* seconds of all steps */
    volatile int stop;         /* 1 ends the training */
} meter;

/* Called for each line of the record. Training stops after MAX_STEPS, or after ENOUGH_S seconds
 * with MIN_STEPS. */
static void on_line(void *user, const char *line, size_t len)
{
    meter *m = user;
    dl_json_value value;
    char event[32];
    double tokens, rate;
    if (dl_json_parse(&value, line, len) || dl_json_read_str(event, sizeof event, value, "event") ||
        strcmp(event, "step") != 0 || dl_json_read_f64(&tokens, value, "tokens") ||
        dl_json_read_f64(&rate, value, "tokens_per_s") || !(rate > 0))
        return;
    m->total += tokens / rate;
    if (m->seen++ >= FIRST_STEPS && m->n < MAX_STEPS) m->seconds[m->n++] = tokens / rate;
    if (m->n == MAX_STEPS || (m->n >= MIN_STEPS && m->total > ENOUGH_S))
        __atomic_store_n(&m->stop, 1, __ATOMIC_RELAXED);
}

/* The order for the median. No NAN reaches it: on_line refuses rates that are not positive. */
static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* nftw calls it for each file, and for a folder after all that is in it (FTW_DEPTH). */
static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

/* Change the configuration to one replica that trains alone, and never reaches an entry. It
 * writes no record, and evaluates nothing. */
static diloco_status alone_in(dl_config *config, const char *folder)
{
    static const char *const values[][2] = {
        {"trainer.rounds", "1"},     {"trainer.local_steps_per_round", "1000000"},
        {"trainer.eval_every", "0"}, {"run.record", ""},
        {"run.local_replicas", "1"},
    };
    char path[512];
    DL_TRY(diloco_preset_apply(config, "single"));
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        DL_TRY(dl_config_set(config, values[i][0], values[i][1], "plan"));
    snprintf(path, sizeof path, "%s/run", folder);
    DL_TRY(dl_config_set(config, "run.store", path, "plan"));
    snprintf(path, sizeof path, "%s/state", folder);
    return dl_config_set(config, "run.state_dir", path, "plan");
}

/* Being stopped by the meter is the expected end. */
static diloco_status train_in(meter *m, dl_config *config, const char *folder)
{
    const diloco_train_hooks hooks = {.on_record = on_line, .user = m, .stop = &m->stop};
    DL_TRY(alone_in(config, folder));
    diloco_status status = diloco_train_create(config);
    if (!status) status = diloco_train(config, "r0", &hooks);
    if (status == DILOCO_EINTERRUPTED && m->stop) status = DILOCO_OK;
    if (!status && !m->n)
        status = dl_fail(DILOCO_EINVAL, "no step was measured; give --step-seconds");
    return status;
}

/* The caller's configuration is copied, so it stays as it was. A full disk is reported with its
 * remedy. */
diloco_status dl_plan_measure(double *step_s, const dl_config *config)
{
    /* Both are large, hence static; this is called once. */
    static meter m;
    static dl_config own;
    const char *tmp = getenv("TMPDIR");
    char folder[256];
    int len = snprintf(folder, sizeof folder, "%s/diloco-plan-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (len < 0 || (size_t)len >= sizeof folder || !mkdtemp(folder))
        return dl_fail(DILOCO_EIO, "no folder for a short training run in %s: %s; set TMPDIR",
                       tmp && *tmp ? tmp : "/tmp", strerror(errno));
    m = (meter){.n = 0};
    own = *config;
    fprintf(stderr,
            "diloco: training for some seconds to measure a step (or give --step-seconds)\n");
    diloco_status status = train_in(&m, &own, folder);
    /* The folder is removed before the result is looked at. */
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (status == DILOCO_EFULL)
        return dl_fail_context(status, "no step was measured; set TMPDIR to a folder with free "
                                       "space, or give --step-seconds");
    if (status) return status;
    qsort(m.seconds, m.n, sizeof m.seconds[0], ascending);
    /* The median, as other programs disturb some steps. */
    *step_s = m.seconds[m.n / 2];
    return DILOCO_OK;
}
