/* args.c - the flags of all commands in one table, and a command line read with it.
 *
 * A new flag is a member of dl_flag (args.h), its row here, and its mention in the .flags of the
 * commands that take it. Help, completion and manual pages are written from the rows. Parsing
 * copies nothing: dl_args holds pointers into argv. The value of an option is checked later by the
 * option table, so a flag that is short for an option has no rule of its own here. */
#include "cli/args.h"

#include "base/option.h"
#include "base/text.h"
#include "cli/display/units.h"

#include <stdio.h>
#include <string.h>

/* A flag that means different things in two commands has two rows of one name, such as --seed
 * and --out. A command may list only one of them. A row with an option is short for --set of
 * that option. */
const dl_flag_row dl_flag_rows[DL_N_FLAGS] = {
    [DL_FLAG_HELP] = {"--help", NULL, NULL, "this text"},
    [DL_FLAG_HELP_ALL] = {"--help=all", NULL, NULL,
                          "print this text with the advanced options, too"},
    [DL_FLAG_REPLICAS] = {"--replicas", "N", "run.local_replicas",
                          "replicas here, a process each; run.replicas at least N"},
    [DL_FLAG_ROLE] = {"--role", "ROLE", "run.role",
                      "with logical clients: server (closes rounds), worker (trains), both"},
    [DL_FLAG_STORE] = {"--store", "URL", "run.store", "place of the run's log"},
    [DL_FLAG_COORD] = {"--coord", "URL", "run.coord",
                       "separate store for the log's decisions: etcd://HOST:PORT/RUN"},
    [DL_FLAG_SEED] = {"--seed", "S", "run.seed", "key of every random draw"},
    [DL_FLAG_PRESET] = {"--preset", "NAME", "preset",
                        "algorithm of a paper whose values the run starts from"},
    [DL_FLAG_RECORD] = {"--record", "FILE", "run.record", "append the record to this file"},
    [DL_FLAG_SET] = {"--set", "KEY=VALUE", NULL, "set one option; may be repeated"},
    [DL_FLAG_PRINT_CONFIG] = {"--print-config", NULL, NULL,
                              "show every value and where it came from, and stop"},
    [DL_FLAG_JSON] = {"--json", NULL, NULL, "one JSON object (log: one a line) on stdout"},
    [DL_FLAG_QUIET] = {"--quiet", NULL, NULL,
                       "errors only, no progress; a run's warnings are in its record"},
    [DL_FLAG_VERBOSE] = {"--verbose", NULL, NULL, "print the messages of the library, too"},
    [DL_FLAG_MOVED] = {"--moved", "E", NULL, "instead: how far entry E moved each tensor"},
    [DL_FLAG_TRAFFIC] = {"--traffic", NULL, NULL,
                         "instead: the traffic of each commit, from the replicas' records"},
    [DL_FLAG_EVENTS] = {"--events", NULL, NULL, "the lines of the replicas' records, instead"},
    [DL_FLAG_FROM] = {"--from", "E", NULL, "first entry to show"},
    [DL_FLAG_LAST] = {"--last", "N", NULL, "only the newest N entries"},
    [DL_FLAG_FROM_SNAPSHOT] = {"--from-snapshot", NULL, NULL,
                               "only the entries since the oldest snapshot that is kept"},
    [DL_FLAG_PROMPT] = {"--prompt", "TEXT", NULL, "text to continue"},
    [DL_FLAG_TOKENS] = {"--tokens", "N", NULL, "tokens to sample (default 200)"},
    [DL_FLAG_TEMPERATURE] = {"--temperature", "X", NULL,
                             "0: always the likeliest token (default 0.8)"},
    [DL_FLAG_TOP_K] = {"--top-k", "K", NULL, "draw among the K likeliest tokens (default all)"},
    [DL_FLAG_TOP_P] = {"--top-p", "P", NULL,
                       "draw among the likeliest that together have probability P (default all)"},
    [DL_FLAG_SAMPLE_SEED] = {"--seed", "S", NULL, "seed of the random draws (default 1)"},
    [DL_FLAG_MARKDOWN] = {"--markdown", NULL, NULL, "print the page docs/options.md"},
    [DL_FLAG_RUN_LINK] = {"--link", "LINK", "run.link",
                          "try a slower link to the store: 10mbit,100ms,1%"},
    [DL_FLAG_REPLICA] =
        {"--replica", "NAME", NULL,
         "replica in whose name it is decided; without it only say what would be done"},
    [DL_FLAG_LISTEN] = {"--listen", "HOST:PORT", NULL,
                        "address to listen on; port 0: any (default 127.0.0.1:8765; of ui port 0)"},
    [DL_FLAG_CERT] = {"--cert", "FILE", NULL, "certificate for TLS, PEM"},
    [DL_FLAG_KEY] = {"--key", "FILE", NULL, "private key of --cert, PEM"},
    [DL_FLAG_MAKE_CERT] =
        {"--make-cert", NULL, NULL,
         "make a self-signed --cert and --key, print how to trust them, and stop"},
    [DL_FLAG_TOKEN_FILE] = {"--token-file", "FILE", NULL,
                            "ask for one of these tokens, one a line"},
    [DL_FLAG_S3_KEYS] = {"--s3-keys", "FILE", NULL,
                         "speak S3 to clients with one of these keys, \"ACCESS SECRET\" a line"},
    [DL_FLAG_MAX_OBJECT] = {"--max-object", "BYTES", NULL,
                            "longest object that is accepted (default 16 GiB)"},
    [DL_FLAG_MAX_CONNECTIONS] = {"--max-connections", "N", NULL,
                                 "connections at once (default 1024)"},
    [DL_FLAG_INSECURE] = {"--insecure", NULL, NULL,
                          "allow listening beyond this machine without TLS"},
    [DL_FLAG_SET_VALUES] = {"--set-values", "KEY=V,V", NULL,
                            "an option and its values; may be repeated"},
    [DL_FLAG_SEEDS] = {"--seeds", "N", NULL, "seeds of each combination (default 1)"},
    [DL_FLAG_EQUAL_STEPS] = {"--equal-steps", "N", NULL, "steps of a replica in every run"},
    [DL_FLAG_OUT] = {"--out", "DIR", NULL, "folder of all runs (default sweeps/<name of CONFIG>)"},
    [DL_FLAG_TRIALS] = {"--trials", "N", NULL, "candidates of the first rung (default 27)"},
    [DL_FLAG_TUNE_STEPS] = {"--steps", "N", NULL,
                            "steps of a replica in the last rung (default: CONFIG's)"},
    [DL_FLAG_TUNE_SEEDS] = {"--seeds", "N", NULL, "seeds of the last rung (default 3)"},
    [DL_FLAG_MAX_SENT] = {"--max-sent", "BYTES", NULL,
                          "most bytes that a replica may send in a run of CONFIG's length"},
    [DL_FLAG_TUNE_OUT] =
        {"--out", "DIR", NULL,
         "folder of all trials and of the result (default tuned/<name of CONFIG>)"},
    [DL_FLAG_NEW] = {"--new", NULL, NULL, "the name is new: no replica had it when it was chosen"},
    [DL_FLAG_HIDE] = {"--hide", "NAMES", NULL, "variables whose values are not shown"},
    [DL_FLAG_PARAMS] = {"--params", "N", NULL, "parameters of the model: 1e9"},
    [DL_FLAG_LAYERS] = {"--layers", "L", NULL, "transformer blocks of the model"},
    [DL_FLAG_STEP_SECONDS] =
        {"--step-seconds", "S", NULL,
         "seconds of one optimizer step of a replica (default: measured here)"},
    [DL_FLAG_STEPS] = {"--steps", "T", NULL,
                       "steps of the run (default: CONFIG's, otherwise 10000)"},
    [DL_FLAG_PLAN_REPLICAS] = {"--replicas", "M", NULL,
                               "replicas in the run (default: CONFIG's, or 2)"},
    [DL_FLAG_GBIT] = {"--gbit", "X", NULL, "link of each replica, Gbit/s up and down"},
    [DL_FLAG_LATENCY] = {"--latency", "MS", NULL, "latency of a request, with --gbit (default 0)"},
    [DL_FLAG_LINK] = {"--link", "RATE,LATENCY", NULL,
                      "a link in words: 50mbit,100ms; with --probe: probe through it"},
    [DL_FLAG_PROBE] = {"--probe", "URL", NULL, "measure the link to a store instead"},
    [DL_FLAG_COST] = {"--cost", "FILE", NULL, "price table (TOML or CSV; see docs/planner.md)"},
    [DL_FLAG_ADVICE] = {"--advice", NULL, NULL,
                        "also learning rates, batch and loss by the scaling laws of 2503.09799"},
    [DL_FLAG_METHOD] = {"--method", "NAME", NULL, "only this method"},
    [DL_FLAG_SYNC_EVERY] = {"--sync-every", "H", NULL, "steps between exchanges of a fragment"},
    [DL_FLAG_FRAGMENT_LAYERS] = {"--fragment-layers", "N", NULL,
                                 "blocks in a streaming fragment (default 3)"},
    [DL_FLAG_TAU] = {"--tau", "STEPS", NULL, "steps of training during an exchange"},
    [DL_FLAG_BITS] = {"--bits", "B", NULL, "bits of a value on the wire"},
    [DL_FLAG_EXCHANGE] = {"--exchange", "NAME", NULL,
                          "allgather, leader or sharded (default allgather)"},
    [DL_FLAG_UTILIZATION] = {"--utilization", "U", NULL,
                             "utilisation to reach (default 0.95); with --grid a list: 0.5,0.9"},
    [DL_FLAG_GRID] = {"--grid", "NAME", NULL,
                      "link that is needed, by a published model: published, calculator"},
    [DL_FLAG_REPLAY] = {"--replay", "RECORD|URL", NULL,
                        "a finished run's record, or the run, on another --link"},
    [DL_FLAG_RECORDED_LINK] = {"--recorded-link", "RATE,LATENCY", NULL,
                               "link of the recorded run (default: as recorded, or estimated)"},
    [DL_FLAG_TO] = {"--to", "FORMAT", NULL,
                    "hf (a folder for transformers), npz, gguf, peft or dcp"},
    [DL_FLAG_TO_PATH] = {"--out", "PATH", NULL, "the folder or file to write"},
    [DL_FLAG_DTYPE] = {"--dtype", "TYPE", NULL, "f32, bf16 or f16 (default f32)"},
    [DL_FLAG_ADAPTER] = {"--adapter", NULL, NULL, "the same as --to peft"},
    [DL_FLAG_TEXT] = {"--text", "LIST", NULL, "text files and folders, with commas"},
    [DL_FLAG_TOKENIZER] = {"--tokenizer", "FILE", NULL, "tokenizer.json, or tiktoken's ranks"},
    [DL_FLAG_VOCAB] = {"--vocab", "N", NULL, "tokens of the finished tokenizer (default 8192)"},
    [DL_FLAG_WORDS] = {"--words", "NAME", NULL,
                       "how text is cut: gpt2 or cl100k, which is Llama 3's (default cl100k)"},
    [DL_FLAG_MODEL] = {"--model", "NAME", "trainer.model_name", "the model (default gpt)"},
    [DL_FLAG_WHY] = {"--why", NULL, NULL,
                     "missing replicas, the contributions that the run "
                     "waits for, each deadline"},
    [DL_FLAG_PEER] = {"--peer", "HOST:PORT", "swarm.bootstrap",
                      "address of a node of a run without a log"},
    [DL_FLAG_WATCH] = {"--watch", NULL, NULL, "repeat the status until the run ends or Ctrl-C"},
    [DL_FLAG_ID_KEY] = {"--key", "FILE", NULL, "the key's file (default ~/.config/diloco/key.pem)"},
    [DL_FLAG_FOR] = {"--for", "TIME", NULL,
                     "time until the invitation expires: 90s, 30m, 24h, 7d (default 24h)"},
    [DL_FLAG_MEMBERS] = {"--members", "FILE", NULL,
                         "admit owners of these keys (as of run.members) without a token"},
    [DL_FLAG_JOIN_LINE] =
        {"--join", "RUN", NULL,
         "print the line with which a second machine joins; makes TLS and a token"},
    [DL_FLAG_COMPARE] = {"--compare", "URL", NULL, "another run beside it; may be repeated"},
    [DL_FLAG_NO_BROWSER] = {"--no-browser", NULL, NULL,
                            "only print the address, and open no browser"},
    [DL_FLAG_ONCE] = {"--once", NULL, NULL, "print the screen once, for a pipe"},
    [DL_FLAG_TRACKER] = {"--to", "TRACKER", NULL, "wandb, mlflow or trackio"},
    [DL_FLAG_PROJECT] = {"--project", "NAME", NULL,
                         "project or experiment of the tracker (default diloco)"},
    [DL_FLAG_SENT] = {"--sent", "FILE", NULL,
                      "list of the entries already sent (default in ~/.local/state/diloco/track)"},
    [DL_FLAG_TRACK_ONCE] = {"--once", NULL, NULL, "send the entries so far, and end"},
    [DL_FLAG_REPORT_OUT] = {"--out", "FILE", NULL,
                            "FILE.html, .pdf or .md: a report; FILE.svg: the curves alone"},
    [DL_FLAG_RANK] = {"--rank", "N", NULL, "number of the replica: N is called rN"},
    [DL_FLAG_ON] = {"--on", "EXECUTOR", "launch.executor",
                    "executor to start replicas with (default local)"},
    [DL_FLAG_LAUNCH_REPLICAS] = {"--replicas", "N|A..B", NULL,
                                 "number of replicas; A..B: as many as can be had, at least A"},
    [DL_FLAG_DRY_RUN] = {"--dry-run", NULL, NULL,
                         "print what would be sent, without secrets, and send nothing"},
    [DL_FLAG_DETACH] = {"--detach", NULL, NULL, "start the replicas and return"},
    [DL_FLAG_PREPARE] = {"--prepare", NULL, NULL,
                         "create the run, start nothing, and print as JSON what each replica runs"},
    [DL_FLAG_FOLLOW] = {"--follow", NULL, NULL, "keep reading until the replicas end"},
    [DL_FLAG_BUDGET] = {"--budget", "COST", "launch.budget",
                        "cost of machines and store after which no replica is started"},
    [DL_FLAG_LAUNCH_STEP] = {"--step-seconds", "S", NULL,
                             "for the forecast of costs: seconds of one optimizer step there"},
    [DL_FLAG_LAUNCH_LINK] = {"--link", "RATE,LATENCY", NULL,
                             "link of each machine, for the forecast of costs: 50mbit,100ms"},
    [DL_FLAG_TIMEOUT] = {"--timeout", "S", NULL,
                         "longest time to wait, in seconds (default: none)"},
};

