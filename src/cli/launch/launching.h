/* launching.h - the common part of `diloco launch` and `diloco launch job`, in one call of either.
 *
 * The order of a call is: settings, the words of a replica, the spec, then either a print of the
 * requests (--dry-run) or the book and its replicas. The command itself decides what a replica
 * runs, and when everything is complete. */
#ifndef DL_CLI_LAUNCH_LAUNCHING_H
#define DL_CLI_LAUNCH_LAUNCHING_H

#include "cli/launch/launched.h"
#include "cli/launch/store_bill.h"

/* Arguments of a replica, names in one list, bytes of one option's text. */
enum {
    DL_LAUNCHING_WORDS = 2 * DL_CONFIG_MAX_OPTIONS + 16,
    DL_LAUNCHING_NAMES = 64,
    DL_LAUNCHING_TEXT = 1 << 20
};

/* The cost of a launch, in the currency of the prices. */
typedef struct dl_launching_money {
    dl_prices prices; /* of launch.prices */
    bool priced;      /* there is such a table */
    /* Owned; NULL: the store has no price, or no run. */
    dl_store_meter *meter;
    double store;    /* cost of the store at the last look */
    dl_time read_at; /* when the meter was last read; 0: never */
    bool failed;     /* that could not be read was reported */
} dl_launching_money;

/* One call of the command. It is large, so it is on the heap; the lists own their texts. */
typedef struct dl_launching {
    dl_config *config; /* owned by the command */
    const dl_args *args;
    const char *what;                   /* "run" or "batch": for messages */
    dl_launch_spec spec;                /* points into the rest */
    const dl_executor *executor;        /* a row of the table */
    dl_book book;                       /* open from dl_launching_follow on */
    uint32_t min, max;                  /* replicas: wanted at least, at most */
    dl_launching_money money;           /* spent so far */
    char run[33];                       /* id of the run or the batch */
    bool done;                          /* the run is complete */
    dl_config_path dir, store, program; /* as the replicas see them */
    dl_config_path trained;             /* of a batch: job.run, as its ranks see it; "": none */
    /* owned, each until NULL */
    char *words[DL_LAUNCHING_WORDS + 1], *env[DL_LAUNCHING_NAMES + 1],
        *secrets[DL_LAUNCHING_NAMES + 1];
    /* Sets *done if everything is complete. `user` is this call. */
    diloco_status (*is_done)(void *user, bool *done);
} dl_launching;

/* A command's own part of a call. */
typedef diloco_status (*dl_launching_fn)(dl_launching *l);

/* dl_launching_call runs fn with a new call of `what`, and frees it. Returns DILOCO_ENOMEM, or what
 * fn returns. */
DL_MUST_CHECK diloco_status dl_launching_call(const dl_args *args, const char *what,
                                              dl_launching_fn fn);

/* dl_launching_add appends a copy of text[len] to a list with room for `most` texts and a NULL.
 * Returns DILOCO_EINVAL if it is full. */
DL_MUST_CHECK diloco_status dl_launching_add(char **list, size_t most, const char *text,
                                             size_t len);
DL_MUST_CHECK diloco_status dl_launching_add_word(dl_launching *l, const char *text);

/* dl_launching_settings loads the settings, finds the executor, and checks its options and the
 * budget. Returns DILOCO_EINVAL or DILOCO_EREFUSED, before anything is created. */
DL_MUST_CHECK diloco_status dl_launching_settings(dl_launching *l);

/* dl_launching_place writes a store's URL as each process of the launch can open it: a path is made
 * absolute. `option` names the setting for error texts. Returns DILOCO_EREFUSED for a mem:// store,
 * and for a folder of this machine if replicas run in an image. */
DL_MUST_CHECK diloco_status dl_launching_place(dl_config_path out, const dl_launching *l,
                                               const char *option, const char *url);

/* dl_launching_lists reads launch.env and launch.secrets. Returns DILOCO_EINVAL for a variable that
 * is no NAME=VALUE, for a secret that the environment lacks, and for a list of more than
 * DL_LAUNCHING_NAMES. */
DL_MUST_CHECK diloco_status dl_launching_lists(dl_launching *l);

/* dl_launching_spec fills in the spec of program, words and lists. Every executor checks it, before
 * anything is created. */
DL_MUST_CHECK diloco_status dl_launching_spec(dl_launching *l);

/* dl_launching_spent writes the cost of the launch of l->run so far. It opens the book for that, so
 * it is called before dl_launching_follow. 0: there are no prices. Returns errors of the book. */
DL_MUST_CHECK diloco_status dl_launching_spent(double *cost, dl_launching *l);

/* dl_launching_notice prints a line of progress, unless --quiet was given. The line may quote a
 * backend. */
void dl_launching_notice(const dl_launching *l, const char *line);

/* dl_launching_print prints the requests that would be sent now, and sends nothing. l->run is set.
 */
DL_MUST_CHECK diloco_status dl_launching_print(dl_launching *l);

/* dl_launching_prepare prints what a replica runs as JSON, for an executor outside of this program.
 * l->run is set. Returns the errors of output. */
DL_MUST_CHECK diloco_status dl_launching_prepare(const dl_launching *l);

/* dl_launching_follow opens the book of l->run, starts the replicas and follows them until
 * l->is_done says that everything is complete; with --detach it only starts them. Returns errors of
 * the book and of supervisor.h. */
DL_MUST_CHECK diloco_status dl_launching_follow(dl_launching *l);

#endif
