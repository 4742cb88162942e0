/* config.h - every setting of a run: the options of all modules in one struct, and their table.
 *
 * A new option is one row in the list of its module (base/options): the row gives the field, its
 * type, parser, checks, help and page. A new module is a file with a list, and a line here. Names
 * of options follow the field's own tools (docs/architecture.md section 6): Plato's sections,
 * torchft's aliases. */
#ifndef DL_BASE_CONFIG_H
#define DL_BASE_CONFIG_H

#include "base/options/check_options.h"
#include "base/options/clients_options.h"
#include "base/options/combine_options.h"
#include "base/options/data_options.h"
#include "base/options/launch_options.h"
#include "base/options/model_options.h"
#include "base/options/outer_options.h"
#include "base/options/results_options.h"
#include "base/options/run_options.h"
#include "base/options/schedule_options.h"
#include "base/options/swarm_options.h"
#include "base/options/trainer_options.h"
#include "base/options/wire_options.h"
#include <diloco/config.h>

enum { DL_CONFIG_MAX_OPTIONS = 320 };

/* The modules with their enums and rows, in the order in which --help and docs/options.md show
 * them. */
// clang-format off
#define DL_NO_CHOICES(X)
#define DL_OPTION_MODULES(M) \
    M(run, DL_RUN_CHOICES, DL_RUN_OPTIONS) \
    M(clients, DL_CLIENTS_CHOICES, DL_CLIENTS_OPTIONS) \
    M(swarm, DL_SWARM_CHOICES, DL_SWARM_OPTIONS) \
    M(outer, DL_OUTER_CHOICES, DL_OUTER_OPTIONS) \
    M(combine, DL_COMBINE_CHOICES, DL_COMBINE_OPTIONS) \
    M(wire, DL_WIRE_CHOICES, DL_WIRE_OPTIONS) \
    M(schedule, DL_SCHEDULE_CHOICES, DL_SCHEDULE_OPTIONS) \
    M(check, DL_NO_CHOICES, DL_CHECK_OPTIONS) \
    M(trainer, DL_TRAINER_CHOICES, DL_TRAINER_OPTIONS) \
    M(model, DL_MODEL_CHOICES, DL_MODEL_OPTIONS) \
    M(data, DL_DATA_CHOICES, DL_DATA_OPTIONS) \
    M(results, DL_NO_CHOICES, DL_RESULTS_OPTIONS) \
    M(launch, DL_NO_CHOICES, DL_LAUNCH_OPTIONS)
// clang-format on

/* Each field is a member of its own (config->seed) and of its module's struct
 * (config->run_options.seed). */
#define DL_MODULE_FIELDS(module, choices, rows)                                                    \
    union {                                                                                        \
        struct {                                                                                   \
            rows(DL_OPTION_FIELD)                                                                  \
        };                                                                                         \
        dl_##module##_options module##_options;                                                    \
    };

typedef struct diloco_config {
    DL_OPTION_MODULES(DL_MODULE_FIELDS)

    bool first_generation; /* no option, but of one start: the name was free when it was chosen */

    dl_origin origins[DL_CONFIG_MAX_OPTIONS]; /* by row */

    const struct dl_own_rows *own; /* no option: base/own.h; borrowed, NULL: none */
} dl_config;

extern const dl_option_table dl_config_table;

void dl_config_init(dl_config *config); /* all defaults */

/* Set by name or alias (DILOCO_EINVAL as dl_option_set). */
DL_MUST_CHECK diloco_status dl_config_set(dl_config *config, const char *name, const char *text,
                                          const char *origin);
const char *dl_config_origin(const dl_config *config, const char *name);
/* Set by anything but the default? */
bool dl_config_given(const dl_config *config, const char *name);

/* Are contributions compared with each other by their directions? */
static inline bool dl_config_checks_directions(const dl_config *config)
{
    return config->check_cosine > -1 || (config->check_copy > 0 && config->check_copy < 1);
}
/* Replicas that this machine runs. */
static inline int64_t dl_local_replicas(const dl_config *config)
{
    return config->local_replicas ? config->local_replicas : config->replicas;
}
/* Do logical clients train (docs/federated.md), and not the replicas themselves? */
static inline bool dl_config_federated(const dl_config *config)
{
    return config->total_clients > 0;
}
/* How many of them a round asks. */
static inline size_t dl_config_per_round(const dl_config *config)
{
    return (size_t)(config->per_round ? config->per_round : config->total_clients);
}

#endif