bool dl_flags_have(const dl_flag *list, size_t flag)
{
    for (; list && *list != DL_N_FLAGS; list++)
        if (*list == flag) return true;
    return false;
}

/* --help is taken by every command, and --help=all by those that have options to show. */
bool dl_command_takes(const dl_command *command, size_t flag)
{
    if (flag == DL_FLAG_HELP) return true;
    if (flag == DL_FLAG_HELP_ALL) return command->sets != DL_SETS_NONE;
    return dl_flags_have(command->flags, flag);
}

/* ---- misspelt names: the option table's search, over a table of names alone */

/* More than the flags of a command, the commands or the presets that are searched. */
enum { NAMES_MAX = 64 };

const char *dl_nearest(const char *const *names, size_t n, const char *name)
{
    dl_option rows[NAMES_MAX];
    DL_ASSERT(n <= NAMES_MAX);
    for (size_t i = 0; i < n; i++)
        rows[i] = (dl_option){.name = names[i]};
    return dl_option_nearest((dl_option_table){rows, n}, name);
}

/* Compose the error for a flag that the command lacks. Only flags of this command are suggested. */
static diloco_status unknown_flag(const dl_command *command, const char *flag, size_t len)
{
    const char *names[DL_N_FLAGS], *nearest;
    char given[64];
    size_t n = 0;
    for (size_t i = 0; i < DL_N_FLAGS; i++)
        if (dl_flags_have(command->flags, i)) names[n++] = dl_flag_rows[i].name;
    snprintf(given, sizeof given, "%.*s", (int)dl_size_min(len, sizeof given - 1), flag);
    nearest = dl_nearest(names, n, given);
    if (nearest)
        return dl_fail(DILOCO_EINVAL, "%s has no flag %s; did you mean %s?", command->name, given,
                       nearest);
    return dl_fail(DILOCO_EINVAL, "%s has no flag %s; see diloco %s --help", command->name, given,
                   command->name);
}

