/* args.h - the command line of the program: the tables of flags and of subcommands, and the parsed
 * arguments of a command. */
#ifndef DL_CLI_ARGS_H
#define DL_CLI_ARGS_H

#include "base/size.h"
#include "base/status.h"

/* ---- flags; a row each in args.c */

/* Numbers of the flags: indexes of dl_flag_rows and of dl_args.flags. The order here is the
 * order in help. */
typedef enum dl_flag {
    DL_FLAG_HELP,
    DL_FLAG_HELP_ALL,
    DL_FLAG_REPLICAS,
    DL_FLAG_STORE,
    DL_FLAG_COORD,
    DL_FLAG_ROLE,
    DL_FLAG_SEED,
    DL_FLAG_PRESET,
    DL_FLAG_RECORD,
    DL_FLAG_SET,
    DL_FLAG_PRINT_CONFIG,
    DL_FLAG_JSON,
    DL_FLAG_QUIET,
    DL_FLAG_VERBOSE,
    DL_FLAG_FROM,
    DL_FLAG_LAST,
    DL_FLAG_MOVED,
    DL_FLAG_TRAFFIC,
    DL_FLAG_EVENTS,
    DL_FLAG_FROM_SNAPSHOT, /* of verify */
    DL_FLAG_PROMPT,
    DL_FLAG_TOKENS,
    DL_FLAG_TEMPERATURE,
    DL_FLAG_TOP_K,
    DL_FLAG_TOP_P,
    DL_FLAG_SAMPLE_SEED,
    DL_FLAG_MARKDOWN,
    DL_FLAG_RUN_LINK,
    DL_FLAG_REPLICA, /* of takeover */
    DL_FLAG_NEW,     /* of replica */
    DL_FLAG_HIDE,    /* of ship */
    DL_FLAG_LISTEN,  /* from here on: of serve */
    DL_FLAG_CERT,
    DL_FLAG_KEY,
    DL_FLAG_MAKE_CERT,
    DL_FLAG_TOKEN_FILE,
    DL_FLAG_S3_KEYS,
    DL_FLAG_MAX_OBJECT,
    DL_FLAG_MAX_CONNECTIONS,
    DL_FLAG_INSECURE,
    DL_FLAG_SET_VALUES,
    DL_FLAG_SEEDS,
    DL_FLAG_EQUAL_STEPS,
    DL_FLAG_OUT,
    DL_FLAG_TRIALS, /* from here on: of tune */
    DL_FLAG_TUNE_STEPS,
    DL_FLAG_TUNE_SEEDS,
    DL_FLAG_MAX_SENT,
    DL_FLAG_TUNE_OUT,
    DL_FLAG_PARAMS, /* from here on: of plan */
    DL_FLAG_LAYERS,
    DL_FLAG_STEP_SECONDS,
    DL_FLAG_STEPS,
    DL_FLAG_PLAN_REPLICAS,
    DL_FLAG_GBIT,
    DL_FLAG_LATENCY,
    DL_FLAG_LINK,
    DL_FLAG_PROBE,
    DL_FLAG_COST,
    DL_FLAG_ADVICE,
    DL_FLAG_METHOD,
    DL_FLAG_SYNC_EVERY,
    DL_FLAG_FRAGMENT_LAYERS,
    DL_FLAG_TAU,
    DL_FLAG_BITS,
    DL_FLAG_EXCHANGE,
    DL_FLAG_UTILIZATION,
    DL_FLAG_GRID,
    DL_FLAG_REPLAY,
    DL_FLAG_RECORDED_LINK,
    DL_FLAG_TO, /* from here on: of import and export */
    DL_FLAG_TO_PATH,
    DL_FLAG_DTYPE,
    DL_FLAG_ADAPTER,
    DL_FLAG_TEXT, /* from here on: of data tokenizer and data prepare */
    DL_FLAG_TOKENIZER,
    DL_FLAG_VOCAB,
    DL_FLAG_WORDS,
    DL_FLAG_MODEL, /* of init */
    DL_FLAG_PEER,  /* of join */
    DL_FLAG_WHY,   /* from here on: of status */
    DL_FLAG_WATCH,
    DL_FLAG_ID_KEY,  /* of id and invite */
    DL_FLAG_FOR,     /* of invite */
    DL_FLAG_MEMBERS, /* of serve */
    DL_FLAG_JOIN_LINE,
    DL_FLAG_COMPARE, /* of report */
    DL_FLAG_REPORT_OUT,
    DL_FLAG_RANK, /* of join; from here on: of launch */
    DL_FLAG_ON,
    DL_FLAG_LAUNCH_REPLICAS,
    DL_FLAG_DRY_RUN,
    DL_FLAG_DETACH,
    DL_FLAG_PREPARE,
    DL_FLAG_FOLLOW,
    DL_FLAG_TIMEOUT,
    DL_FLAG_NO_BROWSER, /* of ui */
    DL_FLAG_ONCE,       /* of watch */
    DL_FLAG_TRACKER,    /* from here on: of track */
    DL_FLAG_PROJECT,
    DL_FLAG_SENT,
    DL_FLAG_TRACK_ONCE,
    DL_FLAG_BUDGET, /* from here on: of launch */
    DL_FLAG_LAUNCH_STEP,
    DL_FLAG_LAUNCH_LINK,
    DL_N_FLAGS
} dl_flag;

