/* launch_numbers.c - see launch_numbers.h. */
#include "cli/launch/launch_numbers.h"

#include "base/run_kind.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

diloco_status dl_launch_numbers_fit(dl_config *config, uint32_t min, uint32_t max)
{
    char text[24];
    if (!dl_config_given(config, "run.replicas")) {
        snprintf(text, sizeof text, "%u", max);
        DL_TRY(dl_config_set(config, "run.replicas", text, "--replicas"));
    }
    if (min == max || dl_config_given(config, "run.min_replicas")) return DILOCO_OK;
    snprintf(text, sizeof text, "%u", min);
    return dl_config_set(config, "run.min_replicas", text, "--replicas");
}

/* "2", or "2..4". */
typedef char numbers[24];
static const char *numbers_text(numbers out, uint32_t min, uint32_t max)
{
    if (min == max)
        snprintf(out, sizeof(numbers), "%u", max);
    else
        snprintf(out, sizeof(numbers), "%u..%u", min, max);
    return out;
}

/* Do the settings permit that other people start the rest, or that the run begins without it? */
static bool may_begin(const dl_config *config, uint32_t max)
{
    const bool says = dl_config_given(config, "run.min_replicas");
    return config->roster == DL_OPEN || (says && config->min_replicas <= (int64_t)max);
}

static diloco_status refuse_few(const dl_config *config, const char *asked, uint32_t max)
{
    const int64_t wanted = config->replicas;
    return dl_fail(DILOCO_EREFUSED,
                   "--replicas %s: the new run waits for more, run.replicas = %" PRId64 " (%s). "
                   "Add --set run.replicas=%u, or start all with --replicas %" PRId64 ". If "
                   "others start the rest, add --set run.min_replicas=%u: the run begins with "
                   "fewer after run.start_timeout",
                   asked, wanted, dl_config_origin(config, "run.replicas"), max, wanted, max);
}

static diloco_status refuse_many(const dl_config *config, const char *asked, uint32_t max)
{
    const int64_t wanted = config->replicas;
    return dl_fail(DILOCO_EREFUSED,
                   "--replicas %s: the new run begins with fewer, run.replicas = %" PRId64 " (%s). "
                   "Add --set run.replicas=%u, or --replicas %" PRId64 "..%u if it may",
                   asked, wanted, dl_config_origin(config, "run.replicas"), max, wanted, max);
}

diloco_status dl_launch_numbers_new(char warning[DL_LAUNCH_NUMBERS_TEXT], const dl_config *config,
                                    uint32_t min, uint32_t max)
{
    numbers asked;
    const int64_t wanted = config->replicas;
    *warning = '\0';
    numbers_text(asked, min, max);
    /* Entries of one contribution each wait for no other replica. */
    if (dl_run_kind_of(config)->one_by_one) return DILOCO_OK;
    if (wanted < (int64_t)min) return refuse_many(config, asked, max);
    if (wanted <= (int64_t)max) return DILOCO_OK;
    if (!may_begin(config, max)) return refuse_few(config, asked, max);
    snprintf(warning, DL_LAUNCH_NUMBERS_TEXT,
             "run.replicas = %" PRId64 " (%s), and --replicas %s starts fewer: the first entry "
             "waits %g s (run.start_timeout) for the others, and then for run.min_replicas = "
             "%" PRId64,
             wanted, dl_config_origin(config, "run.replicas"), asked, config->start_timeout_s,
             (int64_t)config->min_replicas);
    return DILOCO_OK;
}

/* Is this the name of a rank below max? */
static bool is_rank(const char *name, uint32_t max)
{
    uint64_t rank;
    return name[0] == 'r' && dl_text_to_u64(&rank, name + 1, strlen(name + 1)) && rank < max;
}

void dl_launch_numbers_existing(char warning[DL_LAUNCH_NUMBERS_TEXT], const diloco_run_status *run,
                                uint32_t max)
{
    size_t n = max;
    *warning = '\0';
    if (run->done || !run->wait || run->entries) return;
    for (size_t i = 0; i < run->n_replicas; i++)
        n += !run->replicas[i]->ended && !is_rank(run->replicas[i]->replica, max);
    n += run->n_left_out;
    if (n >= run->wait->n_awaited) return;
    snprintf(warning, DL_LAUNCH_NUMBERS_TEXT,
             "the first entry of this run waits for %zu replicas (run.replicas), and with those of "
             "this launch it has %zu. Launch or join %zu more, or it waits for run.start_timeout",
             run->wait->n_awaited, n, run->wait->n_awaited - n);
}