/* ---- reading */

/* Return the flag that `text` ("--seed", "--seed=3") names among the command's, or DL_N_FLAGS.
 * The length excludes the value. */
static size_t find_flag(const dl_command *command, const char *text, size_t len)
{
    if (!strcmp(text, "-h")) return DL_FLAG_HELP;
    for (size_t i = 0; i < DL_N_FLAGS; i++)
        if (dl_command_takes(command, i) && strlen(dl_flag_rows[i].name) == len &&
            !memcmp(dl_flag_rows[i].name, text, len))
            return i;
    return DL_N_FLAGS;
}

/* Add the value of a flag that may be repeated. One whose row shows "KEY=VALUE" needs the '=';
 * later code relies on it. */
static diloco_status add_to(const char **list, size_t *n, const dl_flag_row *row, const char *value)
{
    if (strchr(row->value, '=') && !strchr(value, '='))
        return dl_fail(DILOCO_EINVAL, "%s %.100s: write it as %s %s", row->name, value, row->name,
                       row->value);
    if (*n == DL_ARGS_MAX_SETS)
        return dl_fail(DILOCO_EINVAL, "at most %d %s; put them into a file", DL_ARGS_MAX_SETS,
                       row->name);
    list[(*n)++] = value;
    return DILOCO_OK;
}