/* A list of flags in a row of a table. It is an array literal that DL_N_FLAGS ends, so it needs no
 * length beside it. */
#define DL_FLAGS(...) ((const dl_flag[]){__VA_ARGS__, DL_N_FLAGS})
bool dl_flags_have(const dl_flag *list, size_t flag); /* NULL: an empty list */

/* A flag of the command line. All texts are constants. */
typedef struct dl_flag_row {
    const char *name;   /* "--replicas" */
    const char *value;  /* "N"; NULL: a switch */
    const char *option; /* the option it is short for, or NULL */
    const char *help;
} dl_flag_row;
extern const dl_flag_row dl_flag_rows[DL_N_FLAGS];

/* ---- subcommands */

typedef struct dl_args dl_args;

/* Options that --set of a command takes: none, those that may differ between machines, or all. */
typedef enum dl_sets { DL_SETS_NONE, DL_SETS_MACHINE, DL_SETS_ALL } dl_sets;

/* The words that complete a command's argument, beside or instead of the names of files. */
typedef enum dl_completion {
    DL_COMPLETE_NONE, /* files, and the second words of commands that begin with this one */
    DL_COMPLETE_COMMANDS,
    DL_COMPLETE_OPTIONS,
    DL_COMPLETE_PRESETS,
    DL_COMPLETE_SHELLS
} dl_completion;

/* A subcommand. It is defined in its own file as dl_command_<name>, and listed in command_rows.h.
 * All members are constants, and the program never changes them. */
typedef struct dl_command {
    const char *name;     /* of one word, or of two: "data prepare" */
    const char *target;   /* "URL", "[CONFIG]" where it may be left out, NULL without one */
    dl_completion words;  /* of the target */
    dl_flag second;       /* a second argument is the value of this flag; 0: an error */
    const char *summary;  /* one line; NULL: hidden */
    const char *details;  /* more for --help, or NULL */
    const dl_flag *flags; /* its flags beside --help, or NULL */
    dl_sets sets;         /* with DL_FLAG_SET */
    bool takes_rest;      /* after "--" it takes any words: dl_args.rest */
    diloco_status (*run)(const dl_args *args);
} dl_command;

extern const dl_command *const dl_commands[]; /* in the order of help; ends with NULL */

/* Return true if the command takes this flag: one of its own, --help, or --help=all where the
 * command has options. */
bool dl_command_takes(const dl_command *command, size_t flag);

const dl_command *dl_command_find(const char *name); /* NULL: none */

/* ---- arguments */

enum { DL_ARGS_MAX_SETS = 128 };

/* A command line after parsing. Texts are argv's and are borrowed from it. A flag that the command
 * does not take is never set. */
struct dl_args {
    const dl_command *command;
    const char *target;                 /* NULL: not given */
    const char *flags[DL_N_FLAGS];      /* the text of each; "" for a switch; NULL: not given */
    const char *sets[DL_ARGS_MAX_SETS]; /* "key=value", in order */
    size_t n_sets;
    const char *values[DL_ARGS_MAX_SETS]; /* of --set-values: "key=v1,v2", in order */
    size_t n_values;
    const char *compared[DL_ARGS_MAX_SETS]; /* of --compare, in order */
    size_t n_compared;
    char *const *rest; /* the words after "--", until NULL; NULL: the command takes none */
    int argc;          /* the whole command line, to be said again */
    char **argv;
    const char *blotted[2]; /* in argv: URLs that have lost a secret after '#' (join_line.h) */
};

/* dl_args_parse reads argv[first] and the following words as flags and target of `command`. The
 * texts stay argv's. With --help parsing stops, so nothing else is required. Returns DILOCO_EINVAL
 * for an unknown flag (with the nearest name), a flag without its value or given twice with two
 * values, a missing target, or one argument too many. */
DL_MUST_CHECK diloco_status dl_args_parse(dl_args *out, const dl_command *command, int argc,
                                          char **argv, int first);
bool dl_args_has(const dl_args *args, dl_flag flag);
/* dl_args_again writes the command line as it was, quoted for a shell, so that a person can repeat
 * it. "#…" stands for a secret that was blotted out. */
void dl_args_again(char *out, size_t cap, const dl_args *args);
/* dl_args_u64 and dl_args_f64 read the value of a number flag: a number from 0 to `max`, `fallback`
 * if the flag was not given. They return DILOCO_EINVAL, with the range, for any other text. */
DL_MUST_CHECK diloco_status dl_args_u64(uint64_t *out, const dl_args *args, dl_flag flag,
                                        uint64_t fallback, uint64_t max);
DL_MUST_CHECK diloco_status dl_args_f64(double *out, const dl_args *args, dl_flag flag,
                                        double fallback, double max);

/* dl_nearest returns the name in names[n] that is nearest to a misspelt one, or NULL if none is
 * near. n is at most 64. The result is one of the given pointers. */
const char *dl_nearest(const char *const *names, size_t n, const char *name);

#endif
