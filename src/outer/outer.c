/* outer.c - the table of outer optimizers. */
#include "base/own.h"
#include "outer/outer_rows.h"

#include <pthread.h>
#include <string.h>

#define ROW(name) &dl_outer_##name,
static const dl_outer *const rows[] = {DL_OUTERS(ROW)};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const dl_outer *dl_outer_at(size_t i)
{
    return i < N_ROWS ? rows[i] : NULL;
}

const dl_outer *dl_outer_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}

/* The same rows, each with the last update after its own vectors. They are made once, before any
 * thread reads them, and do not change afterwards. */
static dl_outer keeping[N_ROWS];
static pthread_once_t keeping_once = PTHREAD_ONCE_INIT;

dl_outer dl_outer_keeping(const dl_outer *row)
{
    dl_outer kept = *row;
    DL_ASSERT(row->n_state < DL_OUTER_MAX_STATE);
    kept.state_names[kept.n_state++] = "update";
    kept.keeps = true;
    return kept;
}

static void make_keeping(void)
{
    for (size_t i = 0; i < N_ROWS; i++)
        keeping[i] = dl_outer_keeping(rows[i]);
}

const dl_outer *dl_outer_beside(const char *name, const dl_combiner *combiner)
{
    if (!combiner || !combiner->keeps) return dl_outer_find(name);
    pthread_once(&keeping_once, make_keeping);
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(keeping[i].name, name) == 0) return &keeping[i];
    return NULL;
}

/* The caller's own optimizer counts only if the run's options name it. */
const dl_outer *dl_outer_of(const dl_config *config)
{
    const dl_combiner *combiner = dl_combiner_of(config);
    const dl_outer *own = config->own ? config->own->outer : NULL;
    if (!own || strcmp(own->name, config->outer_optimizer) != 0)
        return dl_outer_beside(config->outer_optimizer, combiner);
    return combiner && combiner->keeps ? config->own->outer_keeping : own;
}

dl_outer_settings dl_outer_settings_of(const dl_config *config)
{
    return (dl_outer_settings){.lr = config->outer_lr,
                               .mu = config->outer_mu,
                               .beta1 = config->beta1,
                               .beta2 = config->beta2,
                               .eps = config->eps,
                               .weight_decay = config->weight_decay,
                               .inner_lr = config->lr,
                               .muon_lr = config->muon_lr,
                               .muon_momentum = config->muon_momentum,
                               .muon_nesterov = config->muon_nesterov,
                               .muon_steps = config->muon_steps,
                               .outer_beta1 = config->outer_beta1,
                               .outer_beta2 = config->outer_beta2,
                               .outer_eps = config->outer_eps,
                               .outer_c = config->outer_c,
                               .outer_beta = config->outer_beta,
                               .outer_buffer = (uint64_t)config->outer_buffer};
}

diloco_status dl_outer_check(const dl_config *config)
{
    const dl_outer *row = dl_outer_of(config);
    if (!row) return dl_no_row("outer optimizer", config->outer_optimizer);
    dl_outer_settings settings = dl_outer_settings_of(config);
    return row->check ? row->check(&settings) : DILOCO_OK;
}