/* Returns how much of an argument an error may show, for "%.*s". The part of a join line after the
 * # is a secret. */
static int shown(const char *text)
{
    return (int)strnlen(text, dl_size_min(strcspn(text, "#"), 100));
}

/* Keep the text of a flag. Giving the same value twice is harmless; two values are a mistake
 * that would otherwise be silent. */
static diloco_status take_flag(dl_args *args, size_t flag, const char *value)
{
    const dl_flag_row *row = &dl_flag_rows[flag];
    const char *name = row->name;
    if (flag == DL_FLAG_SET) return add_to(args->sets, &args->n_sets, row, value);
    if (flag == DL_FLAG_COMPARE) return add_to(args->compared, &args->n_compared, row, value);
    if (flag == DL_FLAG_SET_VALUES) return add_to(args->values, &args->n_values, row, value);
    if (args->flags[flag] && strcmp(args->flags[flag], value) != 0)
        return dl_fail(DILOCO_EINVAL, "%s is given twice: %.*s and %.*s", name,
                       shown(args->flags[flag]), args->flags[flag], shown(value), value);
    args->flags[flag] = value;
    return DILOCO_OK;
}

/* Read the flag at argv[*at]. *at stays at the last argument that belongs to it: the flag
 * itself, or its value. */
static diloco_status read_flag(dl_args *args, int *at)
{
    const char *text = args->argv[*at];
    if (!strcmp(text, dl_flag_rows[DL_FLAG_HELP_ALL].name)) /* of any command */
        return take_flag(args, DL_FLAG_HELP_ALL, "");
    size_t len = strcspn(text, "=");
    size_t flag = find_flag(args->command, text, len);
    if (flag == DL_N_FLAGS) return unknown_flag(args->command, text, len);

    const dl_flag_row *row = &dl_flag_rows[flag];
    const char *value = text[len] && strcmp(text, "-h") != 0 ? text + len + 1 : NULL;
    if (!row->value) {
        if (value)
            return dl_fail(DILOCO_EINVAL, "%s takes no value%s", row->name,
                           flag == DL_FLAG_HELP ? " but all: --help=all" : "");
        return take_flag(args, flag, "");
    }
    if (!value && *at + 1 == args->argc)
        return dl_fail(DILOCO_EINVAL, "%s needs a value: %s %s", row->name, row->name, row->value);
    if (!value) value = args->argv[++*at];
    if (!*value && strcmp(row->value, "TEXT") != 0) /* as an unset variable of a shell leaves it */
        return dl_fail(DILOCO_EINVAL,
                       "%s \"\": the %s is empty; leave the flag out for its default", row->name,
                       row->value);
    return take_flag(args, flag, value);
}

/* Keep the one argument that is no flag. A second one, unless the command has a meaning for it, is
 * an error, as it is often a misspelt flag's value. */
static diloco_status read_target(dl_args *args, const char *text)
{
    if (!args->command->target)
        return dl_fail(DILOCO_EINVAL, "%s takes no argument, but \"%.*s\" is given",
                       args->command->name, shown(text), text);
    if (args->target && args->command->second) return take_flag(args, args->command->second, text);
    if (args->target)
        return dl_fail(DILOCO_EINVAL, "%s takes one %s, but \"%.*s\" and \"%.*s\" are given",
                       args->command->name, args->command->target, shown(args->target),
                       args->target, shown(text), text);
    args->target = text;
    return DILOCO_OK;
}

/* "-" alone is a target (stdin), and "--" ends the flags. Parsing stops at --help, so help is
 * shown whatever else is wrong. */
diloco_status dl_args_parse(dl_args *out, const dl_command *command, int argc, char **argv,
                            int first)
{
    bool flags_end = false;
    *out = (dl_args){.command = command, .argc = argc, .argv = argv};
    for (int at = first; at < argc; at++) {
        const char *text = argv[at];
        if (!flags_end && strcmp(text, "--") == 0) {
            flags_end = true;
            if (!command->takes_rest) continue;
            out->rest = argv + at + 1;
            break;
        }
        if (!flags_end && text[0] == '-' && text[1])
            DL_TRY(read_flag(out, &at));
        else
            DL_TRY(read_target(out, text));
        if (out->flags[DL_FLAG_HELP] || out->flags[DL_FLAG_HELP_ALL]) return DILOCO_OK;
    }
    /* A target in square brackets may be left out. */
    if (!out->target && command->target && command->target[0] != '[')
        return dl_fail(DILOCO_EINVAL, "%s needs a %s; see diloco %s --help", command->name,
                       command->target, command->name);
    return DILOCO_OK;
}

bool dl_args_has(const dl_args *args, dl_flag flag)
{
    return args->flags[flag] != NULL;
}

static bool is_blotted(const dl_args *args, const char *word)
{
    for (size_t i = 0; i < sizeof args->blotted / sizeof *args->blotted; i++)
        if (args->blotted[i] && args->blotted[i] >= word && args->blotted[i] <= word + strlen(word))
            return true;
    return false;
}

void dl_args_again(char *out, size_t cap, const dl_args *args)
{
    char word[1024], text[1024];
    size_t used = 0;
    *out = '\0';
    for (int i = 0; i < args->argc && used < cap; i++) {
        snprintf(text, sizeof text, "%s%s", args->argv[i],
                 is_blotted(args, args->argv[i]) ? "#…" : "");
        used += (size_t)snprintf(out + used, cap - used, "%s%s", i ? " " : "",
                                 dl_shell_word(word, sizeof word, text));
    }
}

/* The text has to be a number as a whole: "10k", "-1" and "1.5" are refused, and nothing is
 * rounded. */
diloco_status dl_args_u64(uint64_t *out, const dl_args *args, dl_flag flag, uint64_t fallback,
                          uint64_t max)
{
    const char *text = args->flags[flag];
    *out = fallback;
    if (!text || (dl_text_to_u64(out, text, strlen(text)) && *out <= max)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s %.100s is not a whole number from 0 to %llu",
                   dl_flag_rows[flag].name, text, (unsigned long long)max);
}

/* Infinities and NAN are refused, because the comparison with `max` fails for them. */
diloco_status dl_args_f64(double *out, const dl_args *args, dl_flag flag, double fallback,
                          double max)
{
    const char *text = args->flags[flag];
    *out = fallback;
    if (!text || (dl_text_to_real(out, text, strlen(text)) && *out >= 0 && *out <= max))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s %.100s is not a number from 0 to %g", dl_flag_rows[flag].name,
                   text, max);
}
